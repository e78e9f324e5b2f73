//! What each row sees.

use std::ops::Range;

use foretoken::kernel::Attention;

use crate::ops::ancestry::{Ancestry, MAX};

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
    rows: [[u8; MAX]; MAX],
    lengths: [u8; MAX],
}

impl Paths {
    fn of(&self, row: usize) -> &[u8] {
        &self.rows[row][..usize::from(self.lengths[row])]
    }

    pub(super) fn new(tree: &Ancestry) -> Self {
        let mut paths = Self { rows: [[0; MAX]; MAX], lengths: [0; MAX] };
        for row in 0..tree.rows() {
            let above = match tree.parent(row) {
                Some(parent) => {
                    paths.rows[row] = paths.rows[parent];
                    paths.lengths[parent]
                }
                None => 0,
            };
            // Fits: below MAX. At most `row` rows are above.
            paths.rows[row][usize::from(above)] = row as u8;
            paths.lengths[row] = above + 1;
        }
        paths
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_from_the_first_row() {
        let parents = [-1, 0, 0, 1, 2, 3];
        let depths = [0, 1, 1, 2, 2, 3];
        let tree = Ancestry::new(6, |row| (parents[row], depths[row])).unwrap();
        let paths = Paths::new(&tree);
        assert_eq!(paths.of(0), [0]);
        assert_eq!(paths.of(4), [0, 2, 4]);
        assert_eq!(paths.of(5), [0, 1, 3, 5]);
        let chain = Ancestry::new(64, |row| (row as i32 - 1, row as i32)).unwrap();
        let paths = Paths::new(&chain);
        assert_eq!(paths.of(63), (0..64).collect::<Vec<u8>>());
        let sight = Sight::Tree(&paths);
        assert_eq!(sight.span(3, 64, 100), 0..104);
        assert_eq!((sight.shared(0, 130), sight.shared(1, 130), sight.shared(2, 130)), (128, 2, 0));
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
