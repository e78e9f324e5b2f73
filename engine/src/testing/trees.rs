//! Trees and paths for cases: drawn on the host, put on the device.

use super::rig::Rig;
use super::rng::Rng;
use crate::kernel::{Path, TreeRows};

/// Row counts of trees, around the edges of tiles and up to the most there may be.
pub(super) const TREE_ROWS: [usize; 11] = [1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 64];

/// What a tree looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Each row after the one before.
    Chain,
    /// All rows below row 0.
    Star,
    /// Each row below one of the first three.
    Bush,
    /// A chain each of whose rows has a leaf besides, in rows of its own in between.
    Caterpillar,
    /// A chain of half the rows, then a child more for each of them from the end on: a
    /// walk in row order comes back to every one of them.
    Deep,
    /// Each row below one of the last three: long paths with gaps of any size.
    Winding,
    /// Parents drawn from all earlier rows or, as often, from the last three.
    Random,
}

impl Kind {
    pub(super) const ALL: [Self; 7] = [
        Self::Chain,
        Self::Star,
        Self::Bush,
        Self::Caterpillar,
        Self::Deep,
        Self::Winding,
        Self::Random,
    ];
}

/// A tree: the parent of each row, -1 for row 0.
#[derive(Clone, Debug)]
pub(super) struct Tree(pub(super) Vec<i32>);

impl Tree {
    pub(super) fn new(rng: &mut Rng, kind: Kind, rows: usize) -> Self {
        let spine = rows.div_ceil(2);
        let parent = |row: usize| match kind {
            Kind::Chain => row - 1,
            Kind::Star => 0,
            Kind::Bush => rng.below(row.min(3)),
            Kind::Caterpillar => (row - 1) / 2 * 2,
            Kind::Deep if row < spine => row - 1,
            Kind::Deep => rows - 1 - row,
            Kind::Random if rng.below(2) == 0 => rng.below(row),
            Kind::Random | Kind::Winding => row - 1 - rng.below(row.min(3)),
        };
        Self(std::iter::once(-1).chain((1..rows).map(parent).map(|row| row as i32)).collect())
    }

    pub(super) fn rows(&self) -> usize {
        self.0.len()
    }

    /// The parent of a row; `None` for row 0.
    pub(super) fn parent(&self, row: usize) -> Option<usize> {
        usize::try_from(self.0[row]).ok()
    }

    /// A row and its ancestors, from row 0 down.
    pub(super) fn path(&self, row: usize) -> Vec<usize> {
        let mut path: Vec<_> = std::iter::successors(Some(row), |&row| self.parent(row)).collect();
        path.reverse();
        path
    }

    /// The tree on the device, with room for `capacity` rows.
    pub(super) fn on_device(&self, rig: &mut Rig<'_>, capacity: usize) -> crate::Result<TreeRows> {
        let paths: Vec<_> = (0..self.rows()).map(|row| self.path(row)).collect();
        let depths: Vec<i32> = paths.iter().map(|path| path.len() as i32 - 1).collect();
        let mask = |path: &Vec<usize>| path.iter().fold(0u64, |mask, row| mask | 1 << row);
        let words = |mask: u64| [mask as u32 as i32, (mask >> 32) as u32 as i32];
        let masks: Vec<i32> = paths.iter().map(mask).flat_map(words).collect();
        Ok(TreeRows {
            parents: rig.i32("parents", &[capacity], &self.0)?,
            depths: rig.i32("depths", &[capacity], &depths)?,
            masks: rig.i32("masks", &[capacity, 2], &masks)?,
        })
    }
}

/// A path on the device, with room for `capacity` rows.
pub(super) fn path_on_device(
    rig: &mut Rig<'_>,
    rows: &[usize],
    capacity: usize,
) -> crate::Result<Path> {
    let words: Vec<i32> = std::iter::once(&rows.len()).chain(rows).map(|&x| x as i32).collect();
    Ok(Path(rig.i32("path", &[1 + capacity], &words)?))
}

/// `count` of `rows` rows in ascending order, row 0 among them.
pub(super) fn ascending(rng: &mut Rng, rows: usize, count: usize) -> Vec<usize> {
    let mut left = count - 1;
    let mut keep = |row: &usize| {
        let kept = *row == 0 || rng.below(rows - row) < left;
        left -= usize::from(kept && *row > 0);
        kept
    };
    (0..rows).filter(|row| keep(row)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_have_every_row_after_its_parent() {
        let mut rng = Rng::new(0, "trees");
        for kind in Kind::ALL {
            for rows in 1..=64 {
                let tree = Tree::new(&mut rng, kind, rows);
                assert_eq!((tree.rows(), tree.parent(0)), (rows, None));
                for row in 1..rows {
                    let (parent, path) = (tree.parent(row).unwrap(), tree.path(row));
                    assert!(parent < row, "{kind:?} of {rows}: {tree:?}");
                    assert_eq!(path, [&tree.path(parent)[..], &[row]].concat());
                }
            }
        }
        assert_eq!(Tree::new(&mut rng, Kind::Chain, 5).path(4), [0, 1, 2, 3, 4]);
        assert_eq!(Tree::new(&mut rng, Kind::Star, 5).path(4), [0, 4]);
        assert_eq!(Tree::new(&mut rng, Kind::Deep, 7).0, [-1, 0, 1, 2, 2, 1, 0]);
        let tree = Tree::new(&mut rng, Kind::Caterpillar, 6);
        assert_eq!((tree.0.as_slice(), tree.path(5)), (&[-1, 0, 0, 2, 2, 4][..], vec![0, 2, 4, 5]));
    }

    #[test]
    fn ascending_rows_are_as_many_as_asked_for() {
        let mut rng = Rng::new(0, "paths");
        for rows in 1..20 {
            for count in 1..=rows {
                let path = ascending(&mut rng, rows, count);
                assert_eq!((path.len(), path[0]), (count, 0));
                assert!(path.is_sorted_by(|a, b| a < b) && path[count - 1] < rows);
            }
        }
    }
}
