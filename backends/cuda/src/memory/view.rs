//! Typed windows on device memory.

use std::marker::PhantomData;

use foretoken::device::Buffer;
use foretoken::tensor::DType;

use super::Block;

/// Numbers that kernels read and write.
pub(crate) trait Plain: Copy + Send + Sync + 'static {}

macro_rules! plain {
    ($($t:ty)*) => { $(impl Plain for $t {})* };
}
plain!(u8 i8 u16 i32 u32 i64 u64 f32 f64);

/// Numbers with a storage type of their own.
pub(crate) trait Element: Plain {
    /// The storage type.
    const DTYPE: DType;
}

impl Element for f32 {
    const DTYPE: DType = DType::F32;
}

impl Element for i32 {
    const DTYPE: DType = DType::I32;
}

impl Element for i64 {
    const DTYPE: DType = DType::I64;
}

/// The device address of `len` values, aligned for `T`, together with the buffer they
/// lie in, which it keeps alive.
pub(crate) struct View<T> {
    address: u64,
    len: usize,
    buffer: Buffer,
    _of: PhantomData<T>,
}

impl<T> Clone for View<T> {
    fn clone(&self) -> Self {
        Self { buffer: self.buffer.clone(), _of: PhantomData, ..*self }
    }
}

impl<T: Plain> View<T> {
    /// Bytes of a buffer as values of `T`, as many as fit; `None` when the buffer is not one
    /// of this driver, when they are not all inside, or not aligned for `T` there.
    pub(crate) fn part(buffer: &Buffer, offset: usize, bytes: usize) -> Option<Self> {
        Self::at(address_of(buffer)?, buffer, offset, bytes)
    }

    /// The same, of a buffer that begins at this address.
    pub(crate) fn at(address: u64, buffer: &Buffer, offset: usize, bytes: usize) -> Option<Self> {
        let end = offset.checked_add(bytes)?;
        let address = address.checked_add(u64::try_from(offset).ok()?)?;
        if end > buffer.bytes() || !address.is_multiple_of(align_of::<T>() as u64) {
            return None;
        }
        let len = bytes / size_of::<T>();
        Some(Self { address, len, buffer: buffer.clone(), _of: PhantomData })
    }

    /// On the device.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// Number of values.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// What keeps the memory.
    pub(crate) fn buffer(&self) -> &Buffer {
        &self.buffer
    }
}

/// Where a buffer of this driver begins on the device.
pub(crate) fn address_of(buffer: &Buffer) -> Option<u64> {
    buffer.storage().as_any().downcast_ref::<Block>().map(Block::address)
}
