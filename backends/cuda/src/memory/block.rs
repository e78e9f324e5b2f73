//! Owned device memory.

use std::any::Any;
use std::sync::Arc;

use foretoken::device::{BufferStorage, DeviceFault};

use crate::device::Context;

/// What small allocations are rounded up to.
const GRAIN: u64 = 512;

/// Smallest allocation that has pages of its own.
const LARGE: u64 = 1 << 20;

/// Bytes of a page.
const PAGE: u64 = 2 << 20;

/// Bytes of device memory that the CUDA driver takes for an allocation. Small ones share
/// pages, so that up to a page more is taken for all of them together.
pub(crate) fn allocation_bytes(bytes: usize) -> u64 {
    let bytes = (bytes as u64).max(1);
    let to = if bytes < LARGE { GRAIN } else { PAGE };
    bytes.checked_next_multiple_of(to).unwrap_or(u64::MAX)
}

/// An allocation of the device, aligned to 256 bytes at least, freed when dropped.
pub(crate) struct Block {
    context: Arc<Context>,
    address: u64,
    bytes: usize,
}

impl Block {
    /// Reserves `bytes` for `what`.
    ///
    /// # Errors
    /// `OutOfMemory`, which leaves the device usable; or the device is unhealthy.
    pub(crate) fn new(
        context: &Arc<Context>,
        bytes: usize,
        what: &str,
    ) -> Result<Self, DeviceFault> {
        let address = context.enter()?.allocate(bytes, what)?;
        Ok(Self { context: Arc::clone(context), address, bytes })
    }

    /// On the device.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // Waits for the device, so nothing in flight still uses the memory.
        self.context.leave(|entered| entered.free(self.address, self.bytes));
    }
}

impl BufferStorage for Block {
    fn as_any(&self) -> &dyn Any {
        self
    }
}
