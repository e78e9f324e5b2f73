//! Rows for the drafter: what it has not seen yet, and the block it fills in.

use foretoken::device::DeviceFault;
use foretoken::kernel::{Cursor, DraftBlock, DraftContext, KernelKey};

use super::{Solo, control, cursor, key};
use crate::memory::View;
use crate::ops::Bind;
use crate::pool::{CpuKernel, Worker};

/// [`DraftContext`].
pub(in crate::ops) struct Context {
    cursor: View<i32>,
    control: View<i32>,
    positions: View<i32>,
}

impl Context {
    pub(in crate::ops) fn new(bind: &Bind<'_>, op: &DraftContext) -> Result<Self, DeviceFault> {
        let [_] = bind.dims(&op.positions, "positions must be [C]")?;
        bind.apart(&[&op.cursor.0, &op.control.0, &op.positions], &[])?;
        Ok(Self {
            cursor: cursor(bind, &op.cursor)?,
            control: control(bind, &op.control)?,
            positions: bind.view(&op.positions)?,
        })
    }
}

impl CpuKernel for Context {
    fn run(&self, worker: &Worker<'_>) {
        let Some(solo) = Solo::of(worker) else { return };
        let committed = solo.count(&self.cursor, Cursor::COMMITTED);
        let drafted = solo.count(&self.cursor, Cursor::DRAFTED);
        if drafted > committed {
            worker.refuse("the drafter has seen more tokens than are committed");
        }
        let new = drafted..committed;
        if new.len() > self.positions.len() {
            worker.refuse("more new tokens than the drafter's rows were recorded for");
        }
        for (row, position) in new.enumerate() {
            solo.set(&self.positions, row, position);
        }
        solo.control(&self.control, committed - drafted, drafted, (0, 0));
        solo.set(&self.cursor, Cursor::DRAFTED, committed);
    }

    fn key(&self) -> KernelKey {
        key("draft_context")
    }
}

/// [`DraftBlock`].
pub(in crate::ops) struct Block {
    cursor: View<i32>,
    mask_token: i32,
    control: View<i32>,
    tokens: View<i32>,
    positions: View<i32>,
    rows: i32,
}

impl Block {
    pub(in crate::ops) fn new(bind: &Bind<'_>, op: &DraftBlock) -> Result<Self, DeviceFault> {
        let [rows] = bind.dims(&op.tokens, "tokens must be [B]")?;
        let [positions] = bind.dims(&op.positions, "positions must be [B]")?;
        bind.ensure(rows == positions, "tokens and positions must have the same length")?;
        bind.apart(&[&op.control.0, &op.tokens, &op.positions], &[&op.cursor.0])?;
        Ok(Self {
            cursor: cursor(bind, &op.cursor)?,
            mask_token: i32::try_from(op.mask_token)
                .map_err(|_| bind.bad("the mask token must fit in 31 bits"))?,
            control: control(bind, &op.control)?,
            tokens: bind.view(&op.tokens)?,
            positions: bind.view(&op.positions)?,
            rows: i32::try_from(rows).map_err(|_| bind.bad("B must fit in 31 bits"))?,
        })
    }
}

impl CpuKernel for Block {
    fn run(&self, worker: &Worker<'_>) {
        let Some(solo) = Solo::of(worker) else { return };
        let committed = solo.count(&self.cursor, Cursor::COMMITTED);
        let pending = solo.get(&self.cursor, Cursor::PENDING);
        for row in 0..self.tokens.len() {
            let token = if row == 0 { pending } else { self.mask_token };
            solo.set(&self.tokens, row, token);
            solo.set(&self.positions, row, solo.position(committed, row));
        }
        solo.control(&self.control, self.rows, committed, (1, self.rows - 1));
    }

    fn key(&self) -> KernelKey {
        key("draft_block")
    }
}
