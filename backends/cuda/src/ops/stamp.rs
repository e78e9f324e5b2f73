//! The time, as operations go by.

use foretoken::device::DeviceFault;
use foretoken::kernel::{KernelKey, Stamp};
use foretoken::tensor::DType;

use super::Bind;
use crate::launch::{CudaKernel, Launch};

/// One thread reads the clock that all multiprocessors share.
pub(super) fn prepare(bind: &Bind<'_>, op: &Stamp) -> Result<CudaKernel, DeviceFault> {
    let [slots] = bind.dims(&op.clock, "clock must be [N]")?;
    bind.ensure(op.slot < slots, "slot must be below N")?;
    let (clock, slot) = (bind.view::<i64>(&op.clock)?, bind.int(op.slot)?);
    let function = bind.function("stamp", "stamp")?;
    let launch = Launch::new(&function, [1, 1, 1], [1, 1, 1]).arg(&clock).arg(slot);
    let key = KernelKey { op: "stamp", dtype: DType::I64, regime: None, variant: "globaltimer" };
    bind.kernel(key, vec![launch], Vec::new())
}
