//! Owned, aligned, zeroed memory.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

use foretoken::device::{BufferStorage, DeviceFault};

use super::{Budget, Lease, Span};

/// A block of memory, aligned to 64 bytes, freed when dropped.
///
/// It starts zeroed and so is resident from the beginning: what is reserved at load
/// is there later, and no page fault falls into a decode step.
pub(crate) struct Block {
    start: NonNull<u8>,
    bytes: usize,
    layout: Layout,
    _lease: Lease,
}

// SAFETY: the block owns its memory; access goes through `Span`, whose users answer
// for races.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    /// Alignment of every block.
    pub(crate) const ALIGN: usize = 64;

    /// Reserves `bytes` for `what`.
    pub(crate) fn new(budget: &Arc<Budget>, bytes: usize, what: &str) -> Result<Self, DeviceFault> {
        let refused = || budget.refusal(bytes as u64, what);
        let lease = budget.lease(bytes as u64, what)?;
        let layout = Layout::from_size_align(bytes.max(1), Self::ALIGN).map_err(|_| refused())?;
        // SAFETY: the layout's size is not zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(refused)?;
        Ok(Self { start, bytes, layout, _lease: lease })
    }

    /// The whole block.
    pub(crate) fn span(&self) -> Span<u8> {
        // SAFETY: the block's own memory, initialised by zeroing; whoever uses the
        // span keeps the block alive.
        unsafe { Span::from_raw(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
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

    #[test]
    fn blocks_are_aligned_and_impossible_ones_are_refused() {
        let budget = Budget::new("cpu:0".into(), u64::MAX);
        for bytes in [0, 1, 63, 64, 4097] {
            let block = Block::new(&budget, bytes, "test").unwrap();
            assert_eq!(block.start.as_ptr() as usize % Block::ALIGN, 0);
            assert_eq!(block.span().len(), bytes);
        }
        for bytes in [usize::MAX, isize::MAX as usize, 1 << 60] {
            let fault = Block::new(&budget, bytes, "too much").err();
            assert!(matches!(fault, Some(DeviceFault::OutOfMemory { .. })), "{bytes}");
        }
    }
}
