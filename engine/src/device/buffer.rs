//! Device memory.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// The driver's half of a buffer: owns the memory and frees it when dropped.
pub trait BufferStorage: Any + Send + Sync {
    /// For the driver to find its own type again.
    fn as_any(&self) -> &dyn Any;
}

/// No memory, at an address of its own.
struct Unbacked {
    address: u64,
}

impl BufferStorage for Unbacked {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A sized piece of memory of one device. Clones share the memory; it is freed
/// with the last clone. Content is undefined until written.
#[derive(Clone)]
pub struct Buffer {
    device: u64,
    bytes: usize,
    storage: Arc<dyn BufferStorage>,
}

impl Buffer {
    /// Wraps driver storage. `device` is the value of [`Device::id`](super::Device::id).
    pub fn new(device: u64, bytes: usize, storage: Arc<dyn BufferStorage>) -> Self {
        Self { device, bytes, storage }
    }

    /// A buffer with a size and an address but no memory behind it, an operand of
    /// operations that are measured and never run: see
    /// [`Device::scratch_bytes`](super::Device::scratch_bytes).
    pub fn unbacked(device: u64, bytes: usize, address: u64) -> Self {
        Self::new(device, bytes, Arc::new(Unbacked { address }))
    }

    /// The address of an unbacked buffer; `None` for one that has memory.
    pub fn unbacked_address(&self) -> Option<u64> {
        self.storage.as_any().downcast_ref::<Unbacked>().map(|unbacked| unbacked.address)
    }

    /// Which device the memory belongs to.
    pub fn device(&self) -> u64 {
        self.device
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The driver's storage.
    pub fn storage(&self) -> &dyn BufferStorage {
        &*self.storage
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes on device {})", self.bytes, self.device)
    }
}
