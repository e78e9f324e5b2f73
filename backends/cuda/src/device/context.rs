//! The device's context: made current for each call, and sick for good after a failure.

use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use cudarc::driver::sys;
use foretoken::device::DeviceFault;

use crate::api::{
    self, Api, INVALID_VALUE, OUT_OF_MEMORY, PEER_ACCESS_ALREADY_ENABLED, SUCCESS, Status, WorkApi,
};
use crate::memory::allocation_bytes;

/// A context of one device: the primary one, retained while this lives, or one of its own.
pub(crate) struct Context {
    calls: &'static Api,
    work: &'static WorkApi,
    device: sys::CUdevice,
    raw: sys::CUcontext,
    /// Created here, to be destroyed.
    own: bool,
    /// `cuda:0`.
    name: String,
    /// Most bytes that may be reserved at a time.
    memory_limit: u64,
    memory_used: AtomicU64,
    failure: OnceLock<DeviceFault>,
}

// SAFETY: a context handle may be made current on any thread; the driver locks.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// The context is current on this thread until this goes.
pub(crate) struct Entered<'a> {
    context: &'a Context,
    // Not to be sent to another thread, where the context is not current.
    _here: std::marker::PhantomData<*const ()>,
}

/// A failed call that is not (yet) the device's end.
pub(crate) struct Refusal {
    pub(crate) call: String,
    pub(crate) status: Status,
    pub(crate) words: String,
}

impl Context {
    /// Retains the primary context of a device, or makes one of its `own`; at most `limit`
    /// bytes of the device's memory are to be reserved.
    ///
    /// # Errors
    /// The driver cannot be used, or refuses.
    pub(crate) fn open(
        index: usize,
        limit: Option<u64>,
        own: bool,
    ) -> Result<Arc<Self>, DeviceFault> {
        let name = format!("cuda:{index}");
        let lost = |message: String| DeviceFault::Failed {
            driver: "cuda",
            call: format!("opening {name}"),
            message,
        };
        let calls = api::api().map_err(|problem| lost(problem.to_string()))?;
        let work = api::work_api().map_err(|problem| lost(problem.to_string()))?;
        let told = |fault: crate::calls::Fault| lost(format!("{}: {}", fault.call, fault.words));
        let device = calls.device(index).map_err(told)?;
        let total = calls.memory_total(device).map_err(told)?;
        let memory_limit = limit.map_or(total, |limit| limit.min(total));
        let raw = match own {
            true => create(calls, work, device).map_err(lost)?,
            false => calls.retain(device).map_err(told)?,
        };
        let (memory_used, failure) = (AtomicU64::new(0), OnceLock::new());
        let name = name.clone();
        Ok(Arc::new(Self {
            calls,
            work,
            device,
            raw,
            own,
            name,
            memory_limit,
            memory_used,
            failure,
        }))
    }

    /// Lets the memory of another context's device be reached from this one.
    ///
    /// # Errors
    /// Why that can not be.
    pub(crate) fn reach(&self, other: &Self) -> Result<(), String> {
        if self.device == other.device {
            return Ok(());
        }
        let entered = self.enter().map_err(|fault| fault.to_string())?;
        let mut can = 0;
        // SAFETY: writes one int.
        let status =
            unsafe { (self.work.cuDeviceCanAccessPeer)(&raw mut can, self.device, other.device) };
        let refused = |refusal: Refusal| format!("{}: {}", refusal.call, refusal.words);
        entered.judge("cuDeviceCanAccessPeer", status).map_err(refused)?;
        if can == 0 {
            return Err(format!("{} can not reach the memory of {}", self.name, other.name));
        }
        // SAFETY: the other context is retained; the flags must be 0.
        match unsafe { (self.work.cuCtxEnablePeerAccess)(other.raw, 0) } {
            PEER_ACCESS_ALREADY_ENABLED => Ok(()),
            status => entered.judge("cuCtxEnablePeerAccess", status).map_err(refused),
        }
    }

    /// The handle, for calls made elsewhere.
    pub(crate) fn raw(&self) -> sys::CUcontext {
        self.raw
    }

    /// `cuda:0`.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Fails when an earlier call was the device's last.
    pub(crate) fn healthy(&self) -> Result<(), DeviceFault> {
        self.failure.get().map_or(Ok(()), |failure| Err(failure.clone()))
    }

    /// Makes the context current; fails when the device is unhealthy.
    pub(crate) fn enter(&self) -> Result<Entered<'_>, DeviceFault> {
        self.healthy()?;
        // SAFETY: the context is retained.
        let status = unsafe { (self.calls.cuCtxPushCurrent_v2)(self.raw) };
        self.check("cuCtxPushCurrent", status)?;
        Ok(Entered { context: self, _here: std::marker::PhantomData })
    }

    /// Runs what gives something back: also on an unhealthy device, where it may fail.
    pub(crate) fn leave(&self, give_back: impl FnOnce(&Entered<'_>)) {
        // SAFETY: the context is retained.
        if unsafe { (self.calls.cuCtxPushCurrent_v2)(self.raw) } == SUCCESS {
            give_back(&Entered { context: self, _here: std::marker::PhantomData });
        }
    }

    /// Ends the device with a failure, or repeats the one that did.
    pub(crate) fn fail(&self, call: String, message: String) -> DeviceFault {
        let fault = DeviceFault::Failed { driver: "cuda", call, message };
        self.failure.get_or_init(|| fault).clone()
    }

    /// Turns the result of a call into a failure of the device.
    fn check(&self, call: &str, status: Status) -> Result<(), DeviceFault> {
        if status == SUCCESS {
            return Ok(());
        }
        Err(self.fail(call.to_owned(), self.calls.words(status)))
    }
}

/// A new context, current nowhere.
fn create(calls: &Api, work: &WorkApi, device: sys::CUdevice) -> Result<sys::CUcontext, String> {
    let (mut raw, mut popped) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: writes one handle; no parameters and no flags.
    let status = unsafe { (work.cuCtxCreate_v4)(&raw mut raw, ptr::null_mut(), 0, device) };
    if status != SUCCESS {
        return Err(format!("cuCtxCreate: {}", calls.words(status)));
    }
    // SAFETY: takes off what was just created, which is current on this thread.
    unsafe { (calls.cuCtxPopCurrent_v2)(&raw mut popped) };
    Ok(raw)
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: created or retained in `open`; everything made in it holds the context, so
        // is gone.
        unsafe {
            match self.own {
                true => (self.work.cuCtxDestroy_v2)(self.raw),
                false => (self.calls.cuDevicePrimaryCtxRelease_v2)(self.device),
            }
        };
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let mut popped = ptr::null_mut();
        // SAFETY: takes off what `enter` or `leave` pushed on this thread.
        unsafe { (self.context.calls.cuCtxPopCurrent_v2)(&raw mut popped) };
    }
}

impl Entered<'_> {
    /// The functions that may be called while the context is current.
    pub(crate) fn work(&self) -> &'static WorkApi {
        self.context.work
    }

    /// A failed call ends the device.
    pub(crate) fn check(&self, call: &str, status: Status) -> Result<(), DeviceFault> {
        self.context.check(call, status)
    }

    /// A failed call is the caller's to judge.
    pub(crate) fn judge(&self, call: &str, status: Status) -> Result<(), Refusal> {
        if status == SUCCESS {
            return Ok(());
        }
        Err(Refusal { call: call.to_owned(), status, words: self.context.calls.words(status) })
    }

    /// Bytes that could be reserved now.
    pub(crate) fn memory_free(&self) -> Result<u64, DeviceFault> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two sizes.
        let status = unsafe { (self.context.calls.cuMemGetInfo_v2)(&raw mut free, &raw mut total) };
        self.check("cuMemGetInfo", status)?;
        let used = self.context.memory_used.load(Ordering::Relaxed);
        Ok((free as u64).min(self.context.memory_limit.saturating_sub(used)))
    }

    /// Device memory for `what`. Lack of it leaves the device usable.
    pub(crate) fn allocate(&self, bytes: usize, what: &str) -> Result<u64, DeviceFault> {
        let refused = || -> DeviceFault {
            let free = match self.memory_free() {
                Ok(free) => free,
                Err(fault) => return fault,
            };
            let (device, what) = (self.context.name.clone(), what.to_owned());
            DeviceFault::OutOfMemory { device, what, asked: bytes as u64, free }
        };
        // More than there is would overflow within some drivers.
        let (used, limit) = (&self.context.memory_used, self.context.memory_limit);
        let taken = allocation_bytes(bytes);
        let add = |used: u64| used.checked_add(taken).filter(|&sum| sum <= limit);
        if used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_err() {
            return Err(refused());
        }
        let mut address = 0;
        // SAFETY: writes one address.
        let status = unsafe { (self.work().cuMemAlloc_v2)(&raw mut address, bytes.max(1)) };
        if status != SUCCESS {
            used.fetch_sub(taken, Ordering::Relaxed);
        }
        match status {
            OUT_OF_MEMORY => Err(refused()),
            status => self.check("cuMemAlloc", status).map(|()| address),
        }
    }

    /// Gives the `bytes` of device memory back that were allocated at an address.
    pub(crate) fn free(&self, address: u64, bytes: usize) {
        self.context.memory_used.fetch_sub(allocation_bytes(bytes), Ordering::Relaxed);
        // SAFETY: the one owner of the allocation gives it back; the call waits for work
        // in flight.
        unsafe { (self.work().cuMemFree_v2)(address) };
    }
}

impl Refusal {
    /// Whether the driver found an argument out of range.
    pub(crate) fn is_invalid_value(&self) -> bool {
        self.status == INVALID_VALUE
    }
}
