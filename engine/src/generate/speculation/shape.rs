//! Trees as the host sees them: how large, what came of one, who its children are.

use std::time::Duration;

use crate::kernel::TreeRows;

/// How large the next tree may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeShape {
    /// Most drafted rows.
    pub budget: usize,
    /// Largest depth.
    pub depth: usize,
    /// Rows of the most likely chain that come before all others.
    pub chain: usize,
}

impl TreeShape {
    /// A chain of up to `len` tokens.
    pub fn chain(len: usize) -> Self {
        Self { budget: len, depth: len, chain: len }
    }

    /// The best tree of up to `budget` rows.
    pub fn tree(budget: usize) -> Self {
        Self { budget, depth: usize::MAX, chain: 0 }
    }

    /// The same, no deeper than `depth`.
    pub fn at_most(self, depth: usize) -> Self {
        let depth = self.depth.min(depth);
        let budget = if depth == 0 { 0 } else { self.budget };
        Self { budget, depth, chain: self.chain.min(depth) }
    }
}

/// What one speculative step did.
#[derive(Clone, Debug, Default)]
pub struct SpeculativeStep {
    /// Positions the drafter proposed.
    pub positions: usize,
    /// Rows of the tree, the pending token's among them.
    pub rows: usize,
    /// Largest depth of the tree.
    pub depth: usize,
    /// Rows of the accepted path.
    pub accepted: usize,
    /// The path's tokens after the pending one, then the next pending token.
    pub tokens: Vec<u32>,
    /// False when the logits after the path's last row were not finite: then there is no
    /// next pending token among `tokens`.
    pub is_finite: bool,
    /// The path's last row, when the device could not sample the token after it: then that
    /// is the caller's to choose, and not among `tokens`.
    pub undecided: Option<usize>,
    /// Time of the draft.
    pub draft: Duration,
    /// Time of the verification.
    pub verify: Duration,
    /// Time of the commit.
    pub commit: Duration,
}

/// The last verified tree, for choices made on the host.
#[derive(Default)]
pub(in crate::generate) struct TreeOnHost {
    pub(super) control: [i32; 4],
    pub(super) tokens: Vec<i32>,
    pub(super) parents: Vec<i32>,
    pub(super) choices: Vec<i32>,
    pub(super) live: usize,
}

impl TreeOnHost {
    /// Rows of the tree.
    pub(in crate::generate) fn len(&self) -> usize {
        self.live
    }

    /// Largest depth of a row.
    pub(in crate::generate) fn depth(&self) -> usize {
        let mut depths = [0; TreeRows::MAX];
        for row in 1..self.live.min(TreeRows::MAX) {
            let parent = self.parents.get(row).and_then(|&p| usize::try_from(p).ok());
            depths[row] = 1 + parent.filter(|&p| p < row).map_or(0, |p| depths[p]);
        }
        depths.into_iter().max().unwrap_or(0)
    }

    /// The first child of `row` that holds `token`.
    pub(in crate::generate) fn child(&self, row: usize, token: u32) -> Option<usize> {
        let pairs = self.parents.iter().zip(&self.tokens).take(self.live);
        let mut rows = pairs.enumerate().skip(row + 1);
        rows.find(|(_, (p, t))| usize::try_from(**p) == Ok(row) && u32::try_from(**t) == Ok(token))
            .map(|(child, _)| child)
    }

    /// Whether these rows lead from row 0 down, each the parent of the next.
    pub(in crate::generate) fn is_path(&self, path: &[i32]) -> bool {
        let parent = |row: &i32| self.parents.get(*row as usize).copied();
        path.first() == Some(&0)
            && path.iter().all(|&row| usize::try_from(row).is_ok_and(|r| r < self.live))
            && path.windows(2).all(|pair| parent(&pair[1]) == Some(pair[0]))
    }

    /// Whether the logits of a row are finite.
    pub(in crate::generate) fn is_finite(&self, row: usize) -> bool {
        self.choices.get(row).is_some_and(|&c| c >= 0)
    }
}
