//! What can go wrong with blocks.

use crate::tensor::DType;

/// A fault of decoding or encoding blocks.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum QuantFault {
    /// Nothing here reads this type.
    #[error("no codec for {0} blocks: convert the tensor to a supported type")]
    NoCodec(DType),
    /// The type is not made of codes with a scale, so it has no affine form.
    #[error("{0} has no affine form: decode it instead")]
    NotAffine(DType),
    /// The input is not a whole number of blocks.
    #[error("{bytes} bytes are not whole {dtype} blocks of {} bytes", dtype.block_bytes())]
    PartialBlock {
        /// The block type.
        dtype: DType,
        /// Bytes that were given.
        bytes: usize,
    },
    /// A slice does not have the length that the input calls for.
    #[error("{what} of {dtype} must hold {expected} items, not {actual}")]
    Length {
        /// The block type.
        dtype: DType,
        /// Which slice.
        what: &'static str,
        /// Items needed.
        expected: usize,
        /// Items given.
        actual: usize,
    },
    /// Nothing here writes this type.
    #[error("no encoder for {0}: use F32, F16, BF16, Q8_0, Q4_0, Q4_K or Q6_K")]
    NoEncoder(DType),
    /// The values are not a whole number of blocks.
    #[error("{values} values are not whole {dtype} blocks of {}", dtype.block_len())]
    PartialRow {
        /// The block type.
        dtype: DType,
        /// Values that were given.
        values: usize,
    },
    /// A value to encode is infinite or not a number.
    #[error("value {index} is {value}: only finite values can be stored as {dtype}")]
    NotFinite {
        /// The type to encode to.
        dtype: DType,
        /// Which value.
        index: usize,
        /// The value.
        value: f32,
    },
    /// A value or the scale of its block is beyond what the type can hold.
    #[error("the block at value {index} is too large for {dtype}: scale the tensor down")]
    OutOfRange {
        /// The type to encode to.
        dtype: DType,
        /// First value of the block.
        index: usize,
    },
    /// A row beyond the end of a matrix was asked for.
    #[error("row {row} of {dtype} lies beyond the {bytes} bytes of the matrix")]
    NoSuchRow {
        /// The block type.
        dtype: DType,
        /// Row asked for.
        row: usize,
        /// Bytes of the matrix.
        bytes: usize,
    },
}
