//! Reference outputs, computed elsewhere in float32, against the CPU driver.
//!
//! `models/nano/golden/nano-q4.json` belongs to the three shipped files and is
//! always checked. `golden/nano.json` belongs to the BF16 files, which are too big
//! to ship: its tests run when `FORETOKEN_TEST_DATA` names a folder that has them.

// Skips and the largest differences are said.
#![allow(clippy::print_stderr)]

#[path = "../../../conformance/common.rs"]
mod common;
mod convert;
#[path = "../common/driver.rs"]
mod driver;
mod perplexity;
#[path = "../../../conformance/golden/mod.rs"]
mod recorded;
mod safetensors;
#[path = "../../../conformance/tree/mod.rs"]
mod tree;
