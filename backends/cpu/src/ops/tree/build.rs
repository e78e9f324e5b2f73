//! [`TreeBuild`] on device memory.

use foretoken::device::DeviceFault;
use foretoken::kernel::{Cursor, KernelKey, TreeBuild, TreeLimits, TreeRows};

use super::search::{Limits, Tree};
use super::{Solo, block, capacity, control, cursor, key};
use crate::memory::View;
use crate::ops::Bind;
use crate::pool::{CpuKernel, Worker};

pub(in crate::ops) struct Build {
    cursor: View<i32>,
    limits: View<i32>,
    ids: View<i32>,
    scores: View<f32>,
    log_sum_exp: Option<View<f32>>,
    drafted: usize,
    k: usize,
    vocab: usize,
    control: View<i32>,
    tokens: View<i32>,
    positions: View<i32>,
    parents: View<i32>,
    depths: View<i32>,
    masks: View<i32>,
    rows: usize,
}

impl Build {
    pub(in crate::ops) fn new(bind: &Bind<'_>, op: &TreeBuild) -> Result<Self, DeviceFault> {
        let [drafted, k] = bind.dims(&op.ids, "ids and scores must be [P, k]")?;
        let scores = bind.dims(&op.scores, "ids and scores must be [P, k]")?;
        bind.ensure(scores == [drafted, k], "ids and scores must be [P, k]")?;
        let mut inputs = vec![&op.cursor.0, &op.limits.0, &op.ids, &op.scores];
        if let Some(tensor) = &op.log_sum_exp {
            let [sums] = bind.dims(tensor, "log_sum_exp must be [P]")?;
            bind.ensure(sums == drafted, "log_sum_exp must be [P]")?;
            inputs.push(tensor);
        }
        let (tree, rows) = (&op.tree, capacity(bind, &op.tokens, &op.tree)?);
        let [positions] = bind.dims(&op.positions, "positions must be [M]")?;
        let outputs = [&op.control.0, &op.tokens, &op.positions];
        let shape = [&tree.parents, &tree.depths, &tree.masks];
        bind.apart(&[outputs, shape].concat(), &inputs)?;
        Ok(Self {
            cursor: cursor(bind, &op.cursor)?,
            limits: block(bind, &op.limits.0, TreeLimits::WORDS, "the limits must be [4]")?,
            ids: bind.view(&op.ids)?,
            scores: bind.view(&op.scores)?,
            log_sum_exp: op.log_sum_exp.as_ref().map(|t| bind.view(t)).transpose()?,
            drafted,
            k,
            vocab: op.vocab,
            control: control(bind, &op.control)?,
            tokens: bind.view(&op.tokens)?,
            positions: bind.view(&op.positions)?,
            parents: bind.view(&tree.parents)?,
            depths: bind.view(&tree.depths)?,
            masks: bind.view(&tree.masks)?,
            rows: rows.min(positions),
        })
    }

    /// What the limits say, cut to what the operands hold.
    fn limits(&self, solo: &Solo<'_>) -> Limits {
        let word = |at| usize::try_from(solo.get(&self.limits, at)).unwrap_or(0);
        let positions = word(TreeLimits::POSITIONS).min(self.drafted);
        Limits {
            budget: word(TreeLimits::BUDGET).min(self.rows - 1),
            depth: word(TreeLimits::DEPTH).min(positions),
            chain: word(TreeLimits::CHAIN),
        }
    }

    /// The score of a candidate, or `None` past the end of its position's list.
    fn score(&self, solo: &Solo<'_>, position: usize, rank: usize) -> Option<f64> {
        if rank >= self.k {
            return None;
        }
        let at = position * self.k + rank;
        let id = usize::try_from(solo.get(&self.ids, at)).ok()?;
        let sum = self.log_sum_exp.as_ref().map_or(0.0, |sums| solo.get(sums, position));
        let score = f64::from(solo.get(&self.scores, at)) - f64::from(sum);
        // The comparison is false for a NaN.
        (id < self.vocab && score < f64::INFINITY).then_some(score)
    }
}

impl CpuKernel for Build {
    fn run(&self, worker: &Worker<'_>) {
        let Some(solo) = Solo::of(worker) else { return };
        let committed = solo.count(&self.cursor, Cursor::COMMITTED);
        let tree = Tree::grow(self.limits(&solo), |d, r| self.score(&solo, d, r));
        let mut masks = [0u64; TreeRows::MAX];
        for (row, node) in tree.rows().iter().enumerate() {
            let (token, parent) = match node.depth.checked_sub(1) {
                Some(position) => {
                    masks[row] = masks[node.parent];
                    let at = position * self.k + node.rank;
                    (solo.get(&self.ids, at), node.parent as i32)
                }
                None => (solo.get(&self.cursor, Cursor::PENDING), -1),
            };
            masks[row] |= 1 << row;
            solo.set(&self.tokens, row, token);
            solo.set(&self.positions, row, solo.position(committed, node.depth));
            solo.set(&self.parents, row, parent);
            solo.set(&self.depths, row, node.depth as i32);
            solo.set(&self.masks, 2 * row, masks[row] as i32);
            solo.set(&self.masks, 2 * row + 1, (masks[row] >> 32) as i32);
        }
        let rows = tree.rows().len() as i32;
        solo.control(&self.control, rows, committed, (0, rows));
    }

    fn key(&self) -> KernelKey {
        key("tree_build")
    }
}
