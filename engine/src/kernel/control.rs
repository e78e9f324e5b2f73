//! What changes from step to step, kept in device memory.

use crate::tensor::Tensor;

/// The control block of a step: an `[4]` I32 tensor every operation reads.
///
/// Words: 0 `rows`, the live rows of this call (1 ..= the capacity recorded);
/// 1 `committed`, tokens whose state is final, so row `i` owns cache slot
/// `committed + i`; 2 `logit_first` and 3 `logit_rows`, the rows the head runs on.
/// Rows past `rows` are neither read nor written by any operation.
#[derive(Clone, Debug)]
pub struct Control(pub Tensor);

impl Control {
    /// Words in the block.
    pub const WORDS: usize = 4;
    /// Word index of the live row count.
    pub const ROWS: usize = 0;
    /// Word index of the committed token count.
    pub const COMMITTED: usize = 1;
    /// Word index of the first row the head runs on.
    pub const LOGIT_FIRST: usize = 2;
    /// Word index of the number of rows the head runs on.
    pub const LOGIT_ROWS: usize = 3;
}

/// Which rows an operation covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RowSet {
    /// Rows `0..rows`, in place.
    All,
    /// Input rows `logit_first .. logit_first + logit_rows`, written to output rows
    /// from 0.
    Logits,
    /// Rows `0..logit_rows` of both sides (after an operation over `Logits`).
    LogitsCompact,
}

/// Which of the two bit-reproducible regimes a call belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Regime {
    /// 1 to 64 rows; a row's bits do not depend on the other rows.
    Step,
    /// Prompt chunks on the absolute 64-token grid; a row's bits do not depend on
    /// the chunk size.
    Prefill,
}
