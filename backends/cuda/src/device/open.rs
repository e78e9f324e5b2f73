//! The device handle.

use std::any::Any;
use std::sync::Arc;

use foretoken::Result;
use foretoken::device::{
    Buffer, Device, DeviceFault, DeviceInfo, Graph, HostTensor, Kernel, Link, Stream, Weight,
    WeightSpec,
};
use foretoken::kernel::Op;

use super::{Built, Core, CudaGraph, CudaLink, CudaStream, weight};
use crate::driver::CudaOptions;
use crate::launch::CudaKernel;
use crate::memory::allocation_bytes;
use crate::ops;

/// Bytes that the CUDA driver may take beside what it is asked for and what a context takes
/// when a device is opened: for the nano models on an H200 that is a page of code, and nothing
/// more for graphs; larger models have graphs of some thousand launches.
const OVERHEAD: u64 = 16 << 20;

/// An open GPU.
pub(crate) struct CudaDevice {
    core: Arc<Core>,
}

/// Opens a device that is there.
///
/// # Errors
/// `NoKernels`, or the driver's refusal.
pub(crate) fn open(
    info: DeviceInfo,
    built: Built,
    options: &CudaOptions,
) -> std::result::Result<CudaDevice, DeviceFault> {
    let Some(code) = built.code(&info.arch) else {
        let (arch, built) = (info.arch, built.listed());
        return Err(DeviceFault::NoKernels { driver: "cuda", arch, built });
    };
    let core = Core::new(info, built, code, options)?;
    tracing::debug!("{} runs code of {code}", core.context.name());
    Ok(CudaDevice { core })
}

impl Device for CudaDevice {
    fn id(&self) -> u64 {
        self.core.id
    }

    /// 0 bytes are free on an unhealthy device.
    fn info(&self) -> DeviceInfo {
        let free = self.core.context.enter().and_then(|entered| entered.memory_free());
        DeviceInfo { memory_free: free.unwrap_or(0), ..self.core.info.clone() }
    }

    fn allocate(&self, bytes: usize, what: &str) -> Result<Buffer> {
        Ok(self.core.buffer(bytes, what)?)
    }

    fn allocation_bytes(&self, bytes: usize) -> u64 {
        allocation_bytes(bytes)
    }

    fn weight_bytes(&self, spec: &WeightSpec) -> Result<u64> {
        weight::bytes(&self.core, spec)
    }

    fn load_weight(&self, host: &HostTensor, spec: &WeightSpec) -> Result<Weight> {
        weight::load(&self.core, host, spec)
    }

    fn prepare(&self, op: &Op) -> Result<Arc<dyn Kernel>> {
        Ok(Arc::new(Prepared(ops::prepare(&self.core, op)?)))
    }

    fn scratch_bytes(&self, op: &Op) -> Result<u64> {
        Ok(ops::scratch(&self.core, op)? as u64)
    }

    fn reserve_scratch(&self, bytes: u64) -> Result<()> {
        Ok(self.core.reserve_scratch(usize::try_from(bytes).unwrap_or(usize::MAX))?)
    }

    fn overhead_bytes(&self) -> u64 {
        OVERHEAD
    }

    fn record(&self, kernels: &[Arc<dyn Kernel>]) -> Result<Arc<dyn Graph>> {
        let mut own = Vec::with_capacity(kernels.len());
        for kernel in kernels {
            match kernel.as_any().downcast_ref::<Prepared>() {
                Some(Prepared(k)) if k.device() == self.core.id => own.push(Arc::clone(k)),
                _ => return Err(DeviceFault::ForeignBuffer { op: kernel.key().op }.into()),
            }
        }
        Ok(Arc::new(CudaGraph::new(&self.core, own)?))
    }

    fn link(&self, other: &dyn Device) -> Result<Arc<dyn Link>> {
        let other: &dyn Any = other;
        let other = other.downcast_ref::<Self>().map(|other| &other.core);
        Ok(Arc::new(CudaLink::new(&self.core, other)?))
    }

    fn stream(&self) -> Result<Box<dyn Stream>> {
        Ok(Box::new(CudaStream::new(&self.core)?))
    }
}

/// A kernel as the engine holds it: shared with the graphs it is recorded in.
pub(crate) struct Prepared(pub(crate) Arc<CudaKernel>);

impl Kernel for Prepared {
    fn key(&self) -> foretoken::kernel::KernelKey {
        self.0.key()
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}
