//! The thread pool: workers that walk a list of kernels together.
//!
//! A launch wakes the workers once; between two kernels they meet at a spinning
//! barrier, so that an operation costs well under a microsecond of overhead. The
//! thread that launches is worker 0. Nothing here knows an operation; depends on
//! `memory` for the scratch window only.

mod affinity;
mod barrier;
mod chunk;
mod run;
#[cfg(test)]
mod tests;
mod worker;

pub(crate) use affinity::{default_threads, placement};
pub(crate) use chunk::ChunkCounter;
pub(crate) use run::Pool;
pub(crate) use worker::{CpuKernel, Worker};
