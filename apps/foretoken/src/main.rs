//! Foretoken on the command line.

fn main() {}
