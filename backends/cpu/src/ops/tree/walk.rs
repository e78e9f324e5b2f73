//! Following the target's choices, and moving on.

use foretoken::device::DeviceFault;
use foretoken::kernel::{self, Cursor, KernelKey, TreeWalk};
use foretoken::tensor::Tensor;

use super::{Solo, capacity, cursor, key};
use crate::memory::View;
use crate::ops::{Bind, Controls};
use crate::pool::{CpuKernel, Worker};

/// Rows that a path and the result of a walk have room for.
fn room(bind: &Bind<'_>, path: &Tensor, result: &Tensor) -> Result<usize, DeviceFault> {
    let [path] = bind.dims(path, "the path must be [1 + M]")?;
    let [result] = bind.dims(result, "the result must be [4 + M]")?;
    let rows = (path - 1).min(result.saturating_sub(TreeWalk::HEADER));
    bind.ensure(rows > 0, "the path must be [1 + M] and the result [4 + M]")?;
    Ok(rows)
}

/// [`TreeWalk`].
pub(in crate::ops) struct Walk {
    control: Controls,
    tokens: View<i32>,
    parents: View<i32>,
    depths: View<i32>,
    choices: View<i32>,
    path: View<i32>,
    result: View<i32>,
    rows: usize,
}

impl Walk {
    pub(in crate::ops) fn new(bind: &Bind<'_>, op: &TreeWalk) -> Result<Self, DeviceFault> {
        let tree = &op.tree;
        let [choices, one] = bind.dims(&op.choices, "choices must be [M, 1]")?;
        bind.ensure(one == 1, "choices must be [M, 1]")?;
        let rows = capacity(bind, &op.tokens, tree)?.min(choices);
        let shape = [&tree.parents, &tree.depths, &tree.masks];
        let inputs = [&op.control.0, &op.tokens, &op.choices];
        bind.apart(&[&op.path.0, &op.result], &[shape, inputs].concat())?;
        Ok(Self {
            control: bind.control(&op.control)?,
            tokens: bind.view(&op.tokens)?,
            parents: bind.view(&tree.parents)?,
            depths: bind.view(&tree.depths)?,
            choices: bind.view(&op.choices)?,
            path: bind.view(&op.path.0)?,
            result: bind.view(&op.result)?,
            rows: rows.min(room(bind, &op.path.0, &op.result)?),
        })
    }
}

impl CpuKernel for Walk {
    fn run(&self, worker: &Worker<'_>) {
        let Some(solo) = Solo::of(worker) else { return };
        let rows = self.control.rows(worker, self.rows);
        if rows == 0 {
            worker.refuse("a tree without rows can not be walked");
        }
        let (mut row, mut accepted) = (0, 0);
        let next = loop {
            let token = solo.get(&self.tokens, row);
            solo.set(&self.result, TreeWalk::HEADER + accepted, token);
            accepted += 1;
            solo.set(&self.path, accepted, row as i32);
            let choice = solo.get(&self.choices, row);
            if choice < 0 {
                break choice;
            }
            // Children come after their parent, so this ends, garbage or not.
            let child = (row + 1..rows).find(|&at| {
                solo.get(&self.parents, at) == row as i32 && solo.get(&self.tokens, at) == choice
            });
            match child {
                Some(child) => row = child,
                None => break choice,
            }
        };
        solo.set(&self.path, 0, accepted as i32);
        solo.set(&self.result, TreeWalk::ACCEPTED, accepted as i32);
        solo.set(&self.result, TreeWalk::ROWS, rows as i32);
        solo.set(&self.result, TreeWalk::NEXT, next);
        let depth = (0..rows).map(|row| solo.get(&self.depths, row)).max().unwrap_or(0);
        solo.set(&self.result, TreeWalk::DEPTH, depth);
    }

    fn key(&self) -> KernelKey {
        key("tree_walk")
    }
}

/// [`Advance`](kernel::Advance).
pub(in crate::ops) struct Advance {
    control: Controls,
    path: View<i32>,
    result: View<i32>,
    cursor: View<i32>,
    rows: usize,
}

impl Advance {
    pub(in crate::ops) fn new(bind: &Bind<'_>, op: &kernel::Advance) -> Result<Self, DeviceFault> {
        bind.apart(&[&op.cursor.0], &[&op.control.0, &op.path.0, &op.result])?;
        Ok(Self {
            control: bind.control(&op.control)?,
            path: bind.view(&op.path.0)?,
            result: bind.view(&op.result)?,
            cursor: cursor(bind, &op.cursor)?,
            rows: room(bind, &op.path.0, &op.result)?,
        })
    }
}

impl CpuKernel for Advance {
    fn run(&self, worker: &Worker<'_>) {
        let Some(solo) = Solo::of(worker) else { return };
        let rows = self.control.rows(worker, self.rows);
        let accepted = usize::try_from(solo.get(&self.path, 0)).unwrap_or(0);
        if accepted == 0 || accepted > rows {
            worker.refuse("the path has no rows, or more than the tree");
        }
        let committed = i32::try_from(self.control.committed(worker)).unwrap_or(i32::MAX);
        solo.set(&self.cursor, Cursor::COMMITTED, solo.position(committed, accepted));
        solo.set(&self.cursor, Cursor::PENDING, solo.get(&self.result, TreeWalk::NEXT));
    }

    fn key(&self) -> KernelKey {
        key("advance")
    }
}
