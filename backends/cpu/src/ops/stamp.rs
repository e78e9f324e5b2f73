//! The time, as operations go by.

use std::sync::LazyLock;
use std::time::Instant;

use foretoken::device::DeviceFault;
use foretoken::kernel::{KernelKey, Stamp};
use foretoken::tensor::DType;

use super::Bind;
use crate::memory::View;
use crate::pool::{CpuKernel, Worker};

/// Where the clock of all devices of the process starts.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

pub(super) struct Kernel {
    clock: View<i64>,
    slot: usize,
}

impl Kernel {
    pub(super) fn new(bind: &Bind<'_>, op: &Stamp) -> Result<Self, DeviceFault> {
        let [slots] = bind.dims(&op.clock, "clock must be [N]")?;
        bind.ensure(op.slot < slots, "slot must be below N")?;
        LazyLock::force(&START);
        Ok(Self { clock: bind.view(&op.clock)?, slot: op.slot })
    }
}

impl CpuKernel for Kernel {
    fn run(&self, worker: &Worker<'_>) {
        if worker.index == 0 {
            // SAFETY: one worker alone touches the operand.
            let slot = unsafe { self.clock.write(self.slot..self.slot + 1) };
            // 292 years fit.
            slot[0] = i64::try_from(START.elapsed().as_nanos()).unwrap_or(i64::MAX);
        }
    }

    fn key(&self) -> KernelKey {
        KernelKey { op: "stamp", dtype: DType::I64, regime: None, variant: "monotonic" }
    }
}
