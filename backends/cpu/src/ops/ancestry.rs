//! Trees and accepted paths as the kernels that compute with them read them: checked
//! copies on the stack, made anew in each launch, so that nothing in device memory can
//! lead out of bounds.

use foretoken::device::DeviceFault;
use foretoken::kernel::{Path, TreeRows};
use foretoken::tensor::Tensor;

use super::Bind;
use crate::memory::View;
use crate::pool::Worker;

/// Most rows of a tree.
pub(super) const MAX: usize = TreeRows::MAX;
/// The parent of row 0.
const NONE: u8 = u8::MAX;

/// The parents of rows that form a tree.
pub(super) struct Ancestry {
    parents: [u8; MAX],
    rows: usize,
}

impl Ancestry {
    /// Checks that each of up to [`MAX`] rows comes after its parent, one level below
    /// it. `node` gives the parent and the depth of a row.
    pub(super) fn new(
        rows: usize,
        node: impl Fn(usize) -> (i32, i32),
    ) -> Result<Self, &'static str> {
        let (mut parents, mut depths) = ([NONE; MAX], [0; MAX]);
        for row in 0..rows.min(MAX) {
            let (parent, depth) = node(row);
            if row == 0 {
                if (parent, depth) != (-1, 0) {
                    return Err("row 0 of a tree must be its root");
                }
                continue;
            }
            let above = usize::try_from(parent).ok().filter(|&above| above < row);
            let above = above.ok_or("the parent of a tree row must be an earlier row")?;
            // Fits: below MAX, and depths below MAX with it.
            parents[row] = above as u8;
            depths[row] = depths[above] + 1;
            if depth != depths[row] {
                return Err("a tree row must lie one level below its parent");
            }
        }
        Ok(Self { parents, rows: rows.min(MAX) })
    }

    /// Number of rows.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// The parent of a row; `None` for row 0.
    #[inline(always)]
    pub(super) fn parent(&self, row: usize) -> Option<usize> {
        let parent = self.parents[row];
        (parent != NONE).then_some(usize::from(parent))
    }

    /// True when the row's parent is the row before it, as all along a chain.
    #[inline(always)]
    pub(super) fn follows(&self, row: usize) -> bool {
        self.parent(row).is_some_and(|parent| parent + 1 == row)
    }
}

/// The tensors of a tree.
pub(super) struct Tree {
    parents: View<i32>,
    depths: View<i32>,
}

impl Tree {
    /// Binds a tree for a call of up to `rows` rows that writes `out`.
    pub(super) fn new(
        bind: &Bind<'_>,
        tree: &TreeRows,
        rows: usize,
        out: &Tensor,
    ) -> Result<Self, DeviceFault> {
        let [parents] = bind.dims(&tree.parents, "parents must be [M]")?;
        let [depths] = bind.dims(&tree.depths, "depths must be [M]")?;
        let masks = bind.dims(&tree.masks, "masks must be [M, 2]")?;
        let same = parents == depths && masks == [parents, 2];
        bind.ensure(same, "parents, depths and masks differ in rows")?;
        bind.ensure(parents <= MAX, "a tree has at most 64 rows")?;
        bind.ensure(rows <= parents, "the tree has fewer rows than the operands")?;
        bind.apart(&[out], &[&tree.parents, &tree.depths, &tree.masks])?;
        // Nothing here reads the masks, but they are part of the operand.
        bind.view::<i32>(&tree.masks)?;
        Ok(Self { parents: bind.view(&tree.parents)?, depths: bind.view(&tree.depths)? })
    }

    /// The tree of the live rows; a malformed one fails the launch.
    pub(super) fn read(&self, worker: &Worker<'_>, rows: usize) -> Ancestry {
        let node = |row| {
            // SAFETY: inputs of an operation are not written while it runs.
            unsafe { (self.parents.value(row), self.depths.value(row)) }
        };
        Ancestry::new(rows, node).unwrap_or_else(|what| worker.refuse(what))
    }
}

/// Rows of an accepted path: row 0 first, ascending.
pub(super) struct PathRows {
    rows: [u8; MAX],
    count: usize,
}

impl PathRows {
    /// Checks that the words name rows below `live` in ascending order from row 0 on.
    /// Word 0 is how many they are, of at most `capacity`.
    pub(super) fn new(
        capacity: usize,
        live: usize,
        word: impl Fn(usize) -> i32,
    ) -> Result<Self, &'static str> {
        let count = usize::try_from(word(0)).unwrap_or(0);
        if count == 0 || count > capacity.min(MAX) {
            return Err("a path must have at least one row, and no more than it holds");
        }
        let mut rows = [0; MAX];
        let mut next = 0;
        for (i, row) in rows.iter_mut().take(count).enumerate() {
            let at = usize::try_from(word(1 + i)).ok().filter(|&at| at < live.min(MAX));
            let at = at.ok_or("a path names a row that is not live")?;
            if at < next || (i == 0 && at != 0) {
                return Err("the rows of a path must ascend from row 0");
            }
            // Fits: below MAX.
            *row = at as u8;
            next = at + 1;
        }
        Ok(Self { rows, count })
    }

    /// Number of rows, at least 1.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Row `i` of the path.
    pub(super) fn row(&self, i: usize) -> usize {
        usize::from(self.rows[..self.count][i])
    }
}

/// The tensor of a path.
pub(super) struct Accepted {
    words: View<i32>,
}

impl Accepted {
    pub(super) fn new(bind: &Bind<'_>, path: &Path) -> Result<Self, DeviceFault> {
        let [words] = bind.dims(&path.0, "path must be [1 + M]")?;
        let fits = (2..=1 + MAX).contains(&words);
        bind.ensure(fits, "path must be [1 + M] with M from 1 to 64")?;
        Ok(Self { words: bind.view(&path.0)? })
    }

    /// Most rows it can name.
    pub(super) fn capacity(&self) -> usize {
        self.words.len() - 1
    }

    /// The path's rows, of which `live` were computed; a malformed path fails the
    /// launch.
    pub(super) fn read(&self, worker: &Worker<'_>, live: usize) -> PathRows {
        // SAFETY: inputs of an operation are not written while it runs.
        let word = |at| unsafe { self.words.value(at) };
        let path = PathRows::new(self.capacity(), live, word);
        path.unwrap_or_else(|what| worker.refuse(what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(nodes: &[(i32, i32)]) -> Result<Ancestry, &'static str> {
        Ancestry::new(nodes.len(), |row| nodes[row])
    }

    #[test]
    fn trees_are_read_and_malformed_ones_refused() {
        let good = tree(&[(-1, 0), (0, 1), (0, 1), (2, 2), (3, 3)]).unwrap();
        assert_eq!(good.rows(), 5);
        let parents: Vec<_> = (0..5).map(|row| good.parent(row)).collect();
        assert_eq!(parents, [None, Some(0), Some(0), Some(2), Some(3)]);
        let follows: Vec<_> = (0..5).map(|row| good.follows(row)).collect();
        assert_eq!(follows, [false, true, false, true, true]);
        assert_eq!(tree(&[]).unwrap().rows(), 0);
        for (bad, what) in [
            (&[(0, 0)][..], "root"),
            (&[(-1, 1)], "root"),
            (&[(-1, 0), (1, 1)], "earlier"),
            (&[(-1, 0), (2, 1), (0, 1)], "earlier"),
            (&[(-1, 0), (-1, 0)], "earlier"),
            (&[(-1, 0), (i32::MIN, 1)], "earlier"),
            (&[(-1, 0), (i32::MAX, 1)], "earlier"),
            (&[(-1, 0), (0, 2)], "level"),
            (&[(-1, 0), (0, 1), (1, 1)], "level"),
            (&[(-1, 0), (0, -1)], "level"),
        ] {
            let said = tree(bad).err().unwrap();
            assert!(said.contains(what), "{bad:?}: {said}");
        }
    }

    #[test]
    fn paths_are_read_and_malformed_ones_refused() {
        let path = |words: &[i32], live| PathRows::new(words.len() - 1, live, |i| words[i]);
        let good = path(&[3, 0, 2, 5, -7], 6).unwrap();
        assert_eq!((good.count(), good.row(0), good.row(1), good.row(2)), (3, 0, 2, 5));
        for (bad, live, what) in [
            (&[0, 0][..], 4, "at least one"),
            (&[-1, 0], 4, "at least one"),
            (&[i32::MIN, 0], 4, "at least one"),
            (&[2, 0], 4, "holds"),
            (&[i32::MAX, 0], 4, "holds"),
            (&[1, 1], 4, "ascend from row 0"),
            (&[2, 0, 0], 4, "ascend"),
            (&[3, 0, 3, 2], 4, "ascend"),
            (&[2, 0, 4], 4, "live"),
            (&[2, 0, -1], 4, "live"),
            (&[2, 0, i32::MAX], 4, "live"),
            (&[1, 0], 0, "live"),
        ] {
            let said = path(bad, live).err().unwrap();
            assert!(said.contains(what), "{bad:?}: {said}");
        }
    }
}
