//! Token trees: ten thousand small ones against brute force.

pub(crate) mod builder;
mod property;
