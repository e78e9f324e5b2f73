//! One kernel for each operation of the seam (linear operations live in `linear`).
//!
//! `prepare` checks shapes, types, ownership and overlap once; the kernels then
//! only bounds-check. Kernels share work by rows, heads or columns, each worker
//! writing ranges of its own, and no choice made from the row count, the thread
//! count or the instruction set changes the order of any sum.

mod bind;
mod embed;
mod rms_norm;

use std::sync::Arc;

use foretoken::Result;
use foretoken::device::DeviceFault;
use foretoken::kernel::Op;
use foretoken::tensor::DType;

pub(crate) use bind::{Bind, Controls};

use crate::device::Core;
use crate::pool::CpuKernel;

/// Finds and binds the kernel for an operation.
pub(crate) fn prepare(core: &Core, op: &Op) -> Result<Arc<dyn CpuKernel>> {
    let bind = Bind::new(core, op.name());
    Ok(match op {
        Op::Embed(op) => Arc::new(embed::Kernel::new(&bind, op)?),
        Op::RmsNorm(op) => Arc::new(rms_norm::Kernel::new(&bind, op)?),
        Op::Linear(op) => crate::linear::prepare(&bind, op)?,
        _ => return Err(unsupported(&bind, DType::F32).into()),
    })
}

fn unsupported(bind: &Bind<'_>, dtype: DType) -> DeviceFault {
    bind.unsupported(dtype)
}
