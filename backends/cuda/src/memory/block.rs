//! Owned device memory.

use std::any::Any;
use std::sync::Arc;

use foretoken::device::{BufferStorage, DeviceFault};

use crate::device::Context;

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
