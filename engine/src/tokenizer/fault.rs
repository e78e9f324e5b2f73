//! What can go wrong with a tokenizer.

/// A fault of building or using a tokenizer.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerFault {
    /// The pre-tokenizer is not one this build knows.
    #[error("unknown pre-tokenizer '{0}'")]
    UnknownPre(String),
}
