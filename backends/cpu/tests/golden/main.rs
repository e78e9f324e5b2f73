//! Reference outputs, computed elsewhere in float32, against the CPU driver.
//!
//! `models/nano/golden/nano-q4.json` belongs to the three shipped files and is
//! always checked. `golden/nano.json` belongs to the BF16 files, which are too big
//! to ship: its tests run when `FORETOKEN_TEST_DATA` names a folder that has them.

// Skips and the largest differences are said.
#![allow(clippy::print_stderr)]

#[path = "../tree/builder.rs"]
mod builder;
mod check;
mod convert;
mod data;
mod perplexity;
mod reference;
mod safetensors;
mod speculation;
mod trees;
