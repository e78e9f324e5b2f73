//! What an open device promises besides right numbers: typed refusals, ordered copies,
//! graphs that replay, handles that outlive the device. On an NVIDIA GPU where there is
//! one, else on a stand-in for the driver's library that works in host memory.
//!
//! Kernels have to be in the build: `cargo test -p foretoken-cuda --features kernels`.

#[path = "../common/mod.rs"]
mod common;
mod copies;
mod faults;
mod graphs;
mod links;
mod memory;
mod stand_in;
mod support;
