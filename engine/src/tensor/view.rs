//! Tensors: typed, shaped views of a buffer.

use crate::device::{Buffer, DeviceFault};
use crate::tensor::{DType, Shape};

/// A contiguous row-major view of part of a [`Buffer`].
#[derive(Clone, Debug)]
pub struct Tensor {
    buffer: Buffer,
    offset: usize,
    dtype: DType,
    shape: Shape,
}

impl Tensor {
    /// A view of `shape` elements of `dtype` starting `offset` bytes into the buffer.
    ///
    /// # Errors
    /// `OutOfBounds` when the view does not fit, `BadOperands` when a row is not whole
    /// blocks or the offset is not aligned to the element.
    pub fn new(
        buffer: &Buffer,
        offset: usize,
        dtype: DType,
        shape: Shape,
    ) -> Result<Self, DeviceFault> {
        let bad = |detail| DeviceFault::BadOperands { op: "tensor", detail };
        let row = dtype.bytes_for(shape.row_len()).ok_or(bad("a row is not whole blocks"))?;
        let bytes = row.checked_mul(shape.rows()).ok_or(bad("the size overflows"))?;
        if !dtype.is_block() && !offset.is_multiple_of(dtype.block_bytes()) {
            return Err(bad("the offset is not aligned to the element"));
        }
        let end = offset.checked_add(bytes).ok_or(bad("the size overflows"))?;
        if end > buffer.bytes() {
            let size = buffer.bytes();
            return Err(DeviceFault::OutOfBounds { what: "tensor", start: offset, end, size });
        }
        Ok(Self { buffer: buffer.clone(), offset, dtype, shape })
    }

    /// The memory behind the view.
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// First byte within the buffer.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Element or block type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Shape, outermost dimension first.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        // Checked when the view was made.
        self.shape.elements() / self.dtype.block_len() * self.dtype.block_bytes()
    }

    /// The first `rows` entries along the outermost dimension; the same memory.
    ///
    /// # Errors
    /// `BadOperands` when there are fewer.
    pub fn first_rows(&self, rows: usize) -> Result<Self, DeviceFault> {
        let bad = |detail| DeviceFault::BadOperands { op: "tensor", detail };
        let dims = self.shape.dims();
        let (&all, inner) = dims.split_first().ok_or(bad("no dimensions"))?;
        if rows > all {
            return Err(bad("a view of more rows than there are"));
        }
        let dims: Vec<usize> = std::iter::once(rows).chain(inner.iter().copied()).collect();
        let shape = Shape::new(&dims).ok_or(bad("the size overflows"))?;
        Self::new(&self.buffer, self.offset, self.dtype, shape)
    }
}
