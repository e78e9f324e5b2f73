//! The gated delta rule and its short convolution.

use super::control::{Control, Regime};
use super::tree::TreeRows;
use crate::device::Activations;
use crate::tensor::Tensor;

/// Depthwise causal convolution with SiLU over the token axis:
/// `out[t, c] = silu(sum_j w[c, j] * x[t - width + 1 + j, c])`; inputs before the
/// call come from `state`, which afterwards holds the last `width - 1` inputs.
///
/// With a tree, a row's earlier inputs are those of its ancestors, then `state`, which
/// is left as it is.
#[derive(Clone, Debug)]
pub struct ShortConv {
    /// Control block.
    pub control: Control,
    /// `[M, C]` F32.
    pub x: Tensor,
    /// `[C, width]` F32; the last tap meets the current token.
    pub weight: Tensor,
    /// `[width - 1, C]` F32, oldest first; updated unless there is a tree.
    pub state: Tensor,
    /// The rows are nodes of a tree.
    pub tree: Option<TreeRows>,
    /// `[M, C]` F32, not `x`.
    pub out: Tensor,
}

/// Which key head a value head `h` of `Hv` reads, out of `Hk`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HeadMap {
    /// `h / (Hv / Hk)`: the order of Hugging Face checkpoints.
    Grouped,
    /// `h % Hk`: the order of GGUF files.
    Tiled,
}

/// Gated delta rule, one token after the other. Per value head, with F32 state
/// `S[dv][dk]` (the key index contiguous):
///
/// `g = a * softplus(alpha + dt_bias)`, `b = sigmoid(beta)`, `q` and `k` scaled to
/// unit length (`x / sqrt(sum x^2 + eps)`), `q` also by `1 / sqrt(dk)`; then
/// `S *= exp(g)`, `d = b (v - S k)`, `S += d k^T`, `out = S q`.
///
/// With a tree, each row starts from the state its parent leaves, by the same
/// instructions as a single step, and `state` is left as it is.
#[derive(Clone, Debug)]
pub struct GatedDelta {
    /// Control block.
    pub control: Control,
    /// Step or prefill. A driver may use the chunked form in prefill.
    pub regime: Regime,
    /// What products of the chunked form may be rounded to: with [`Activations::Fast`] to 16
    /// bits, with [`Activations::F32`] to nothing below F32.
    pub activations: Activations,
    /// `[M, 2 * Hk * dk + Hv * dv]` F32: queries, keys, values after the convolution.
    pub qkv: Tensor,
    /// `[M, Hv]` F32 decay input.
    pub alpha: Tensor,
    /// `[M, Hv]` F32 write-strength input.
    pub beta: Tensor,
    /// `[Hv]` F32: `-exp(A_log)`.
    pub a: Tensor,
    /// `[Hv]` F32.
    pub dt_bias: Tensor,
    /// `[Hv, dv, dk]` F32; updated to the state after the last row unless there is a
    /// tree.
    pub state: Tensor,
    /// The rows are nodes of a tree; the regime is then [`Regime::Step`].
    pub tree: Option<TreeRows>,
    /// `[M, Hv, dv]` F32.
    pub out: Tensor,
    /// Number of key heads.
    pub key_heads: usize,
    /// Which key head a value head reads.
    pub head_map: HeadMap,
    /// Added under the root of the unit-length scaling.
    pub eps: f32,
}

/// `out = weight * x / sqrt(mean(x^2) + eps) * silu(z)`, per head of `dv` values.
#[derive(Clone, Debug)]
pub struct GatedNorm {
    /// Control block.
    pub control: Control,
    /// `[M, H, dv]` F32.
    pub x: Tensor,
    /// `[M, H, dv]` F32.
    pub z: Tensor,
    /// `[dv]` F32, shared by the heads.
    pub weight: Tensor,
    /// Added under the root.
    pub eps: f32,
    /// `[M, H, dv]` F32; may be `x`.
    pub out: Tensor,
}
