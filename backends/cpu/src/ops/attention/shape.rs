//! Sizes, and who computes what.

use std::ops::Range;

use foretoken::kernel::Attention;

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
#[derive(Clone, Copy)]
pub(super) struct Call {
    pub(super) rows: usize,
    pub(super) committed: usize,
    pub(super) block_rows: usize,
}

impl Call {
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

    /// Splits that the keys of a row reach into.
    pub(super) fn splits(&self, row: usize) -> usize {
        (self.committed + row + 1).div_ceil(SPLIT)
    }

    /// Keys of a split that a row sees.
    pub(super) fn visible(&self, row: usize, split: usize) -> usize {
        (self.committed + row + 1).saturating_sub(split * SPLIT).min(SPLIT)
    }

    /// Rows at the front of a block that see nothing of a split.
    pub(super) fn blind(&self, block: &Block, split: usize) -> usize {
        block.rows.clone().take_while(|&row| self.visible(row, split) == 0).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_see_themselves_and_what_is_before() {
        let call = Call { rows: 5, committed: 126, block_rows: 2 };
        let seen: Vec<_> = (0..3).map(|r| (call.visible(r, 0), call.visible(r, 1))).collect();
        assert_eq!(seen, [(127, 0), (128, 0), (128, 1)]);
        assert_eq!((0..3).map(|r| call.splits(r)).collect::<Vec<_>>(), [1, 1, 2]);
        assert_eq!(call.row_blocks(), 3);
        assert_eq!(call.block(2).rows, 4..5);
        assert_eq!((call.block(4).rows, call.block(4).head), (2..4, 1));
        assert_eq!((call.blind(&call.block(0), 1), call.blind(&call.block(1), 1)), (2, 0));
    }
}
