//! Owned device memory.

use std::any::Any;
use std::sync::Arc;

use foretoken::device::{BufferStorage, DeviceFault};

use crate::device::Context;

/// What small allocations are rounded up to.
const GRAIN: u64 = 512;

/// Largest allocation that shares a page with others.
const SMALL: u64 = 1 << 20;

/// Bytes of a page.
const PAGE: u64 = 2 << 20;

/// Bytes of device memory that the CUDA driver takes for an allocation, as seen on an H200
/// with driver 580: whole pages, or for a small one its share of a page with as many of its
/// size as go in, since none lies across two. So up to a page more is taken for all of a
/// size together, and less where other sizes fill what these leave.
pub(crate) fn allocation_bytes(bytes: usize) -> u64 {
    let bytes = (bytes as u64).max(1);
    if bytes > SMALL {
        return bytes.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
    }
    PAGE.div_ceil(PAGE / bytes.next_multiple_of(GRAIN))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Free memory before and after 64 allocations of a size, 16 of the last, in pages.
    #[test]
    fn allocations_take_what_was_measured() {
        let measured = [
            (1, 64, 1),
            (513, 64, 1),
            (100_000, 64, 4),
            (307_200, 64, 11),
            (524_288, 64, 16),
            (716_800, 64, 32),
            (1_048_575, 64, 32),
            (1_048_576, 64, 32),
            (1_048_577, 64, 64),
            (2_097_152, 64, 64),
            (2_097_153, 64, 128),
            (34_603_013, 16, 272),
        ];
        for (bytes, count, pages) in measured {
            let said = count * allocation_bytes(bytes);
            assert_eq!(said.div_ceil(PAGE), pages, "{count} of {bytes}: {said}");
        }
        assert_eq!(allocation_bytes(usize::MAX), u64::MAX);
    }
}
