//! Streams and events of the driver.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys;
use foretoken::device::DeviceFault;

use super::context::Refusal;
use super::{Context, Entered};

/// `CU_STREAM_NON_BLOCKING`: not ordered with the legacy default stream.
const NON_BLOCKING: u32 = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;

/// `CU_EVENT_DISABLE_TIMING`: cheaper, and all that ordering needs.
const NO_TIMING: u32 = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;

/// A stream of the driver, destroyed when dropped.
pub(crate) struct Queue {
    context: Arc<Context>,
    raw: sys::CUstream,
}

/// An event of the driver, destroyed when dropped.
pub(crate) struct Event {
    context: Arc<Context>,
    raw: sys::CUevent,
}

// SAFETY: stream handles may be used from any thread; the driver locks.
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}
// SAFETY: as for streams.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Queue {
    /// A new stream.
    pub(crate) fn new(context: &Arc<Context>) -> Result<Self, DeviceFault> {
        let entered = context.enter()?;
        let mut raw = ptr::null_mut();
        // SAFETY: writes one handle.
        let status = unsafe { (entered.work().cuStreamCreate)(&raw mut raw, NON_BLOCKING) };
        entered.check("cuStreamCreate", status)?;
        Ok(Self { context: Arc::clone(context), raw })
    }

    /// The handle, for calls made elsewhere.
    pub(crate) fn raw(&self) -> sys::CUstream {
        self.raw
    }

    /// Waits until all work so far is done. The status is the caller's to explain.
    pub(crate) fn wait(&self, entered: &Entered<'_>) -> u32 {
        // SAFETY: a stream of the current context.
        unsafe { (entered.work().cuStreamSynchronize)(self.raw) }
    }

    /// Copies from pinned host memory.
    ///
    /// # Safety
    /// `from` is `bytes` of pinned memory that nobody writes before the copy is done, and
    /// the device range is allocated until then.
    pub(crate) unsafe fn upload(
        &self,
        entered: &Entered<'_>,
        to: u64,
        from: *const u8,
        bytes: usize,
    ) -> Result<(), DeviceFault> {
        let from = from.cast::<c_void>();
        // SAFETY: the caller's promise; a stream of the current context.
        let status = unsafe { (entered.work().cuMemcpyHtoDAsync_v2)(to, from, bytes, self.raw) };
        entered.check("cuMemcpyHtoDAsync", status)
    }

    /// Copies to pinned host memory.
    ///
    /// # Safety
    /// `to` is `bytes` of pinned memory that nobody touches before the copy is done, and
    /// the device range is allocated until then.
    pub(crate) unsafe fn download(
        &self,
        entered: &Entered<'_>,
        to: *mut u8,
        from: u64,
        bytes: usize,
    ) -> Result<(), DeviceFault> {
        let to = to.cast::<c_void>();
        // SAFETY: the caller's promise; a stream of the current context.
        let status = unsafe { (entered.work().cuMemcpyDtoHAsync_v2)(to, from, bytes, self.raw) };
        entered.check("cuMemcpyDtoHAsync", status)
    }

    /// Copies within the device.
    pub(crate) fn copy(
        &self,
        entered: &Entered<'_>,
        to: u64,
        from: u64,
        bytes: usize,
    ) -> Result<(), DeviceFault> {
        // SAFETY: device ranges, checked by the caller against live buffers; freeing one
        // waits for the copy.
        let status = unsafe { (entered.work().cuMemcpyDtoDAsync_v2)(to, from, bytes, self.raw) };
        entered.check("cuMemcpyDtoDAsync", status)
    }

    /// Copies to memory of another context, perhaps of another device. A refusal is the
    /// caller's to judge.
    pub(crate) fn copy_to(
        &self,
        entered: &Entered<'_>,
        (to, receiver): (u64, &Context),
        from: u64,
        bytes: usize,
    ) -> Result<(), Refusal> {
        let contexts = (receiver.raw(), self.context.raw());
        let call = entered.work().cuMemcpyPeerAsync;
        // SAFETY: device ranges of two retained contexts, checked by the caller against live
        // buffers, whose release waits for the copy: each device's later work comes after it.
        let status = unsafe { call(to, contexts.0, from, contexts.1, bytes, self.raw) };
        entered.judge("cuMemcpyPeerAsync", status)
    }

    /// Sets bytes of the device.
    pub(crate) fn fill(
        &self,
        entered: &Entered<'_>,
        at: u64,
        bytes: usize,
        value: u8,
    ) -> Result<(), DeviceFault> {
        // SAFETY: as with `copy`.
        let status = unsafe { (entered.work().cuMemsetD8Async)(at, value, bytes, self.raw) };
        entered.check("cuMemsetD8Async", status)
    }

    /// Makes later work here wait for the event.
    pub(crate) fn wait_for(&self, entered: &Entered<'_>, event: &Event) -> Result<(), DeviceFault> {
        // SAFETY: handles of the current context.
        let status = unsafe { (entered.work().cuStreamWaitEvent)(self.raw, event.raw, 0) };
        entered.check("cuStreamWaitEvent", status)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.context.leave(|entered| {
            // SAFETY: the one owner gives the stream back; the driver lets its work end.
            unsafe { (entered.work().cuStreamDestroy_v2)(self.raw) };
        });
    }
}

impl Event {
    /// An event that nothing has been recorded in: waiting for it is no wait.
    pub(crate) fn new(context: &Arc<Context>) -> Result<Self, DeviceFault> {
        let entered = context.enter()?;
        let mut raw = ptr::null_mut();
        // SAFETY: writes one handle.
        let status = unsafe { (entered.work().cuEventCreate)(&raw mut raw, NO_TIMING) };
        entered.check("cuEventCreate", status)?;
        Ok(Self { context: Arc::clone(context), raw })
    }

    /// Marks the present end of a queue.
    pub(crate) fn record(&self, entered: &Entered<'_>, queue: &Queue) -> Result<(), DeviceFault> {
        // SAFETY: handles of the current context.
        let status = unsafe { (entered.work().cuEventRecord)(self.raw, queue.raw) };
        entered.check("cuEventRecord", status)
    }

    /// Blocks until the work before it is done. The status is the caller's to explain.
    pub(crate) fn wait(&self, entered: &Entered<'_>) -> u32 {
        // SAFETY: an event of the current context.
        unsafe { (entered.work().cuEventSynchronize)(self.raw) }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        self.context.leave(|entered| {
            // SAFETY: the one owner gives the event back.
            unsafe { (entered.work().cuEventDestroy_v2)(self.raw) };
        });
    }
}
