//! Choosing a token of each row by temperature, top-k, top-p and min-p.

use super::control::Control;
use crate::sample::Draw;
use crate::tensor::Tensor;

/// How to sample: `[8]` I32, the words of [`Draw::words`].
#[derive(Clone, Debug)]
pub struct SampleParams(pub Tensor);

impl SampleParams {
    /// Words in the block.
    pub const WORDS: usize = Draw::WORDS;
    /// Word index of the temperature's bits, F32.
    pub const TEMPERATURE: usize = 0;
    /// Word index of top-k, unsigned.
    pub const TOP_K: usize = 1;
    /// Word index of the bits of top-p, F32.
    pub const TOP_P: usize = 2;
    /// Word index of the bits of min-p, F32.
    pub const MIN_P: usize = 3;
    /// Word index of the low half of the seed; the high half follows.
    pub const SEED: usize = 4;
}

/// The token after each row that has logits, chosen among the `K` best.
///
/// `choices[i]` is [`Draw::choose`] of row `i`, bit for bit: the token that
/// [`Sampler`](crate::sample::Sampler) chooses from the row's logits for the position after
/// the row's own, or -2 where the best candidates do not decide that, or -1 where the
/// first id is negative. All arithmetic on exponentials and sums is F64, in the order
/// given there, nothing fused.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Control block; row `i` of everything but `positions` belongs to row
    /// `logit_first + i`, `i < logit_rows`.
    pub control: Control,
    /// How to sample.
    pub params: SampleParams,
    /// `[M]` I32: where the rows stand in the sequence.
    pub positions: Tensor,
    /// `[L, K]` I32 of a [`TopK`](super::TopK), `K` up to [`Draw::CANDIDATES`].
    pub ids: Tensor,
    /// `[L, K]` F32 of the same: the logits.
    pub values: Tensor,
    /// `[L]` F32 of the same, off by at most `2^-16 + 2^-22 |log_sum_exp|`.
    pub log_sum_exp: Tensor,
    /// Tokens in the vocabulary, at least `K`.
    pub vocab: usize,
    /// `[L, 1]` I32, written.
    pub choices: Tensor,
}
