//! The device handle.

use std::sync::Arc;

use foretoken::Result;
use foretoken::device::{
    Buffer, Device, DeviceFault, DeviceInfo, Graph, HostTensor, Kernel, Stream, Weight, WeightSpec,
};
use foretoken::kernel::Op;

use super::{Core, CpuGraph, CpuStream, Prepared, weight};
use crate::memory::Block;
use crate::ops;

/// An open CPU device.
pub(crate) struct CpuDevice {
    core: Arc<Core>,
}

impl CpuDevice {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core }
    }
}

impl Device for CpuDevice {
    fn id(&self) -> u64 {
        self.core.id
    }

    fn info(&self) -> DeviceInfo {
        DeviceInfo { memory_free: self.core.budget.free(), ..self.core.info.clone() }
    }

    fn allocate(&self, bytes: usize, what: &str) -> Result<Buffer> {
        let block = Block::new(&self.core.budget, bytes, what)?;
        Ok(Buffer::new(self.core.id, bytes, Arc::new(block)))
    }

    fn weight_bytes(&self, spec: &WeightSpec) -> Result<u64> {
        weight::bytes(&self.core, spec)
    }

    fn load_weight(&self, host: &HostTensor, spec: &WeightSpec) -> Result<Weight> {
        weight::load(&self.core, host, spec)
    }

    fn prepare(&self, op: &Op) -> Result<Arc<dyn Kernel>> {
        let kernel = ops::prepare(&self.core, op)?;
        Ok(Arc::new(Prepared { device: self.core.id, kernel }))
    }

    fn record(&self, kernels: &[Arc<dyn Kernel>]) -> Result<Arc<dyn Graph>> {
        let mut own = Vec::with_capacity(kernels.len());
        for kernel in kernels {
            match kernel.as_any().downcast_ref::<Prepared>() {
                Some(p) if p.device == self.core.id => own.push(Arc::clone(&p.kernel)),
                _ => return Err(DeviceFault::ForeignBuffer { op: kernel.key().op }.into()),
            }
        }
        Ok(Arc::new(CpuGraph { device: self.core.id, kernels: own }))
    }

    fn stream(&self) -> Result<Box<dyn Stream>> {
        Ok(Box::new(CpuStream::new(Arc::clone(&self.core))))
    }
}
