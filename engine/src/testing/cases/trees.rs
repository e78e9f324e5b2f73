//! Token trees for the cases of several operations.

use crate::kernel::{Path, TreeRows};
use crate::testing::rig::Rig;
use crate::testing::rng::Rng;

/// A tree by the parents of its rows; row 0 is the root.
#[derive(Clone, Debug)]
pub(in crate::testing) struct Tree {
    pub(in crate::testing) parents: Vec<usize>,
}

/// How trees may look.
#[derive(Clone, Copy, Debug)]
pub(in crate::testing) enum Kind {
    /// Each row follows the one before.
    Chain,
    /// All rows follow row 0.
    Star,
    /// Each row follows any row before.
    Random,
    /// Each row follows one of the last three: deep, with side branches.
    Deep,
}

impl Kind {
    pub(in crate::testing) const ALL: [Self; 4] =
        [Self::Chain, Self::Star, Self::Random, Self::Deep];
}

impl Tree {
    pub(in crate::testing) fn new(rng: &mut Rng, kind: Kind, rows: usize) -> Self {
        let mut parent = |row: usize| match kind {
            Kind::Chain => row.saturating_sub(1),
            Kind::Star => 0,
            Kind::Random => rng.below(row),
            Kind::Deep => row.saturating_sub(1 + rng.below(3)),
        };
        Self { parents: (0..rows).map(&mut parent).collect() }
    }

    pub(in crate::testing) fn rows(&self) -> usize {
        self.parents.len()
    }

    /// The rows from the root to a row.
    pub(in crate::testing) fn path(&self, row: usize) -> Vec<usize> {
        let above = |&row: &usize| (row > 0).then(|| self.parents[row]);
        let mut path: Vec<usize> = std::iter::successors(Some(row), above).collect();
        path.reverse();
        path
    }

    pub(in crate::testing) fn depth(&self, row: usize) -> usize {
        self.path(row).len() - 1
    }

    /// The tree on the device, with room for `capacity` rows.
    pub(in crate::testing) fn on_device(
        &self,
        rig: &mut Rig<'_>,
        capacity: usize,
    ) -> crate::Result<TreeRows> {
        let parent = |row: usize| if row == 0 { -1 } else { self.parents[row] as i32 };
        let parents: Vec<i32> = (0..self.rows()).map(parent).collect();
        let depths: Vec<i32> = (0..self.rows()).map(|row| self.depth(row) as i32).collect();
        let mask = |row| self.path(row).iter().fold(0u64, |mask, row| mask | 1 << row);
        let halves = |row| [mask(row) as i32, (mask(row) >> 32) as i32];
        let masks: Vec<i32> = (0..self.rows()).flat_map(halves).collect();
        Ok(TreeRows {
            parents: rig.i32("parents", &[capacity], &parents)?,
            depths: rig.i32("depths", &[capacity], &depths)?,
            masks: rig.i32("masks", &[capacity, 2], &masks)?,
        })
    }
}

/// A path on the device, with room for `capacity` rows.
pub(in crate::testing) fn path_on_device(
    rig: &mut Rig<'_>,
    path: &[usize],
    capacity: usize,
) -> crate::Result<Path> {
    let words = std::iter::once(path.len()).chain(path.iter().copied());
    let words: Vec<i32> = words.map(|w| w as i32).collect();
    Ok(Path(rig.i32("path", &[1 + capacity], &words)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_comes_after_its_parent() {
        let mut rng = Rng::new(1, "trees");
        for kind in Kind::ALL {
            for rows in [1, 2, 64] {
                let tree = Tree::new(&mut rng, kind, rows);
                assert_eq!(tree.rows(), rows);
                for row in 0..rows {
                    let path = tree.path(row);
                    assert!(path.is_sorted_by(|a, b| a < b) && path.last() == Some(&row));
                    assert_eq!((path[0], tree.depth(row)), (0, path.len() - 1));
                }
            }
        }
        assert_eq!(Tree::new(&mut rng, Kind::Chain, 5).path(4), [0, 1, 2, 3, 4]);
        assert_eq!(Tree::new(&mut rng, Kind::Star, 5).path(4), [0, 4]);
    }
}
