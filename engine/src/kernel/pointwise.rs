//! Embedding, norms, linear operations, activation, top-k.

use super::control::{Control, Regime, RowSet};
use crate::device::Weight;
use crate::tensor::Tensor;

/// `out[i] = table[tokens[i]]`, decoded to F32. A token outside the table is a
/// request error that the engine rules out before the launch; the kernel clamps it.
#[derive(Clone, Debug)]
pub struct Embed {
    /// Control block.
    pub control: Control,
    /// `[M]` I32 token ids.
    pub tokens: Tensor,
    /// `[V, D]` embedding table.
    pub table: Weight,
    /// `[M, D]` F32.
    pub out: Tensor,
}

/// `out = x / sqrt(mean(x^2) + eps) * weight`, row by row, in F32.
#[derive(Clone, Debug)]
pub struct RmsNorm {
    /// Control block.
    pub control: Control,
    /// Rows covered.
    pub rows: RowSet,
    /// `[M, D]` F32.
    pub x: Tensor,
    /// `[D]` F32, multiplied as it is.
    pub weight: Tensor,
    /// Added under the root.
    pub eps: f32,
    /// `[M, D]` F32; may be `x` itself when `rows` is not `Logits`.
    pub out: Tensor,
}

/// One product of a [`Linear`].
#[derive(Clone, Debug)]
pub struct LinearPart {
    /// `[N, K]`.
    pub weight: Weight,
    /// `[M, N]` F32.
    pub out: Tensor,
    /// Add to `out` (the residual stream) instead of overwriting it.
    pub accumulate: bool,
}

/// `out_p = (x W_p^T) * scale_p` for each part `p`: several products that share
/// their input, so that a driver converts the activations once.
///
/// Row invariance: the order in which the sum of one output element is taken depends on
/// the shapes and types of the weights and on the regime, not on the rows of the call.
#[derive(Clone, Debug)]
pub struct Linear {
    /// Control block.
    pub control: Control,
    /// Each has an order of sums of its own. A step of more than 64 rows may take a
    /// prompt's.
    pub regime: Regime,
    /// Rows covered.
    pub rows: RowSet,
    /// `[M, K]` F32.
    pub x: Tensor,
    /// One or more products.
    pub parts: Vec<LinearPart>,
}

/// `out = silu(gate) * up`, elementwise.
#[derive(Clone, Debug)]
pub struct SwiGlu {
    /// Control block.
    pub control: Control,
    /// `[M, F]` F32.
    pub gate: Tensor,
    /// `[M, F]` F32.
    pub up: Tensor,
    /// `[M, F]` F32; may be `gate` or `up`.
    pub out: Tensor,
}

/// The `k` largest logits of each row, descending, ties to the lower id.
///
/// A NaN or infinity among the logits of a row writes id -1 in its first place:
/// the sentinel that fails the request.
#[derive(Clone, Debug)]
pub struct TopK {
    /// Control block.
    pub control: Control,
    /// `[M, V]` F32, rows `0..logit_rows`.
    pub logits: Tensor,
    /// How many, 1 ..= V.
    pub k: usize,
    /// `[M, k]` I32.
    pub ids: Tensor,
    /// `[M, k]` F32: the logits themselves.
    pub values: Tensor,
    /// `[M]` F32: log of the sum of exponentials over the row, when wanted.
    pub log_sum_exp: Option<Tensor>,
}
