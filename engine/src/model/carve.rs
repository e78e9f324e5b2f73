//! Carving tensors out of one reserved buffer.

use crate::device::{Buffer, BufferStorage, DeviceFault};
use crate::error::Result;
use crate::tensor::{DType, Shape, Tensor};

/// Hands out consecutive aligned pieces; without a buffer it only counts.
pub(crate) struct Carver<'a> {
    buffer: Option<&'a Buffer>,
    pub(crate) offset: usize,
    pub(crate) end: usize,
}

const ALIGN: usize = 64;

impl<'a> Carver<'a> {
    /// Only counts.
    pub(crate) fn counting() -> Self {
        Self { buffer: None, offset: 0, end: 0 }
    }

    /// Hands out pieces of `buffer`.
    pub(crate) fn over(buffer: &'a Buffer) -> Self {
        Self { buffer: Some(buffer), offset: 0, end: 0 }
    }

    fn reserve(&mut self, bytes: usize) -> Result<usize, DeviceFault> {
        let start = self.offset;
        let too_large = DeviceFault::BadOperands { op: "scratch", detail: "the size overflows" };
        let end = start.checked_add(bytes).and_then(|e| e.checked_next_multiple_of(ALIGN));
        self.offset = end.ok_or(too_large)?;
        self.end = self.end.max(self.offset);
        Ok(start)
    }

    /// One piece seen in several shapes of the same size.
    pub(crate) fn views<const N: usize>(
        &mut self,
        dtype: DType,
        dims: [&[usize]; N],
        dummy: &Buffer,
    ) -> Result<[Tensor; N]> {
        let too_large = DeviceFault::BadOperands { op: "scratch", detail: "the size overflows" };
        let mut shapes = [Shape::vector(0); N];
        for (shape, dims) in shapes.iter_mut().zip(dims) {
            *shape = Shape::new(dims).ok_or(too_large.clone())?;
        }
        let bytes = dtype.bytes_for(shapes.first().map_or(0, Shape::elements)).ok_or(too_large)?;
        let start = self.reserve(bytes)?;
        let mut out = Vec::with_capacity(N);
        for shape in shapes {
            out.push(match self.buffer {
                Some(b) => Tensor::new(b, start, dtype, shape)?,
                None => Tensor::new(dummy, 0, dtype, Shape::vector(0))?,
            });
        }
        let wrong = |_| DeviceFault::BadOperands { op: "scratch", detail: "view count" };
        Ok(out.try_into().map_err(wrong)?)
    }
}

/// The buffer that stands in while sizes are only counted.
pub(crate) fn nothing() -> Buffer {
    Buffer::new(0, 0, std::sync::Arc::new(Nothing))
}

/// Storage of the buffer that stands in while sizes are only counted.
struct Nothing;

impl BufferStorage for Nothing {
    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}
