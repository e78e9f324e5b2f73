//! Token trees on the CPU driver: ten thousand small ones against brute force, and
//! the values in device memory that must fail a launch.

#[path = "../../../conformance/common.rs"]
mod common;
#[path = "../common/driver.rs"]
mod driver;
mod refusals;
#[path = "../../../conformance/tree/mod.rs"]
mod tree;
