//! Pinned memory between the host's and the device's: copies through it are asynchronous
//! and fast, and the caller's bytes are free when the call returns.

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use foretoken::device::DeviceFault;

use super::{Context, Entered, Event, Queue};
use crate::api::SUCCESS;

/// Bytes of one half. Weights stream through at memory speed from about this size on.
const HALF: usize = 4 << 20;

/// `CU_MEMHOSTALLOC_PORTABLE`.
const PORTABLE: u32 = 1;

/// Two halves: while the device reads one, the host fills the other.
pub(crate) struct Staging {
    context: Arc<Context>,
    start: NonNull<u8>,
    /// Recorded after the last copy out of each half.
    used: [Event; 2],
    /// The half in use, and how much of it.
    half: usize,
    filled: usize,
}

// SAFETY: owns its memory; copies in flight are waited for before it is touched.
unsafe impl Send for Staging {}

impl Staging {
    pub(crate) fn new(context: &Arc<Context>) -> Result<Self, DeviceFault> {
        let used = [Event::new(context)?, Event::new(context)?];
        let entered = context.enter()?;
        let mut start: *mut c_void = ptr::null_mut();
        // SAFETY: writes one address.
        let status = unsafe { (entered.work().cuMemHostAlloc)(&raw mut start, 2 * HALF, PORTABLE) };
        entered.check("cuMemHostAlloc", status)?;
        drop(entered);
        let start = NonNull::new(start.cast::<u8>())
            .ok_or_else(|| context.fail("cuMemHostAlloc".into(), "no memory was given".into()))?;
        Ok(Self { context: Arc::clone(context), start, used, half: 0, filled: 0 })
    }

    /// Copies to the device, in order with other work of the queue. A staging serves one
    /// queue until the queue has been waited for.
    pub(crate) fn upload(
        &mut self,
        entered: &Entered<'_>,
        queue: &Queue,
        to: u64,
        from: &[u8],
    ) -> Result<(), DeviceFault> {
        let (mut to, mut rest) = (to, from);
        while !rest.is_empty() {
            if self.filled == HALF {
                self.turn(entered, queue)?;
            }
            let (now, later) = rest.split_at(rest.len().min(HALF - self.filled));
            // SAFETY: inside this half (`half` is 0 or 1, and `filled + now` at most HALF).
            let place = unsafe { self.start.as_ptr().add(self.half * HALF + self.filled) };
            // SAFETY: the place is ours, no copy in flight reads it (bytes past `filled`
            // were last read before the half's event), and `now` is elsewhere.
            unsafe { ptr::copy_nonoverlapping(now.as_ptr(), place, now.len()) };
            // SAFETY: pinned, and left alone until the half's turn comes again.
            unsafe { queue.upload(entered, to, place, now.len())? };
            // Whole cache lines, so that copies do not share one.
            self.filled = (self.filled + now.len()).next_multiple_of(64).min(HALF);
            to += now.len() as u64;
            rest = later;
        }
        Ok(())
    }

    /// Goes to the other half, once its copies are done.
    fn turn(&mut self, entered: &Entered<'_>, queue: &Queue) -> Result<(), DeviceFault> {
        let [first, second] = &self.used;
        let (this, other) = if self.half == 0 { (first, second) } else { (second, first) };
        this.record(entered, queue)?;
        entered.check("cuEventSynchronize", other.wait(entered))?;
        (self.half, self.filled) = (1 - self.half, 0);
        Ok(())
    }

    /// Copies from the device and waits. `wait` blocks until all work of the queue is done.
    pub(crate) fn download(
        &mut self,
        entered: &Entered<'_>,
        queue: &Queue,
        from: u64,
        to: &mut [u8],
        wait: impl Fn() -> Result<(), DeviceFault>,
    ) -> Result<(), DeviceFault> {
        let (mut from, place) = (from, self.start.as_ptr());
        for part in to.chunks_mut(2 * HALF) {
            // SAFETY: pinned; the queue reads what was staged here for uploads before it
            // comes to this copy, and it is left alone until the wait.
            unsafe { queue.download(entered, place, from, part.len())? };
            wait()?;
            // SAFETY: the copy is done; `part.len()` bytes are there.
            unsafe { ptr::copy_nonoverlapping(place, part.as_mut_ptr(), part.len()) };
            from += part.len() as u64;
        }
        self.reset();
        Ok(())
    }

    /// All copies are done: start from the beginning.
    pub(crate) fn reset(&mut self) {
        (self.half, self.filled) = (0, 0);
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        self.context.leave(|entered| {
            for event in &self.used {
                // A failed device has no copies left to wait for.
                let _ = event.wait(entered) == SUCCESS;
            }
            // SAFETY: allocated in `new`; no copy uses it any more.
            unsafe { (entered.work().cuMemFreeHost)(self.start.as_ptr().cast()) };
        });
    }
}
