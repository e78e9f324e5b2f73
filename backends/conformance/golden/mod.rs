//! Reference outputs, computed elsewhere in float32, against a driver.
//!
//! `models/nano/golden/nano-q4.json` belongs to the three shipped files and is
//! always checked. `golden/nano.json` belongs to the BF16 files, which are too big
//! to ship: its tests run when `FORETOKEN_TEST_DATA` names a folder that has them.

pub(crate) mod check;
pub(crate) mod data;
mod reference;
mod speculation;
mod trees;
