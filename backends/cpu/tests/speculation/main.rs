//! The tests of `backends/conformance/speculation` on the CPU.

// Skips are said.
#![allow(clippy::print_stderr)]

#[path = "../../../conformance/common.rs"]
mod common;
#[path = "../common/driver.rs"]
mod driver;
#[path = "../../../conformance/speculation/mod.rs"]
mod speculation;
