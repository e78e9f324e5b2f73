//! What each row sees.

use std::ops::Range;

use foretoken::kernel::{Attention, TreeRows};

use crate::memory::View;
use crate::pool::Worker;

const SPLIT: usize = Attention::SPLIT;

/// Logical positions that the rows of a launch see: an interval for each.
pub(super) enum Sight<'a> {
    Causal,
    Tree(&'a Paths),
    Block { window: Option<usize>, causal: bool },
}

impl Sight<'_> {
    /// Positions that a row sees, of `rows` rows after `committed` tokens.
    pub(super) fn span(&self, row: usize, rows: usize, committed: usize) -> Range<usize> {
        let own = committed + row;
        match self {
            Self::Causal => 0..own + 1,
            Self::Tree(paths) => 0..committed + paths.of(row).len(),
            Self::Block { window, causal } => {
                let window = window.unwrap_or(usize::MAX);
                let end = if *causal { own + 1 } else { committed + rows };
                (own + 1).saturating_sub(window)..end.min(own.saturating_add(window))
            }
        }
    }

    /// Keys of a split that lie in the slots of their positions for every row; those
    /// after them are found through [`Sight::path`].
    pub(super) fn shared(&self, split: usize, committed: usize) -> usize {
        match self {
            Self::Tree(_) => committed.saturating_sub(split * SPLIT).min(SPLIT),
            _ => SPLIT,
        }
    }

    /// The rows of the call whose keys have the positions `committed` and up, as one of
    /// them sees it.
    pub(super) fn path(&self, row: usize) -> &[u8] {
        match self {
            Self::Tree(paths) => paths.of(row),
            _ => &[],
        }
    }
}

/// The path to each row of a tree, the row itself last.
pub(super) struct Paths {
    rows: [[u8; TreeRows::MAX]; TreeRows::MAX],
    lengths: [u8; TreeRows::MAX],
}

impl Paths {
    fn of(&self, row: usize) -> &[u8] {
        &self.rows[row][..usize::from(self.lengths[row])]
    }

    /// Reads the first rows of a tree, at most [`TreeRows::MAX`]. Words that are not a
    /// tree fail the launch.
    pub(super) fn read(
        worker: &Worker<'_>,
        parents: &View<i32>,
        depths: &View<i32>,
        rows: usize,
    ) -> Self {
        // SAFETY: inputs of an operation are not written while it runs.
        let (parents, depths) = unsafe { (parents.read(0..rows), depths.read(0..rows)) };
        let paths = Self::of_tree(parents, depths);
        paths.unwrap_or_else(|| worker.refuse("the rows are not a tree in order"))
    }

    fn of_tree(parents: &[i32], depths: &[i32]) -> Option<Self> {
        let mut paths =
            Self { rows: [[0; TreeRows::MAX]; TreeRows::MAX], lengths: [0; TreeRows::MAX] };
        for (row, (&parent, &depth)) in parents.iter().zip(depths).enumerate() {
            let above = match usize::try_from(parent) {
                Ok(parent) if parent < row => {
                    paths.rows[row] = paths.rows[parent];
                    usize::from(paths.lengths[parent])
                }
                Err(_) if parent == -1 && row == 0 => 0,
                _ => return None,
            };
            if usize::try_from(depth) != Ok(above) {
                return None;
            }
            // At most `row` rows are above.
            paths.rows[row][above] = u8::try_from(row).ok()?;
            paths.lengths[row] = u8::try_from(above + 1).ok()?;
        }
        Some(paths)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_from_the_first_row() {
        let paths = Paths::of_tree(&[-1, 0, 0, 1, 2, 3], &[0, 1, 1, 2, 2, 3]).unwrap();
        assert_eq!(paths.of(0), [0]);
        assert_eq!(paths.of(4), [0, 2, 4]);
        assert_eq!(paths.of(5), [0, 1, 3, 5]);
        let chain: Vec<i32> = (-1..63).collect();
        let depths: Vec<i32> = (0..64).collect();
        let paths = Paths::of_tree(&chain, &depths).unwrap();
        assert_eq!(paths.of(63), (0..64).collect::<Vec<u8>>());
        let sight = Sight::Tree(&paths);
        assert_eq!(sight.span(3, 64, 100), 0..104);
        assert_eq!((sight.shared(0, 130), sight.shared(1, 130), sight.shared(2, 130)), (128, 2, 0));
    }

    #[test]
    fn what_is_no_tree_is_refused() {
        let refused: [(&[i32], &[i32]); 9] = [
            (&[0], &[0]),
            (&[-2], &[0]),
            (&[-1], &[1]),
            (&[-1, 1], &[0, 1]),
            (&[-1, -1], &[0, 0]),
            (&[-1, 0], &[0, 2]),
            (&[-1, 0], &[0, -1]),
            (&[-1, 2, 0], &[0, 1, 1]),
            (&[-1, 0, i32::MAX], &[0, 1, 1]),
        ];
        for (parents, depths) in refused {
            assert!(Paths::of_tree(parents, depths).is_none(), "{parents:?} {depths:?}");
        }
    }

    #[test]
    fn windows_are_intervals() {
        let span = |window, causal, row| Sight::Block { window, causal }.span(row, 4, 10);
        assert_eq!(span(None, false, 1), 0..14);
        assert_eq!(span(None, true, 1), 0..12);
        assert_eq!(span(Some(1), false, 1), 11..12);
        assert_eq!(span(Some(3), false, 1), 9..14);
        assert_eq!(span(Some(2), false, 1), 10..13);
        assert_eq!(span(Some(3), true, 1), 9..12);
        assert_eq!(span(Some(usize::MAX), false, 1), 0..14);
    }
}
