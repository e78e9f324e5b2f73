//! Token trees: building one from a draft, walking it, committing the accepted path.
//!
//! Row 0 of a tree is the pending token (known, not yet run); rows 1 and up are
//! drafted, every row after its parent. A chain is the tree whose parents are the
//! previous rows. All of it lives in device memory, so that a whole speculative step
//! is one recorded graph.

use super::control::Control;
use super::delta::GatedDelta;
use super::{KvPair, ShortConv};
use crate::tensor::Tensor;

/// The shape of a tree of `M` rows, capacity at most [`TreeRows::MAX`].
#[derive(Clone, Debug)]
pub struct TreeRows {
    /// `[M]` I32: the row of the parent; -1 for row 0.
    pub parents: Tensor,
    /// `[M]` I32: 0 for row 0, else one more than the parent's.
    pub depths: Tensor,
    /// `[M, 2]` I32, low word first: bit `j` of the 64 says that row `j` is the row
    /// itself or one of its ancestors.
    pub masks: Tensor,
}

impl TreeRows {
    /// Most rows of a tree: one bit each.
    pub const MAX: usize = 64;
}

/// An accepted path: `[1 + M]` I32. Word 0 is how many rows it has (at least 1), the
/// words after it the rows in ascending order, row 0 first.
#[derive(Clone, Debug)]
pub struct Path(pub Tensor);

/// Where a sequence stands, kept on the device from step to step: `[4]` I32.
#[derive(Clone, Debug)]
pub struct Cursor(pub Tensor);

impl Cursor {
    /// Words in the block.
    pub const WORDS: usize = 4;
    /// Word index of the committed token count.
    pub const COMMITTED: usize = 0;
    /// Word index of the pending token's id.
    pub const PENDING: usize = 1;
    /// Word index of the number of tokens whose features the drafter has taken in.
    pub const DRAFTED: usize = 2;
}

/// How large a tree may become: `[4]` I32.
#[derive(Clone, Debug)]
pub struct TreeLimits(pub Tensor);

impl TreeLimits {
    /// Words in the block.
    pub const WORDS: usize = 4;
    /// Word index of the most drafted rows (0 leaves the pending token alone).
    pub const BUDGET: usize = 0;
    /// Word index of the largest depth.
    pub const DEPTH: usize = 1;
    /// Word index of the number of drafted positions that are valid.
    pub const POSITIONS: usize = 2;
    /// Word index of how many rows the most likely chain gets before all others.
    pub const CHAIN: usize = 3;
}

/// Prepares the rows of committed tokens that the drafter has not seen yet: writes the
/// control block (`rows = committed - drafted`, `committed = drafted`, no logits) and
/// the positions `drafted + i`, then sets the cursor's `drafted` to `committed`.
/// More rows than `positions` holds, a negative count, or a `drafted` past `committed`
/// fail the launch.
#[derive(Clone, Debug)]
pub struct DraftContext {
    /// Read and updated.
    pub cursor: Cursor,
    /// Written.
    pub control: Control,
    /// `[C]` I32, written.
    pub positions: Tensor,
}

/// Prepares a block-diffusion draft (DFlash, arXiv 2602.06036): the pending token
/// followed by mask tokens at positions `committed + i`. Writes the control block
/// (`rows = B`, `committed`, `logit_first = 1`, `logit_rows = B - 1`). A negative
/// `committed`, or positions past 31 bits, fail the launch.
#[derive(Clone, Debug)]
pub struct DraftBlock {
    /// Read.
    pub cursor: Cursor,
    /// The drafter's mask token.
    pub mask_token: u32,
    /// Written.
    pub control: Control,
    /// `[B]` I32, written.
    pub tokens: Tensor,
    /// `[B]` I32, written.
    pub positions: Tensor,
}

/// Builds the tree to verify from the candidates of each drafted position (DDTree,
/// arXiv 2604.12989): the prefixes of highest total log-probability, best first.
///
/// The score of candidate `r` at position `d` is `scores[d, r] - log_sum_exp[d]`, that
/// of a prefix their F64 sum, from the first position on. Among equal scores the
/// lexicographically smaller list of ranks goes first. A candidate is considered only
/// after its better sibling and its parent, whatever the scores say. Rows are numbered
/// in the order in which they are chosen.
///
/// With [`TreeLimits::CHAIN`] the most likely candidate of each of the first positions
/// comes before all others, in order of depth, then best first as ever; such a row
/// costs its place in the budget once. A candidate with an id outside the vocabulary,
/// or a score that is NaN or plus infinity, ends its position's list, and a position
/// with an empty list the tree's depth. Minus infinity is a score like any other.
///
/// Writes tokens, positions (`committed + depth`), tree and control block (`rows`,
/// `committed`, and all rows as logit rows). Row 0 is the pending token as the cursor
/// has it. A negative `committed`, or positions past 31 bits, fail the launch.
#[derive(Clone, Debug)]
pub struct TreeBuild {
    /// Read.
    pub cursor: Cursor,
    /// Read; values past what the tensors hold are cut to it, negative ones to 0.
    pub limits: TreeLimits,
    /// `[P, k]` I32: candidates per position, most likely first.
    pub ids: Tensor,
    /// `[P, k]` F32: their logits or log-probabilities, descending.
    pub scores: Tensor,
    /// `[P]` F32, subtracted; without it `scores` are log-probabilities.
    pub log_sum_exp: Option<Tensor>,
    /// Size of the vocabulary.
    pub vocab: usize,
    /// Written.
    pub control: Control,
    /// `[M]` I32, written.
    pub tokens: Tensor,
    /// `[M]` I32, written.
    pub positions: Tensor,
    /// Written.
    pub tree: TreeRows,
}

/// Follows the target's choices through the tree: from row 0 on, to the first child
/// (the lowest row) whose token is the target's choice after the row, until there is
/// none. That last choice becomes the next pending token. A row that does not come
/// after its parent is nobody's child. No rows at all fail the launch.
#[derive(Clone, Debug)]
pub struct TreeWalk {
    /// Control block of the verified rows.
    pub control: Control,
    /// `[M]` I32: the rows' tokens.
    pub tokens: Tensor,
    /// The tree.
    pub tree: TreeRows,
    /// `[M, 1]` I32: the target's choice after each row; negative for a row that has none
    /// (-1 when its logits are not finite), which ends the walk there.
    pub choices: Tensor,
    /// Written, words past the path's rows excepted.
    pub path: Path,
    /// `[4 + M]` I32, written: rows of the path, rows of the tree, the next pending
    /// token (or the negative word in its place), the largest of the tree's depths, then the tokens of the path, row
    /// 0's first.
    pub result: Tensor,
}

impl TreeWalk {
    /// Words before the path's tokens in `result`.
    pub const HEADER: usize = 4;
    /// Word index of the path's rows in `result`.
    pub const ACCEPTED: usize = 0;
    /// Word index of the tree's rows in `result`.
    pub const ROWS: usize = 1;
    /// Word index of the next pending token in `result`.
    pub const NEXT: usize = 2;
    /// Word index of the tree's largest depth in `result`.
    pub const DEPTH: usize = 3;
}

/// Moves the keys and values of the path's rows together: slot `committed + path[i]`
/// to slot `committed + i`. The slots of the rows after them then hold anything.
#[derive(Clone, Debug)]
pub struct KvCommit {
    /// Control block of the verified rows.
    pub control: Control,
    /// The accepted path.
    pub path: Path,
    /// The layer's cache.
    pub cache: KvPair,
}

/// Brings the state of a short convolution from before the verified rows to after the
/// path: the last `width - 1` inputs along it.
#[derive(Clone, Debug)]
pub struct ConvCommit {
    /// The accepted path.
    pub path: Path,
    /// The operation that verified the rows: its control block, `x` and `state` are used.
    pub conv: ShortConv,
}

/// Runs the path's rows through the delta rule and leaves the state after them, bit for
/// bit the state that single steps would leave.
#[derive(Clone, Debug)]
pub struct DeltaCommit {
    /// The accepted path.
    pub path: Path,
    /// The operation that verified the rows: its inputs and `state` are used, `out` and
    /// `tree` are not.
    pub delta: GatedDelta,
}

/// Moves the cursor past the path: `committed` becomes the control block's plus the
/// path's rows, `pending` the walk's next token. A path of no rows or of more than the
/// control block's fails the launch, as does a sum past 31 bits.
#[derive(Clone, Debug)]
pub struct Advance {
    /// Control block of the verified rows.
    pub control: Control,
    /// The accepted path.
    pub path: Path,
    /// `[4 + M]` I32 of the [`TreeWalk`].
    pub result: Tensor,
    /// Updated.
    pub cursor: Cursor,
}
