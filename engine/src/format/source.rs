//! Tensors by name, whatever file format they come from.

use std::path::Path;

use super::{FormatFault, SharedBytes};
use crate::tensor::{DType, Shape};
use crate::{Error, Result};

/// One tensor of a model file: its name, type and shape, and where its bytes are.
#[derive(Clone, Debug)]
pub struct TensorInfo {
    pub(super) name: String,
    pub(super) dtype: DType,
    pub(super) shape: Shape,
    pub(super) data: SharedBytes,
}

impl TensorInfo {
    /// A tensor over bytes in memory, for sources other than those of this module.
    ///
    /// # Errors
    /// `ZeroDim`, `PartialBlocks`, `SizeOverflow`, and `WrongLength` when `data` is not
    /// exactly what `shape` and `dtype` take.
    pub fn new(
        name: &str,
        dtype: DType,
        shape: Shape,
        data: SharedBytes,
    ) -> Result<Self, FormatFault> {
        let (name, found) = (name.to_owned(), data.len());
        let wanted = storage(&name, dtype, shape)?;
        if found != wanted {
            return Err(FormatFault::WrongLength { tensor: name, found, wanted });
        }
        Ok(Self { name, dtype, shape, data })
    }

    /// Its name in the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How its numbers are stored. Rows are whole blocks of this type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Its shape, outermost dimension first. GGUF files list dimensions the other way
    /// around; they are reversed on reading. No dimension is zero.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Bytes it takes in the file, always those of its shape and type.
    pub fn bytes(&self) -> usize {
        self.data.len()
    }
}

/// Bytes a tensor takes; it has no dimension of zero and its rows are whole blocks.
pub(super) fn storage(tensor: &str, dtype: DType, shape: Shape) -> Result<usize, FormatFault> {
    let tensor = || tensor.to_owned();
    if shape.dims().contains(&0) {
        return Err(FormatFault::ZeroDim { tensor: tensor() });
    }
    let row = shape.row_len();
    if !row.is_multiple_of(dtype.block_len()) {
        return Err(FormatFault::PartialBlocks { tensor: tensor(), dtype, row });
    }
    dtype.bytes_for(shape.elements()).ok_or_else(|| FormatFault::SizeOverflow { tensor: tensor() })
}

/// A model file (or several that make one model) as a set of named tensors.
pub trait TensorSource: Send + Sync {
    /// The path that was opened, for messages.
    fn path(&self) -> &Path;

    /// All usable tensors, in the order of the file (of its shards in turn).
    fn tensors(&self) -> &[TensorInfo];

    /// The tensor with this name. A tensor whose type or rank the engine cannot hold is
    /// not found here; [`require`](Self::require) says so.
    fn tensor(&self, name: &str) -> Option<&TensorInfo>;

    /// The bytes of a tensor: a view of the mapped file, copied nowhere. It may start at
    /// any address (readers of multi-byte values must not assume alignment) and keeps
    /// the mapping alive.
    fn data(&self, info: &TensorInfo) -> SharedBytes {
        info.data.clone()
    }

    /// The tensor with this name.
    ///
    /// # Errors
    /// [`FormatFault::MissingTensor`], or the reason why the engine cannot hold it.
    fn require(&self, name: &str) -> Result<&TensorInfo> {
        self.tensor(name).ok_or_else(|| {
            Error::format(self.path(), FormatFault::MissingTensor { tensor: name.to_owned() })
        })
    }

    /// The tensor with this name, which must have this shape (outermost first).
    ///
    /// # Errors
    /// Those of [`require`](Self::require), and [`FormatFault::WrongShape`].
    fn require_shaped(&self, name: &str, wanted: Shape) -> Result<&TensorInfo> {
        let info = self.require(name)?;
        if info.shape != wanted {
            let (found, wanted) = (Box::new(info.shape), Box::new(wanted));
            let fault = FormatFault::WrongShape { tensor: name.to_owned(), found, wanted };
            return Err(Error::format(self.path(), fault));
        }
        Ok(info)
    }
}
