//! Rows for the drafter, and the cursor's way on.

use foretoken::device::DeviceFault;
use foretoken::kernel::{Advance, DraftBlock, DraftContext};

use super::{control, cursor, key, room};
use crate::launch::{CudaKernel, Launch};
use crate::ops::Bind;

/// [`DraftContext`].
pub(in crate::ops) fn context(
    bind: &Bind<'_>,
    op: &DraftContext,
) -> Result<CudaKernel, DeviceFault> {
    let [rows] = bind.dims(&op.positions, "positions must be [C]")?;
    bind.apart(&[&op.cursor.0, &op.control.0, &op.positions], &[])?;
    let function = bind.function("tree", "draft_context")?;
    let launch = Launch::new(&function, [1, 1, 1], [256, 1, 1])
        .publishing()
        .arg(&cursor(bind, &op.cursor)?)
        .arg(&control(bind, &op.control)?)
        .arg(&bind.view::<i32>(&op.positions)?)
        .arg(bind.int(rows)?);
    bind.kernel(key("draft_context"), vec![launch], Vec::new())
}

/// [`DraftBlock`].
pub(in crate::ops) fn block(bind: &Bind<'_>, op: &DraftBlock) -> Result<CudaKernel, DeviceFault> {
    let [rows] = bind.dims(&op.tokens, "tokens must be [B]")?;
    let [positions] = bind.dims(&op.positions, "positions must be [B]")?;
    bind.ensure(rows == positions, "tokens and positions must have the same length")?;
    bind.apart(&[&op.control.0, &op.tokens, &op.positions], &[&op.cursor.0])?;
    let mask_token =
        i32::try_from(op.mask_token).map_err(|_| bind.bad("the mask token must fit in 31 bits"))?;
    let function = bind.function("tree", "draft_block")?;
    let launch = Launch::new(&function, [1, 1, 1], [256, 1, 1])
        .publishing()
        .arg(&cursor(bind, &op.cursor)?)
        .arg(mask_token)
        .arg(&control(bind, &op.control)?)
        .arg(&bind.view::<i32>(&op.tokens)?)
        .arg(&bind.view::<i32>(&op.positions)?)
        .arg(bind.int(rows)?);
    bind.kernel(key("draft_block"), vec![launch], Vec::new())
}

/// [`Advance`].
pub(in crate::ops) fn advance(bind: &Bind<'_>, op: &Advance) -> Result<CudaKernel, DeviceFault> {
    bind.apart(&[&op.cursor.0], &[&op.control.0, &op.path.0, &op.result])?;
    let rows = room(bind, &op.path.0, &op.result)?;
    let function = bind.function("tree", "advance")?;
    let launch = Launch::new(&function, [1, 1, 1], [1, 1, 1])
        .arg(&bind.control(&op.control)?)
        .arg(&bind.view::<i32>(&op.path.0)?)
        .arg(&bind.view::<i32>(&op.result)?)
        .arg(&cursor(bind, &op.cursor)?)
        .arg(bind.int(rows)?);
    bind.kernel(key("advance"), vec![launch], Vec::new())
}
