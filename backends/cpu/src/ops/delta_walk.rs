//! The order in which the delta rule visits a tree.
//!
//! Depth first, children in row order, on one copy of a slab of state. A row that is
//! its parent's only child goes on as in a chain: the parent's decay and write are
//! applied while the row is read. Below a row with several children the slab is first
//! brought up to date, so that a child only reads it, and kept aside only when a child
//! that goes on (and so changes it) has siblings still to come.

use super::ancestry::{Ancestry, MAX};

/// What to do next with a slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Take the slab past `row`, applying the decay and write of `before` on the way.
    Row { row: u8, before: Option<u8> },
    /// Apply the decay and write of `row`, the last one taken.
    Settle { row: u8 },
    /// Copy the slab to a place in the stash.
    Stash { place: u8 },
    /// Copy it back.
    Restore { place: u8 },
}

/// A row is taken once, after at most one restoring; settling and stashing are for rows
/// with several children, which fewer than half of all rows have.
const STEPS: usize = 3 * MAX;

/// Steps through a tree, the same for every slab.
pub(super) struct Walk {
    steps: [Step; STEPS],
    count: usize,
}

impl Walk {
    /// Places a stash needs for any tree of so many rows. Each one in use has two rows
    /// of its own, itself and a child to come, and below the last there are two more.
    pub(super) fn places(rows: usize) -> usize {
        rows.min(MAX).saturating_sub(2) / 2
    }

    pub(super) fn new(tree: &Ancestry) -> Self {
        let mut walk = Self { steps: [Step::Settle { row: 0 }; STEPS], count: 0 };
        if tree.rows() == 0 {
            return walk;
        }
        let mut children = [0u64; MAX];
        for row in 1..tree.rows() {
            if let Some(parent) = tree.parent(row) {
                children[parent] |= 1 << row;
            }
        }
        // Children still to visit; the rows' places in the stash; whether the slab has
        // changed since it was brought up to date with the row.
        let mut left = children;
        let (mut place, mut changed) = ([None; MAX], [false; MAX]);
        let mut places = 0u8;
        let (mut row, mut before) = (0, None);
        loop {
            walk.push(Step::Row { row: row as u8, before });
            if children[row].count_ones() > 1 {
                walk.push(Step::Settle { row: row as u8 });
            }
            let mut parent = row;
            while left[parent] == 0 {
                match tree.parent(parent) {
                    Some(above) => parent = above,
                    None => return walk,
                }
            }
            row = left[parent].trailing_zeros() as usize;
            left[parent] &= left[parent] - 1;
            before = Some(parent as u8);
            if children[parent].count_ones() > 1 {
                before = None;
                if let (Some(place), true) = (place[parent], changed[parent]) {
                    walk.push(Step::Restore { place });
                }
                changed[parent] = children[row] != 0;
                if left[parent] == 0 {
                    // Its last child: places further in are free by now.
                    places = place[parent].unwrap_or(places);
                } else if changed[parent] && place[parent].is_none() {
                    walk.push(Step::Stash { place: places });
                    place[parent] = Some(places);
                    places += 1;
                }
            }
        }
    }

    fn push(&mut self, step: Step) {
        self.steps[self.count] = step;
        self.count += 1;
    }

    /// The steps, in order.
    pub(super) fn steps(&self) -> &[Step] {
        &self.steps[..self.count]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tree(parents: &[usize]) -> Ancestry {
        let mut depths = vec![0; parents.len()];
        for row in 1..parents.len() {
            depths[row] = depths[parents[row]] + 1;
        }
        let node = |row| if row == 0 { (-1, 0) } else { (parents[row] as i32, depths[row]) };
        Ancestry::new(parents.len(), node).unwrap()
    }

    /// Follows the steps with lists of rows in place of slabs.
    fn check(parents: &[usize]) -> Vec<Step> {
        let tree = tree(parents);
        let walk = Walk::new(&tree);
        let path = |row: usize| {
            let mut path: Vec<usize> =
                std::iter::successors(tree.parent(row), |&row| tree.parent(row)).collect();
            path.reverse();
            path
        };
        let (mut slab, mut last) = (Vec::new(), None);
        let mut stash = vec![None; Walk::places(parents.len())];
        let mut seen = vec![false; parents.len()];
        for step in walk.steps() {
            match *step {
                Step::Row { row, before } => {
                    if let Some(before) = before {
                        assert_eq!(last, Some(before));
                        slab.push(usize::from(before));
                    }
                    assert_eq!(slab, path(row.into()), "{row} in {parents:?}");
                    assert!(!std::mem::replace(&mut seen[usize::from(row)], true));
                    last = Some(row);
                }
                Step::Settle { row } => {
                    assert_eq!(last, Some(row));
                    slab.push(row.into());
                }
                Step::Stash { place } => stash[usize::from(place)] = Some(slab.clone()),
                Step::Restore { place } => slab = stash[usize::from(place)].clone().unwrap(),
            }
        }
        assert!(seen.iter().all(|&seen| seen), "{parents:?}");
        walk.steps().to_vec()
    }

    #[test]
    fn a_chain_is_a_plain_loop() {
        for rows in [1, 2, 3, 64] {
            let parents: Vec<_> = (0..rows).map(|row: usize| row.saturating_sub(1)).collect();
            let row = |row: u8| Step::Row { row, before: row.checked_sub(1) };
            assert_eq!(check(&parents), (0..rows as u8).map(row).collect::<Vec<_>>());
        }
        assert_eq!(check(&[]), []);
    }

    #[test]
    fn nothing_is_kept_for_leaves() {
        let steps = check(&[0; 64]);
        let kept = |s: &&Step| matches!(s, Step::Stash { .. } | Step::Restore { .. });
        assert_eq!((steps.len(), steps.iter().find(kept)), (65, None));
        // Nor for a last child that goes on.
        assert_eq!(check(&[0, 0, 0, 2, 3]).iter().find(kept), None);
    }

    #[test]
    fn the_deepest_stash_is_as_deep_as_said() {
        // Each row of the spine has a second child that is visited after the spine.
        for rows in [4usize, 5, 6, 7, 63, 64] {
            let places = Walk::places(rows);
            let mut parents: Vec<_> = (0..places + 2).map(|row| row.saturating_sub(1)).collect();
            parents.extend((0..places).map(|row| places - 1 - row));
            assert!(parents.len() <= rows);
            let used = |s: &Step| if let Step::Stash { place } = s { *place } else { 0 };
            let deepest = check(&parents).iter().map(used).max();
            assert_eq!(deepest, Some(places as u8 - 1), "{rows} rows");
        }
    }

    #[test]
    fn all_small_trees() {
        for rows in 1..=7usize {
            for mut code in 0..(1..rows).product::<usize>() {
                let mut parents = vec![0];
                for row in 1..rows {
                    parents.push(code % row);
                    code /= row;
                }
                check(&parents);
            }
        }
    }

    proptest! {
        #[test]
        fn any_tree(draws in prop::collection::vec((0usize..64, 0usize..4), 0..64)) {
            let mut parents = vec![0];
            for (row, (any, near)) in (1..).zip(draws) {
                parents.push(if near == 0 { any % row } else { row - near.min(row) });
            }
            check(&parents);
        }
    }
}
