//! The binary as users and scripts see it: exit codes, messages, JSON.

#![allow(clippy::print_stdout)] // a skipped test says so

#[cfg(feature = "embed-models")]
mod embedded;
mod engine;
mod gpu;
mod help;
mod hostile;
mod hostile_contents;
mod json;
mod prompts;
mod speculation;
mod streams;
mod support;
mod synth;
mod usage;
