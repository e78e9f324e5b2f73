//! One buffer handed out in pieces.

use std::any::Any;
use std::sync::Arc;

use crate::device::{Buffer, BufferStorage, DeviceFault};
use crate::error::Result;
use crate::tensor::{DType, Shape, Tensor};

/// Hands out consecutive aligned pieces of a buffer, or only counts what they take.
pub(crate) struct Carver {
    buffer: Buffer,
    counting: bool,
    offset: usize,
    end: usize,
}

const ALIGN: usize = 64;

impl Carver {
    /// Counts; the tensors it gives are empty.
    pub(crate) fn counting() -> Self {
        let buffer = Buffer::new(0, 0, Arc::new(Nothing));
        Self { buffer, counting: true, offset: 0, end: 0 }
    }

    /// Carves a buffer up.
    pub(crate) fn over(buffer: Buffer) -> Self {
        Self { buffer, counting: false, offset: 0, end: 0 }
    }

    /// Bytes taken so far, at most.
    pub(crate) fn bytes(&self) -> usize {
        self.end
    }

    /// Where the next piece begins.
    pub(crate) fn mark(&self) -> usize {
        self.offset
    }

    /// Goes back to a mark: later pieces share memory with those after it.
    pub(crate) fn rewind(&mut self, mark: usize) {
        self.offset = mark;
    }

    fn reserve(&mut self, bytes: usize) -> Result<usize, DeviceFault> {
        let start = self.offset;
        let end = start.checked_add(bytes).and_then(|e| e.checked_next_multiple_of(ALIGN));
        self.offset = end.ok_or_else(too_large)?;
        self.end = self.end.max(self.offset);
        Ok(start)
    }

    /// One piece seen in several shapes of the same size.
    ///
    /// # Errors
    /// `BadOperands` when a size overflows, `OutOfBounds` past the end of the buffer.
    pub(crate) fn views<const N: usize>(
        &mut self,
        dtype: DType,
        dims: [&[usize]; N],
    ) -> Result<[Tensor; N]> {
        let mut shapes = [Shape::vector(0); N];
        for (shape, dims) in shapes.iter_mut().zip(dims) {
            *shape = Shape::new(dims).ok_or_else(too_large)?;
        }
        let elements = shapes.first().map_or(0, Shape::elements);
        let start = self.reserve(dtype.bytes_for(elements).ok_or_else(too_large)?)?;
        let mut out = Vec::with_capacity(N);
        for shape in shapes {
            let (start, shape) = if self.counting { (0, Shape::vector(0)) } else { (start, shape) };
            out.push(Tensor::new(&self.buffer, start, dtype, shape)?);
        }
        let wrong = |_| DeviceFault::BadOperands { op: "scratch", detail: "view count" };
        Ok(out.try_into().map_err(wrong)?)
    }
}

fn too_large() -> DeviceFault {
    DeviceFault::BadOperands { op: "scratch", detail: "the size overflows" }
}

/// Storage of the buffer that stands in while sizes are only counted.
struct Nothing;

impl BufferStorage for Nothing {
    fn as_any(&self) -> &dyn Any {
        self
    }
}
