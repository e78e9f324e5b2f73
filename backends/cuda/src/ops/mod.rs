//! One file for each family of operations, with the same name as its source in
//! `kernels-cuda/src`.
//!
//! `prepare` checks shapes, types, ownership and overlap once, chooses the kernel and its
//! grid, and packs the arguments. What changes from launch to launch is read from device
//! memory by the kernel itself.

mod attention;
mod bind;
mod gated_delta;
mod short_conv;
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
    let bind = Bind::new(core, op.name());
    Ok(Arc::new(match op {
        Op::Attention(op) => attention::prepare(&bind, op)?,
        Op::ShortConv(op) => short_conv::prepare(&bind, op)?,
        Op::GatedDelta(op) => gated_delta::prepare(&bind, op)?,
        Op::ConvCommit(op) => short_conv::commit(&bind, op)?,
        Op::DeltaCommit(op) => gated_delta::commit(&bind, op)?,
        Op::Stamp(op) => stamp::prepare(&bind, op)?,

        // An operation that this driver does not have.
        _ => return Err(bind.unsupported(DType::F32).into()),
    }))
}
