//! Softmax attention and what surrounds it.

use super::control::{Control, Regime};
use super::tree::TreeRows;
use crate::tensor::Tensor;

/// Cosines and sines of the rotary angles of each row:
/// `angle[i, j] = positions[i] * theta^(-2j / rotary_dims)`.
#[derive(Clone, Debug)]
pub struct RopeAngles {
    /// Control block.
    pub control: Control,
    /// `[M]` I32 positions.
    pub positions: Tensor,
    /// Base of the frequencies.
    pub theta: f64,
    /// `[M, rotary_dims]` F32: `rotary_dims / 2` cosines, then as many sines.
    pub out: Tensor,
}

/// Heads that [`QkNormRope`] works on.
#[derive(Clone, Debug)]
pub struct HeadPart {
    /// `[M, H, stride]` F32, in place; a head is its first `head_dim` values.
    pub x: Tensor,
    /// `[head_dim]` F32: weight of the norm, the same length in all parts.
    pub norm: Tensor,
}

/// Per-head RMS norm of queries, keys or both, then NeoX rotary embedding of the first
/// `rotary_dims` of each head (pairs `j, j + rotary_dims / 2`), in place.
#[derive(Clone, Debug)]
pub struct QkNormRope {
    /// Control block.
    pub control: Control,
    /// `[M, rotary_dims]` F32 from [`RopeAngles`].
    pub angles: Tensor,
    /// Queries and keys; at least one part.
    pub parts: Vec<HeadPart>,
    /// Added under the root of the norms.
    pub eps: f32,
}

/// Keys and values of one layer.
#[derive(Clone, Debug)]
pub struct KvPair {
    /// `[context, Hkv, head_dim]`, F32, F16 or BF16 (quantised types come later).
    pub k: Tensor,
    /// `[context, Hkv, head_dim]`.
    pub v: Tensor,
}

/// Writes row `i` of `k` and `v` to cache slot `committed + i`.
#[derive(Clone, Debug)]
pub struct KvAppend {
    /// Control block.
    pub control: Control,
    /// `[M, Hkv, head_dim]` F32, rotated.
    pub k: Tensor,
    /// `[M, Hkv, head_dim]` F32.
    pub v: Tensor,
    /// The layer's cache.
    pub cache: KvPair,
}

/// What a row of [`Attention`] sees. Slots below `committed` hold committed tokens;
/// row `i` of the call has slot `committed + i`.
#[allow(clippy::large_enum_variant)] // one to a layer, cloned only to build a graph
#[derive(Clone, Debug)]
pub enum AttentionMask {
    /// Slots `0 ..= committed + i`.
    Causal,
    /// All committed slots and the slots of the row's ancestors and itself. The key at
    /// logical position `committed + d` is that of the row's ancestor at depth `d`;
    /// splits and the order of sums go by logical position, so a row gets the bits it
    /// would get had its path been committed.
    Tree(TreeRows),
    /// A drafter's block at positions `committed + i` (slots and positions agree).
    Block {
        /// Sliding window: positions at a distance of this or more are not seen.
        window: Option<usize>,
        /// Rows see only themselves and earlier rows of the block.
        causal: bool,
    },
}

/// Attention with grouped queries over the cache. Query head `h` reads key-value head
/// `h / (Hq / Hkv)`.
///
/// The key range is split at absolute multiples of [`Attention::SPLIT`]; each
/// split has its own maximum and sums, combined in ascending order. So a row's
/// bits depend on its own context length (and window) alone.
#[derive(Clone, Debug)]
pub struct Attention {
    /// Control block.
    pub control: Control,
    /// Step or prefill.
    pub regime: Regime,
    /// What each row sees. Only [`AttentionMask::Causal`] goes with prefill.
    pub mask: AttentionMask,
    /// `[M, Hq, q_stride]` F32; the first `head_dim` of each head are the query.
    pub q: Tensor,
    /// The layer's cache, already holding the rows of this call.
    pub cache: KvPair,
    /// Factor on the scores, usually `1 / sqrt(head_dim)`.
    pub scale: f32,
    /// `[M, Hq, head_dim]` F32.
    pub out: Tensor,
}

impl Attention {
    /// Keys in a split.
    pub const SPLIT: usize = 128;
}

/// `x = x * sigmoid(gate)`, where a head's gate is the second `head_dim` values of
/// its `[2 * head_dim]` row in the query projection.
#[derive(Clone, Debug)]
pub struct OutputGate {
    /// Control block.
    pub control: Control,
    /// `[M, Hq, 2 * head_dim]` F32: query, then gate.
    pub q: Tensor,
    /// `[M, Hq, head_dim]` F32, in place.
    pub x: Tensor,
}
