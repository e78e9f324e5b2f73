//! Plain F64 references, one for each operation, as literal as can be.
//!
//! They share no code with any driver. Inputs are the F32 values a device gets.

mod attention;
mod delta;
mod pointwise;
mod sample;
mod tree;

pub(super) use attention::{Heads, attention, attention_to, qk_norm_rope, rope_angles};
pub(super) use delta::{
    Delta, conv_commit, gated_delta, gated_delta_row, gated_delta_tree, short_conv, short_conv_tree,
};
pub(super) use pointwise::{gated_norm, linear, log_sum_exp, rms_norm, sigmoid, silu, top_k};
pub(super) use sample::{Drawn, sample};
pub(super) use tree::{Candidates, walk};
