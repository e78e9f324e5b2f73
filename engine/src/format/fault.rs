//! What can be wrong with a model file.

/// A fault of a model file. The file's name is added by [`Error`](crate::Error).
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatFault {
    /// The file has no bytes.
    #[error("the file is empty")]
    Empty,
}
