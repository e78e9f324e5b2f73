//! The linear operation: packed weights times rows of activations.
//!
//! Weights of every type are packed at load into panels of 16 output rows (`layout`,
//! `pack`, `weight`). A launch converts the activations once (`rows`), then workers
//! claim runs of panels and multiply (`kernel`, over the vectors of `lanes`;
//! `dispatch` picks the code). The order of every sum is fixed by the weight alone:
//! the same bits for any number of rows or threads, on any instruction set.
//!
//! May depend on `simd`, `memory` and `pool`, and on no other operation.

mod dispatch;
mod kernel;
mod lanes;
mod layout;
mod op;
mod pack;
mod rows;
mod share;
#[cfg(test)]
mod tests;
mod weight;

pub(crate) use op::prepare;
pub use weight::{PackedWeight, Scratch};
