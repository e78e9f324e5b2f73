//! Drafts and token trees: making rows ready, building a tree, walking it.
//!
//! Each kernel here is some hundred scalar steps at most, so one worker does them
//! while the others wait at the next barrier. Every value comes from device memory
//! and may be anything: it is cut to what the operands hold, or the launch fails.
//! `search` is the arithmetic of growing a tree and knows no device memory.

mod build;
mod draft;
mod search;
mod walk;

pub(super) use build::Build;
pub(super) use draft::{Block, Context};
pub(super) use walk::{Advance, Walk};

use foretoken::device::DeviceFault;
use foretoken::kernel::{Control, Cursor, KernelKey, TreeRows};
use foretoken::tensor::{DType, Tensor};

use super::Bind;
use crate::memory::{Plain, View};
use crate::pool::Worker;

/// The name of a kernel of this folder.
fn key(op: &'static str) -> KernelKey {
    KernelKey { op, dtype: DType::I32, regime: None, variant: "one worker" }
}

/// The elements of an I32 tensor of exactly `words` words.
fn block(
    bind: &Bind<'_>,
    tensor: &Tensor,
    words: usize,
    detail: &'static str,
) -> Result<View<i32>, DeviceFault> {
    let [found] = bind.dims(tensor, detail)?;
    bind.ensure(found == words, detail)?;
    bind.view(tensor)
}

fn cursor(bind: &Bind<'_>, cursor: &Cursor) -> Result<View<i32>, DeviceFault> {
    block(bind, &cursor.0, Cursor::WORDS, "the cursor must be [4]")
}

/// A control block that the operation writes.
fn control(bind: &Bind<'_>, control: &Control) -> Result<View<i32>, DeviceFault> {
    block(bind, &control.0, Control::WORDS, "the control block must be [4]")
}

/// Rows that all tensors of a tree have room for.
fn capacity(bind: &Bind<'_>, tokens: &Tensor, tree: &TreeRows) -> Result<usize, DeviceFault> {
    let [mut rows] = bind.dims(tokens, "tokens must be [M]")?;
    for tensor in [&tree.parents, &tree.depths] {
        let [found] = bind.dims(tensor, "parents and depths must be [M]")?;
        rows = rows.min(found);
    }
    let [masks, words] = bind.dims(&tree.masks, "masks must be [M, 2]")?;
    bind.ensure(words == 2, "masks must be [M, 2]")?;
    let rows = rows.min(masks);
    bind.ensure(rows <= TreeRows::MAX, "a tree has at most 64 rows")?;
    Ok(rows)
}

/// The one worker that runs a kernel of this folder: it alone touches the operands.
struct Solo<'a>(&'a Worker<'a>);

impl<'a> Solo<'a> {
    fn of(worker: &'a Worker<'_>) -> Option<Self> {
        (worker.index == 0).then_some(Self(worker))
    }

    fn get<T: Plain>(&self, view: &View<T>, at: usize) -> T {
        // SAFETY: one thread, and no borrow outlives this function or `set`.
        unsafe { view.value(at) }
    }

    fn set<T: Plain>(&self, view: &View<T>, at: usize, value: T) {
        // SAFETY: one thread, and no borrow outlives this function or `get`.
        let place = unsafe { view.write(at..at + 1) };
        place[0] = value;
    }

    /// A word that must not be negative.
    fn count(&self, view: &View<i32>, at: usize) -> i32 {
        let word = self.get(view, at);
        if word < 0 { self.0.refuse("a count of tokens is negative") } else { word }
    }

    /// A position, or a failed launch when it does not fit.
    fn position(&self, committed: i32, offset: usize) -> i32 {
        let sum = i32::try_from(offset).ok().and_then(|offset| committed.checked_add(offset));
        sum.unwrap_or_else(|| self.0.refuse("a position does not fit in 31 bits"))
    }

    /// Writes a control block.
    fn control(&self, view: &View<i32>, rows: i32, committed: i32, logits: (i32, i32)) {
        self.set(view, Control::ROWS, rows);
        self.set(view, Control::COMMITTED, committed);
        self.set(view, Control::LOGIT_FIRST, logits.0);
        self.set(view, Control::LOGIT_ROWS, logits.1);
    }
}
