//! Attention with grouped queries: causal, over a token tree, or of a drafter's block.
//!
//! Each row sees one interval of logical positions (`sight`). A position is its slot,
//! but for the positions past the committed ones of a tree: their keys are found along
//! the row's path and gathered row by row.
//!
//! The queries of one key-value head, of one or several rows, form a block that
//! reads each key and value once. A split of 128 keys gives each query a maximum, a
//! sum and a weighted sum of values (`split`); splits are folded into the result in
//! ascending order (`fold`). Blocks either fold as they go, or, when there are too
//! few of them for the workers, the splits of a wave are computed side by side and
//! folded after a barrier. Both do the same arithmetic in the same order.

mod fold;
mod kernel;
mod run;
mod shape;
mod sight;
mod split;
mod tiles;

pub(super) use kernel::Kernel;
