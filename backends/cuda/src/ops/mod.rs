//! One file for each family of operations, with the same name as its source in
//! `kernels-cuda/src`.
//!
//! `prepare` checks shapes, types, ownership and overlap once, chooses the kernel and its
//! grid, and packs the arguments. What changes from launch to launch is read from device
//! memory by the kernel itself.

mod bind;
mod linear;
mod stamp;

use std::sync::Arc;

use foretoken::Result;
use foretoken::kernel::Op;
use foretoken::tensor::DType;

pub(crate) use bind::{Bind, TreeViews, row_set};

use crate::device::Core;
use crate::launch::CudaKernel;

/// Finds and binds the kernel for an operation.
pub(crate) fn prepare(core: &Arc<Core>, op: &Op) -> Result<Arc<CudaKernel>> {
    core.context.healthy()?;
    let bind = Bind::new(core, op.name());
    Ok(Arc::new(match op {
        Op::Linear(op) => linear::prepare(&bind, op)?,
        Op::Stamp(op) => stamp::prepare(&bind, op)?,

        // An operation that this driver does not have.
        _ => return Err(bind.unsupported(DType::F32).into()),
    }))
}
