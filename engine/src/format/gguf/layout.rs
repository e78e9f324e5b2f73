//! Where the parts of a GGUF file lie before any tensor data exists.

use crate::tensor::{DType, Shape};

/// A declared file: its head, ready to be written at 0, and the place of every tensor,
/// for writers that fill tensors in any order or from several threads.
///
/// Bytes between tensors (padding to the alignment) are zero; a file that was set to
/// [`len`](Self::len) before it is filled has them already.
#[derive(Clone, Debug)]
pub struct GgufLayout {
    /// Everything up to the data: magic, counts, metadata, tensor infos, padding.
    pub head: Vec<u8>,
    /// Tensors in the order of declaration, which is that of their places.
    pub tensors: Vec<GgufPlace>,
    /// Bytes of the whole file.
    pub len: u64,
}

/// A tensor's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GgufPlace {
    /// Name.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Dimensions, outermost first.
    pub shape: Shape,
    /// Where its data begins, in bytes from the start of the file.
    pub start: u64,
    /// Bytes of its data.
    pub bytes: u64,
}
