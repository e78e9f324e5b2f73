//! A stand-in for a device that measures what would be reserved on it.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{
    Buffer, Device, DeviceFault, DeviceInfo, Event, Graph, HostTensor, Kernel, Stream, Weight,
    WeightSpec,
};
use crate::error::Result;
use crate::kernel::{KernelKey, Op};
use crate::tensor::DType;

/// Where unbacked buffers begin: at multiples of this, so aligned for anything.
const ALIGN: u64 = 4096;

/// Addresses stay below this, where no sum of an address and a size overflows.
const END: u64 = 1 << 62;

/// Hands out buffers and weights without memory, prepares operations on them as far as the
/// device tells their scratch memory, and runs nothing. What is made on it is of no use but
/// to be measured: a session is made on it first to learn what the real one will take.
///
/// It has the device's [`id`](Device::id), so that real and unbacked operands mix.
pub struct Rehearsal {
    device: Arc<dyn Device>,
    next: AtomicU64,
    reserved: AtomicU64,
    scratch: AtomicU64,
}

/// What was asked of a [`Rehearsal`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Bytes that buffers and weights would take.
    pub reserved: u64,
    /// Most bytes of scratch memory that a kernel uses.
    pub scratch: u64,
}

impl Rehearsal {
    /// A stand-in for a device.
    pub fn of(device: Arc<dyn Device>) -> Arc<Self> {
        let (reserved, scratch) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Self { device, next: AtomicU64::new(ALIGN), reserved, scratch })
    }

    /// The device it stands in for.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// What was asked of it since it was made or last asked this.
    pub fn take_measured(&self) -> Measured {
        let take = |of: &AtomicU64| of.swap(0, Ordering::Relaxed);
        Measured { reserved: take(&self.reserved), scratch: take(&self.scratch) }
    }

    /// A weight of this kind.
    ///
    /// # Errors
    /// `Unsupported` when the device has no use for one.
    pub fn weight(&self, spec: &WeightSpec) -> Result<Weight> {
        let bytes = self.device.weight_bytes(spec)?;
        let buffer = self.unbacked(usize::try_from(bytes).map_err(|_| too_large())?)?;
        self.count(bytes);
        Ok(Weight::unbacked(*spec, bytes, buffer))
    }

    fn unbacked(&self, bytes: usize) -> Result<Buffer> {
        let after = |start: u64| {
            let end = start.checked_add(bytes as u64)?.checked_next_multiple_of(ALIGN)?;
            (end < END).then_some(end)
        };
        let start = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, after);
        let start = start.map_err(|_| too_large())?;
        Ok(Buffer::unbacked(self.device.id(), bytes, start))
    }

    fn count(&self, bytes: u64) {
        // Bounded by the addresses, but for what is added to sizes.
        self.reserved.fetch_add(bytes, Ordering::Relaxed);
    }
}

fn too_large() -> DeviceFault {
    DeviceFault::BadOperands { op: "plan", detail: "the size overflows" }
}

impl Device for Rehearsal {
    fn id(&self) -> u64 {
        self.device.id()
    }

    fn info(&self) -> DeviceInfo {
        self.device.info()
    }

    fn allocate(&self, bytes: usize, _: &str) -> Result<Buffer> {
        let buffer = self.unbacked(bytes)?;
        self.count(self.device.allocation_bytes(bytes));
        Ok(buffer)
    }

    fn allocation_bytes(&self, bytes: usize) -> u64 {
        self.device.allocation_bytes(bytes)
    }

    fn weight_bytes(&self, spec: &WeightSpec) -> Result<u64> {
        self.device.weight_bytes(spec)
    }

    fn load_weight(&self, _: &HostTensor, spec: &WeightSpec) -> Result<Weight> {
        self.weight(spec)
    }

    fn prepare(&self, op: &Op) -> Result<Arc<dyn Kernel>> {
        self.scratch.fetch_max(self.device.scratch_bytes(op)?, Ordering::Relaxed);
        Ok(Arc::new(Nothing { op: op.name(), kernels: 1 }))
    }

    fn scratch_bytes(&self, op: &Op) -> Result<u64> {
        self.device.scratch_bytes(op)
    }

    fn overhead_bytes(&self) -> u64 {
        self.device.overhead_bytes()
    }

    fn record(&self, kernels: &[Arc<dyn Kernel>]) -> Result<Arc<dyn Graph>> {
        Ok(Arc::new(Nothing { op: "graph", kernels: kernels.len() }))
    }

    fn stream(&self) -> Result<Box<dyn Stream>> {
        Ok(Box::new(Nothing { op: "stream", kernels: 0 }))
    }
}

/// Kernels, graphs and streams that do nothing.
struct Nothing {
    op: &'static str,
    kernels: usize,
}

impl Nothing {
    fn refuse<T>(&self) -> Result<T> {
        let detail = "nothing runs on a stand-in for planning";
        Err(DeviceFault::BadOperands { op: self.op, detail }.into())
    }
}

impl Kernel for Nothing {
    fn key(&self) -> KernelKey {
        KernelKey { op: self.op, dtype: DType::F32, regime: None, variant: "unbacked" }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Graph for Nothing {
    fn len(&self) -> usize {
        self.kernels
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Stream for Nothing {
    fn write(&mut self, _: &Buffer, _: usize, _: &[u8]) -> Result<()> {
        self.refuse()
    }

    fn read(&mut self, _: &Buffer, _: usize, _: &mut [u8]) -> Result<()> {
        self.refuse()
    }

    fn copy(&mut self, _: &Buffer, _: usize, _: &Buffer, _: usize, _: usize) -> Result<()> {
        self.refuse()
    }

    fn fill(&mut self, _: &Buffer, _: usize, _: usize, _: u8) -> Result<()> {
        self.refuse()
    }

    fn launch(&mut self, _: &dyn Kernel) -> Result<()> {
        self.refuse()
    }

    fn launch_graph(&mut self, _: &dyn Graph) -> Result<()> {
        self.refuse()
    }

    fn record_event(&mut self) -> Result<Box<dyn Event>> {
        self.refuse()
    }

    fn wait_event(&mut self, _: &dyn Event) -> Result<()> {
        self.refuse()
    }

    fn synchronize(&mut self) -> Result<()> {
        self.refuse()
    }
}
