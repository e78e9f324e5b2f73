//! What can keep a model from being built.

use crate::device::DeviceFault;
use crate::format::{Detail, Shown};
use crate::tensor::{DType, Shape};

/// A fault of a model's configuration or weights. The file is named by
/// [`Error::Model`](crate::Error::Model). Text taken from the file is escaped and cut in
/// messages, whole in the fields.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelFault {
    /// No graph builder for this architecture.
    #[error("unknown architecture {}; this build runs: {known}", Shown(found))]
    UnknownArchitecture {
        /// As the file names it.
        found: String,
        /// What there is.
        known: String,
    },
    /// The folder has no `config.json`.
    #[error("no config.json beside the weights")]
    MissingConfig,
    /// A GGUF file with tokens and no tensor.
    #[error("the file holds only a vocabulary and no weights; it serves `foretoken tokenize`")]
    VocabularyOnly,
    /// A needed setting is absent.
    #[error("setting '{0}' is missing")]
    MissingSetting(String),
    /// A setting has a value no model can have, or one this build does not handle.
    #[error("setting '{key}' is {}: {rule}", Detail(value))]
    BadSetting {
        /// Key.
        key: String,
        /// Value found.
        value: String,
        /// What is allowed.
        rule: &'static str,
    },
    /// A needed tensor is absent.
    #[error("tensor '{0}' is missing")]
    MissingTensor(String),
    /// A tensor has another shape than the settings ask for.
    #[error("tensor '{tensor}' is {found}, expected {expected}")]
    WrongShape {
        /// Tensor name.
        tensor: String,
        /// Shape in the file.
        found: Shape,
        /// Shape wanted.
        expected: Shape,
    },
    /// A small tensor (norm, bias) has a type that does not decode to floats.
    #[error("tensor '{tensor}' has type {dtype}, which is not one of numbers")]
    NotNumeric {
        /// Tensor name.
        tensor: String,
        /// Its type.
        dtype: DType,
    },
    /// A small tensor holds a NaN or an infinity.
    #[error("tensor '{0}' holds a value that is not finite")]
    NotFinite(String),
    /// The device can not use a weight as it is stored.
    #[error("tensor '{tensor}': {fault}")]
    WeightRefused {
        /// Tensor name.
        tensor: String,
        /// The device's reason.
        fault: DeviceFault,
    },
    /// The device can not do what a session of this model needs.
    #[error("the device can not run this model: {0}")]
    SessionRefused(DeviceFault),
    /// Tokenizer and embedding table disagree.
    #[error("the tokenizer has {tokenizer} tokens, the embedding table {table} rows")]
    VocabMismatch {
        /// Tokens in the vocabulary.
        tokenizer: usize,
        /// Rows of the table.
        table: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_the_file_stays_short_and_on_one_line() {
        let text = "a\n\u{1b}".repeat(1 << 20);
        let known = "qwen3".to_owned();
        for fault in [
            ModelFault::UnknownArchitecture { found: text.clone(), known },
            ModelFault::BadSetting { key: "k".to_owned(), value: text.clone(), rule: "r" },
        ] {
            let line = fault.to_string();
            assert!(line.len() < 2000 && !line.contains(char::is_control), "{line}");
        }
    }
}
