//! The CPU driver: every operation in plain Rust and SIMD.
//!
//! It is the oracle other drivers are tested against, so its arithmetic is fixed:
//! each sum has one order (see `math`), fused multiply-adds are used everywhere, and
//! so all instruction sets, all thread counts and all row counts give the same bits.
//! Step and prefill share one arithmetic: they agree bit for bit, which is more than
//! the seam asks for.
//!
//! Layers, each depending on those before it: `memory` (blocks and windows), `pool`
//! (workers), `math` (vector arithmetic), `ops` and `linear` (one kernel for each
//! operation), `device` (the seam's traits).

mod device;
mod driver;
mod host;
pub mod linear;
mod math;
mod memory;
mod ops;
mod pool;
pub mod simd;

pub use driver::{CpuDriver, CpuOptions};
