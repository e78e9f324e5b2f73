//! Bringing the rows of an accepted path together, column by column.

use std::ops::Range;

use super::ancestry::PathRows;
use crate::memory::{Plain, Span};

/// One range of columns of some memory in rows of `width`.
///
/// Workers share columns rather than rows: each row has to move before another takes
/// its place.
pub(super) struct Columns<T> {
    pub(super) memory: Span<T>,
    pub(super) width: usize,
    pub(super) mine: Range<usize>,
}

impl<T: Plain> Columns<T> {
    fn row(&self, row: usize) -> Range<usize> {
        let start = row * self.width;
        start + self.mine.start..start + self.mine.end
    }

    /// Moves the path's rows together: row `slot(path.row(i))` to row `slot(i)`.
    ///
    /// # Safety
    /// The columns belong to one worker, and `slot` takes different rows to different
    /// places.
    pub(super) unsafe fn compact(&self, path: &PathRows, slot: impl Fn(usize) -> usize) {
        for to in 0..path.count() {
            let from = path.row(to);
            // Rows of a path ascend from 0, so `from` is at or after `to`, and no row
            // is overwritten before it has moved.
            if from != to {
                let (from, to) = (self.row(slot(from)), self.row(slot(to)));
                // SAFETY: one worker's (caller), and two different rows.
                unsafe { self.memory.write(to).copy_from_slice(self.memory.read(from)) };
            }
        }
    }
}
