//! The traits a driver implements. The prose on each method is the contract.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::link::{self, Link};
use super::{Buffer, DeviceInfo, HostTensor, Weight, WeightSpec};
use crate::error::Result;
use crate::kernel::{KernelKey, Op};

/// One family of devices. Creating a driver touches no device and never fails on
/// a machine that lacks the hardware or its libraries: [`devices`](Self::devices)
/// is then empty and [`problems`](Self::problems) says why.
pub trait Driver: Send + Sync {
    /// Short lower-case name: `cpu`, `cuda`, `hip`, or a vendor's own.
    fn name(&self) -> &'static str;

    /// Devices present now, in the driver's order. An empty list is no error.
    fn devices(&self) -> Result<Vec<DeviceInfo>>;

    /// Why there are no, or fewer, devices than the machine may have; one line each.
    fn problems(&self) -> Vec<String> {
        Vec::new()
    }

    /// How much this device is to be preferred under `auto`; higher is better, 0
    /// means never. A CPU scores 1.
    fn score(&self, info: &DeviceInfo) -> u64;

    /// Opens a device. The handle is shared; memory is reserved by later calls only.
    fn open(&self, index: usize) -> Result<Arc<dyn Device>>;
}

/// A number for [`Device::id`]. Every driver draws from here, so that no two open
/// devices of this process share one.
pub fn next_device_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// An open device.
///
/// All methods may be called from any thread. Handles (buffers, weights, kernels,
/// graphs) keep what they need alive and may outlive the `Device` value itself.
pub trait Device: Any + Send + Sync {
    /// A number no other open device of this process has, from [`next_device_id`].
    fn id(&self) -> u64;

    /// Properties; `memory_free` as of the call.
    fn info(&self) -> DeviceInfo;

    /// Reserves `bytes` of memory, aligned to at least 64, for `what` (named in the
    /// error). Content is undefined. Fails with `OutOfMemory` and never aborts.
    fn allocate(&self, bytes: usize, what: &str) -> Result<Buffer>;

    /// Bytes of device memory that [`allocate`](Self::allocate) takes for `bytes`: more
    /// where the device gives memory in larger pieces. Touches no memory.
    fn allocation_bytes(&self, bytes: usize) -> u64 {
        bytes as u64
    }

    /// Bytes of device memory [`load_weight`](Self::load_weight) will take, counted as
    /// [`allocation_bytes`](Self::allocation_bytes) does, or `Unsupported` when no
    /// operation here can use such a weight.
    fn weight_bytes(&self, spec: &WeightSpec) -> Result<u64>;

    /// Takes a weight in, repacking it if the device wants that. Returns when the
    /// bytes of `host` are no longer needed, unless the weight keeps them alive.
    fn load_weight(&self, host: &HostTensor, spec: &WeightSpec) -> Result<Weight>;

    /// Finds and binds the kernel for an operation on given tensors. All shape, type
    /// and ownership checks happen here, so that launching can not fail on them.
    /// `Unsupported` names the operation, the type and the architecture.
    fn prepare(&self, op: &Op) -> Result<Arc<dyn Kernel>>;

    /// Bytes of the device's scratch memory, shared by all its kernels, that the kernel for
    /// an operation uses. Makes the checks of [`prepare`](Self::prepare), may load code,
    /// and reserves no memory. Operands may be [unbacked](Buffer::unbacked), in which case
    /// they lie at multiples of 4096; weights may be, too ([`Weight::unbacked`]).
    ///
    /// The default is that of a device whose kernels share nothing: 0, without checks.
    fn scratch_bytes(&self, op: &Op) -> Result<u64> {
        let _ = op;
        Ok(0)
    }

    /// Reserves scratch memory of this size, unless there is as much: kernels prepared from
    /// then on that use no more reserve none. Takes `allocation_bytes(bytes)`.
    ///
    /// # Errors
    /// `OutOfMemory`; then there is as much as before.
    fn reserve_scratch(&self, bytes: u64) -> Result<()> {
        let _ = bytes;
        Ok(())
    }

    /// An allowance for what the driver takes on its own account once kernels are prepared,
    /// recorded and run: code, recorded graphs, stacks. 0 where that is not memory of the
    /// device's, or not worth a line.
    fn overhead_bytes(&self) -> u64 {
        0
    }

    /// Records kernels into one launchable graph that runs them in order. Values in
    /// device buffers are read when the graph runs, not when it is recorded.
    fn record(&self, kernels: &[Arc<dyn Kernel>]) -> Result<Arc<dyn Graph>>;

    /// A way for copies between this device's memory and another's that does not lead
    /// through the host, as far as the driver knows; [`verified_link`](super::verified_link)
    /// sees to it that they arrive. What `other` is a driver finds by upcasting it to
    /// [`Any`].
    ///
    /// # Errors
    /// `NoLink` with the reason; that there are no such copies is the default. Both devices
    /// go on as before.
    fn link(&self, other: &dyn Device) -> Result<Arc<dyn Link>> {
        Err(link::unsupported(&self.info(), &other.info()))
    }

    /// A new stream. Work on different streams is unordered without events.
    fn stream(&self) -> Result<Box<dyn Stream>>;
}

/// A kernel bound to its operands.
pub trait Kernel: Send + Sync {
    /// What was chosen, for logs and tests.
    fn key(&self) -> KernelKey;

    /// For the driver to find its own type again.
    fn as_any(&self) -> &dyn Any;
}

/// A recorded sequence of kernels.
pub trait Graph: Send + Sync {
    /// Number of kernels recorded.
    fn len(&self) -> usize;

    /// True when nothing was recorded.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// For the driver to find its own type again.
    fn as_any(&self) -> &dyn Any;
}

/// A point in a stream that other streams and the host can wait for.
pub trait Event: Send + Sync {
    /// Blocks until the work before the event is done.
    fn wait(&self) -> Result<()>;

    /// For the driver to find its own type again.
    fn as_any(&self) -> &dyn Any;
}

/// An in-order queue of work.
///
/// Copies and launches run in the order they are issued. Errors of asynchronous
/// work surface at the next [`read`](Self::read) or
/// [`synchronize`](Self::synchronize), with the kernel's name.
pub trait Stream: Any + Send {
    /// Copies `src` into `dst` at `offset`. `src` may be reused when this returns.
    fn write(&mut self, dst: &Buffer, offset: usize, src: &[u8]) -> Result<()>;

    /// Waits for all earlier work, then copies from `src` at `offset` into `dst`.
    fn read(&mut self, src: &Buffer, offset: usize, dst: &mut [u8]) -> Result<()>;

    /// Copies within one device. The ranges must not overlap.
    fn copy(
        &mut self,
        dst: &Buffer,
        dst_offset: usize,
        src: &Buffer,
        src_offset: usize,
        bytes: usize,
    ) -> Result<()>;

    /// Sets a range to one byte value.
    fn fill(&mut self, dst: &Buffer, offset: usize, bytes: usize, value: u8) -> Result<()>;

    /// Runs one kernel.
    fn launch(&mut self, kernel: &dyn Kernel) -> Result<()>;

    /// Runs a recorded graph.
    fn launch_graph(&mut self, graph: &dyn Graph) -> Result<()>;

    /// Marks the present end of the queue.
    fn record_event(&mut self) -> Result<Box<dyn Event>>;

    /// Makes later work here wait for an event of another stream of the same device.
    fn wait_event(&mut self, event: &dyn Event) -> Result<()>;

    /// Blocks until all work issued so far is done.
    fn synchronize(&mut self) -> Result<()>;
}
