//! Whole models on a GPU: the tests of `backends/conformance`, with the device's own code,
//! or with the portable code of the architecture in `FORETOKEN_FORCE_PTX`.
//!
//! Without a GPU they are skipped, and say so.

// Skips and the largest differences are said.
#![allow(clippy::print_stdout, clippy::print_stderr)]

#[path = "../../../conformance/common.rs"]
mod common;
mod driver;
mod faults;

#[path = "../../../conformance/golden/mod.rs"]
mod golden;
#[path = "../../../conformance/speculation/mod.rs"]
mod speculation;
#[path = "../../../conformance/tree/mod.rs"]
mod tree;
