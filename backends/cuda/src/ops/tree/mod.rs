//! Drafts and token trees, all of `tree.cu`: making rows ready and moving on (`draft`),
//! building a tree and walking it (`build`).
//!
//! Each kernel is a single block; every value comes from device memory and may be
//! anything.

mod build;
mod draft;

use foretoken::device::DeviceFault;
use foretoken::kernel::{Control, Cursor, KernelKey, TreeRows, TreeWalk};
use foretoken::tensor::{DType, Tensor};

pub(super) use build::{build, walk};
pub(super) use draft::{advance, block, context};

use super::Bind;
use crate::memory::View;

/// The name of a kernel of this folder.
fn key(op: &'static str) -> KernelKey {
    KernelKey { op, dtype: DType::I32, regime: None, variant: "one block" }
}

/// The elements of an I32 tensor of exactly `words` words.
fn words(
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
    words(bind, &cursor.0, Cursor::WORDS, "the cursor must be [4]")
}

/// A control block that the operation writes.
fn control(bind: &Bind<'_>, control: &Control) -> Result<View<i32>, DeviceFault> {
    words(bind, &control.0, Control::WORDS, "the control block must be [4]")
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

/// Rows that a path and the result of a walk have room for.
fn room(bind: &Bind<'_>, path: &Tensor, result: &Tensor) -> Result<usize, DeviceFault> {
    let [path] = bind.dims(path, "the path must be [1 + M]")?;
    let [result] = bind.dims(result, "the result must be [4 + M]")?;
    let rows = (path - 1).min(result.saturating_sub(TreeWalk::HEADER));
    bind.ensure(rows > 0, "the path must be [1 + M] and the result [4 + M]")?;
    Ok(rows)
}
