//! What can go wrong with blocks.

use crate::tensor::DType;

/// A fault of decoding or encoding blocks.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum QuantFault {
    /// No codec for this type.
    #[error("no codec for {0} blocks")]
    NoCodec(DType),
}
