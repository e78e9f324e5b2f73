//! Cases of the table, one file for each family of operations.

pub(super) mod attention;
mod attention_masks;
mod commit_kv;
pub(super) mod delta;
mod delta_prefill;
mod delta_tree;
mod features;
pub(super) mod linear;
mod norms;
mod pointwise;
mod rope;
pub(super) mod sample;
mod stamp;
mod top_k;
mod tree_build;
mod tree_step;

use super::report::Runner;

/// Row counts around the edges of tiles.
pub(super) const ROWS: [usize; 14] = [1, 2, 3, 15, 16, 17, 31, 32, 33, 64, 65, 127, 128, 129];
/// Widths around the edges of vectors and tiles.
pub(super) const WIDTHS: [usize; 14] = [1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 1000];
/// Rows recorded beyond the live ones.
pub(super) const SPARE: usize = 3;

/// Runs all of them.
pub(super) fn all(run: &mut Runner<'_>) {
    norms::all(run);
    pointwise::all(run);
    rope::all(run);
    attention::all(run);
    attention_masks::all(run);
    commit_kv::all(run);
    features::all(run);
    delta::all(run);
    delta_prefill::all(run);
    delta_tree::all(run);
    linear::all(run);
    top_k::all(run);
    sample::all(run);
    tree_build::all(run);
    tree_step::all(run);
    stamp::all(run);
}
