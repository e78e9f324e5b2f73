//! Prepared kernels and recorded graphs.

use std::any::Any;
use std::sync::Arc;

use foretoken::device::{Graph, Kernel};
use foretoken::kernel::KernelKey;

use crate::pool::CpuKernel;

/// A kernel of one device.
pub(crate) struct Prepared {
    /// Which device it was prepared for.
    pub(crate) device: u64,
    /// The kernel and its operands.
    pub(crate) kernel: Arc<dyn CpuKernel>,
}

impl Kernel for Prepared {
    fn key(&self) -> KernelKey {
        self.kernel.key()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Kernels that one launch walks through.
pub(crate) struct CpuGraph {
    /// Which device they were prepared for.
    pub(crate) device: u64,
    /// In order.
    pub(crate) kernels: Vec<Arc<dyn CpuKernel>>,
}

impl Graph for CpuGraph {
    fn len(&self) -> usize {
        self.kernels.len()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
