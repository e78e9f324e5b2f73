//! Sizes, and who computes what.

use std::ops::Range;

use foretoken::kernel::Attention;

use super::sight::Sight;
use super::split::Room;

const SPLIT: usize = Attention::SPLIT;

/// Sizes fixed when the kernel is prepared.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) rows: usize,
    pub(super) context: usize,
    pub(super) kv_heads: usize,
    /// Query heads per key-value head.
    pub(super) group: usize,
    pub(super) q_stride: usize,
    pub(super) head_dim: usize,
    /// Rows in a block.
    pub(super) block_rows: usize,
    /// Most work items in a wave of splits.
    pub(super) wave_items: usize,
}

impl Shape {
    pub(super) fn block_queries(&self) -> usize {
        self.block_rows * self.group
    }

    /// Floats of what a split leaves: sums, then a maximum and a sum for each query.
    pub(super) fn record(&self) -> usize {
        self.block_queries() * (self.head_dim + 2)
    }

    /// Floats a worker has to itself: room for a split, then a block's sums.
    pub(super) fn private(&self) -> usize {
        Room::floats(self.head_dim) + self.block_queries() * self.head_dim
    }

    /// Where the waves' running statistics start, after all workers' own memory.
    pub(super) fn stats_at(&self, workers: usize) -> usize {
        workers * self.private()
    }

    /// Where the records of a wave start.
    pub(super) fn records_at(&self, workers: usize) -> usize {
        self.stats_at(workers) + self.wave_items * 2 * self.block_queries()
    }

    /// Floats of scratch in all.
    pub(super) fn scratch(&self, workers: usize) -> Option<usize> {
        let stats = self.wave_items.checked_mul(2 * self.block_queries())?;
        let records = self.wave_items.checked_mul(self.record())?;
        workers.checked_mul(self.private())?.checked_add(stats)?.checked_add(records)
    }
}

/// Queries of one key-value head for some rows.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) rows: Range<usize>,
    pub(super) head: usize,
}

/// One launch: what all workers agree on.
pub(super) struct Call<'a> {
    pub(super) rows: usize,
    pub(super) committed: usize,
    pub(super) block_rows: usize,
    pub(super) sight: Sight<'a>,
}

impl Call<'_> {
    /// Blocks of rows, for each key-value head.
    pub(super) fn row_blocks(&self) -> usize {
        self.rows.div_ceil(self.block_rows)
    }

    /// A block by its number.
    pub(super) fn block(&self, number: usize) -> Block {
        let start = number % self.row_blocks() * self.block_rows;
        let rows = start..self.rows.min(start + self.block_rows);
        Block { rows, head: number / self.row_blocks() }
    }

    /// Positions that a row sees.
    fn span(&self, row: usize) -> Range<usize> {
        self.sight.span(row, self.rows, self.committed)
    }

    /// Splits that the keys of a row lie in.
    pub(super) fn splits(&self, row: usize) -> Range<usize> {
        let span = self.span(row);
        span.start / SPLIT..span.end.div_ceil(SPLIT)
    }

    /// Splits that the keys of some rows lie in.
    pub(super) fn splits_of(&self, rows: Range<usize>) -> Range<usize> {
        let both = |a: Range<usize>, b: Range<usize>| a.start.min(b.start)..a.end.max(b.end);
        rows.map(|row| self.splits(row)).reduce(both).unwrap_or(0..0)
    }

    /// Keys of a split that a row sees, counted from the start of the split.
    pub(super) fn seen(&self, row: usize, split: usize) -> Range<usize> {
        let (span, first) = (self.span(row), split * SPLIT);
        let within = |position: usize| position.saturating_sub(first).min(SPLIT);
        within(span.start)..within(span.end)
    }

    /// Keys of a split that are found by their positions alone.
    pub(super) fn shared(&self, split: usize) -> usize {
        self.sight.shared(split, self.committed)
    }

    /// The rows whose keys a row sees in a split after the shared ones.
    pub(super) fn own(&self, row: usize, split: usize) -> &[u8] {
        let start = (split * SPLIT).saturating_sub(self.committed);
        let path = self.sight.path(row);
        &path[start.min(path.len())..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_see_themselves_and_what_is_before() {
        let call = Call { rows: 5, committed: 126, block_rows: 2, sight: Sight::Causal };
        let seen: Vec<_> = (0..3).map(|r| (call.seen(r, 0).end, call.seen(r, 1).end)).collect();
        assert_eq!(seen, [(127, 0), (128, 0), (128, 1)]);
        let splits: Vec<_> = (0..3).map(|r| call.splits(r)).collect();
        assert_eq!(splits, [0..1, 0..1, 0..2]);
        assert_eq!((call.splits_of(0..2), call.splits_of(1..5)), (0..1, 0..2));
        assert_eq!(call.row_blocks(), 3);
        assert_eq!(call.block(2).rows, 4..5);
        assert_eq!((call.block(4).rows, call.block(4).head), (2..4, 1));
    }

    #[test]
    fn a_window_leaves_out_splits_at_both_ends() {
        let sight = Sight::Block { window: Some(130), causal: true };
        let call = Call { rows: 200, committed: 250, block_rows: 2, sight };
        // Position 250 sees 121 to 250, position 449 sees 320 to 449.
        assert_eq!((call.splits(0), call.splits(199)), (0..2, 2..4));
        assert_eq!(
            (call.seen(0, 0), call.seen(0, 1), call.seen(199, 3)),
            (121..128, 0..123, 0..66)
        );
        assert_eq!(call.splits_of(0..200), 0..4);
    }
}
