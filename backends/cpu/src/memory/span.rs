//! Typed windows on device memory.

use std::marker::PhantomData;
use std::ops::{Deref, Range};

use foretoken::device::Buffer;
use foretoken::tensor::Tensor;

use super::Block;

/// Plain numbers.
///
/// # Safety
/// Every bit pattern is a value, and there is no padding.
pub(crate) unsafe trait Plain: Copy + Send + Sync + 'static {}

macro_rules! plain {
    ($($t:ty)*) => {
        // SAFETY: a primitive number.
        $(unsafe impl Plain for $t {})*
    };
}
plain!(u8 i8 u16 i32 u32 i64 u64 f32 f64);

/// A window of `len` values: a pointer and a length, bounds-checked at each use.
///
/// Invariant: the memory is initialised, aligned for `T` and stays allocated while
/// the span is used (a [`View`] keeps its buffer; scratch lives through a launch).
pub(crate) struct Span<T> {
    start: *mut T,
    len: usize,
    _of: PhantomData<T>,
}

impl<T> Clone for Span<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Span<T> {}

// SAFETY: a span is an address; each access states in its own SAFETY line why no
// other thread touches the range.
unsafe impl<T: Plain> Send for Span<T> {}
// SAFETY: as above.
unsafe impl<T: Plain> Sync for Span<T> {}

impl<T: Plain> Span<T> {
    /// A window on raw memory.
    ///
    /// # Safety
    /// `start` is aligned and `len` values behind it are initialised, and stay
    /// allocated for as long as any copy of the span is used.
    pub(crate) unsafe fn from_raw(start: *mut T, len: usize) -> Self {
        Self { start, len, _of: PhantomData }
    }

    /// An empty window.
    pub(crate) fn empty() -> Self {
        Self { start: std::ptr::dangling_mut(), len: 0, _of: PhantomData }
    }

    /// Values in the window.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Part of the window. Panics when it is not inside.
    pub(crate) fn part(&self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len, "span range");
        // SAFETY: inside this window, so valid for as long as it is.
        unsafe { Self::from_raw(self.start.add(range.start), range.end - range.start) }
    }

    /// The same memory seen as values of another type, as many as fit. Panics when
    /// it is not aligned for them.
    pub(crate) fn cast<U: Plain>(&self) -> Span<U> {
        let start = self.start.cast::<U>();
        assert!(start.is_aligned(), "span alignment");
        let len = self.len * size_of::<T>() / size_of::<U>();
        // SAFETY: same memory, aligned, no longer in bytes; every bit pattern is a
        // value of either type.
        unsafe { Span::from_raw(start, len) }
    }

    /// First address, for kernels whose parts are not contiguous ranges.
    pub(crate) fn as_mut_ptr(&self) -> *mut T {
        self.start
    }

    /// Borrows a range for reading. Panics when it is not inside the window.
    ///
    /// # Safety
    /// No thread writes to the range while the borrow lives.
    pub(crate) unsafe fn read<'a>(&self, range: Range<usize>) -> &'a [T] {
        let part = self.part(range);
        // SAFETY: in bounds, aligned, initialised (type invariant); unwritten (caller).
        unsafe { std::slice::from_raw_parts(part.start, part.len) }
    }

    /// One value. Panics when it is not inside the window.
    ///
    /// # Safety
    /// No thread writes to it meanwhile.
    pub(crate) unsafe fn value(&self, at: usize) -> T {
        // SAFETY: the caller's promise.
        let one = unsafe { self.read(at..at + 1) };
        one[0]
    }

    /// Borrows a range for writing. Panics when it is not inside the window.
    ///
    /// # Safety
    /// No other borrow, of any thread, overlaps the range while this one lives.
    pub(crate) unsafe fn write<'a>(&self, range: Range<usize>) -> &'a mut [T] {
        let part = self.part(range);
        // SAFETY: in bounds, aligned, initialised (type invariant); exclusive (caller).
        unsafe { std::slice::from_raw_parts_mut(part.start, part.len) }
    }

    /// First address and one past the last, to compare windows.
    pub(crate) fn addresses(&self) -> Range<usize> {
        let start = self.start as usize;
        start..start + self.len * size_of::<T>()
    }
}

/// A [`Span`] over a tensor's elements that keeps the buffer alive.
#[derive(Clone)]
pub(crate) struct View<T> {
    span: Span<T>,
    _buffer: Buffer,
}

impl<T: Plain> View<T> {
    /// The tensor's memory as values of `T`; `None` when the buffer is not a CPU
    /// buffer or the view is not aligned for `T`.
    pub(crate) fn of(tensor: &Tensor) -> Option<Self> {
        let bytes = bytes_of(tensor.buffer())?;
        let end = tensor.offset().checked_add(tensor.bytes())?;
        if end > bytes.len() {
            return None;
        }
        let part = bytes.part(tensor.offset()..end);
        if part.addresses().start % align_of::<T>() != 0 {
            return None;
        }
        Some(Self { span: part.cast(), _buffer: tensor.buffer().clone() })
    }
}

impl<T> Deref for View<T> {
    type Target = Span<T>;

    fn deref(&self) -> &Span<T> {
        &self.span
    }
}

/// The memory of a buffer of this driver.
pub(crate) fn bytes_of(buffer: &Buffer) -> Option<Span<u8>> {
    buffer.storage().as_any().downcast_ref::<Block>().map(Block::span)
}
