//! The crate's one error type. Each family of faults has its own enum beside
//! the code that raises it, so that a caller can match on the exact cause.

use std::path::{Path, PathBuf};

use crate::device::DeviceFault;
use crate::format::{FormatFault, ShownPath};
use crate::generate::GenerateFault;
use crate::model::ModelFault;
use crate::quant::QuantFault;
use crate::sample::RequestFault;
use crate::speculate::SpeculateFault;
use crate::speculate::dflash::DflashFault;
use crate::tokenizer::{TemplateFault, TokenizerFault};

/// Shorthand for results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong in the engine. Messages are one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused a file operation.
    #[error("{}: {source}", ShownPath(path))]
    Io {
        /// The file that was touched.
        path: PathBuf,
        /// The system's own words.
        source: std::io::Error,
    },
    /// A model file is malformed or holds something unusable.
    #[error("{}: {fault}", ShownPath(path))]
    Format {
        /// The file that was read.
        path: PathBuf,
        /// What is wrong with it.
        fault: FormatFault,
    },
    /// A quantised block could not be decoded or encoded.
    #[error(transparent)]
    Quant(#[from] QuantFault),
    /// A tokenizer could not be built or used.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerFault),
    /// The tokenizer in a file is unusable.
    #[error("{}: {fault}", ShownPath(path))]
    TokenizerFile {
        /// The file that was read.
        path: PathBuf,
        /// What is wrong with its tokenizer.
        fault: Box<TokenizerFault>,
    },
    /// A model's settings or weights are unusable.
    #[error("{}: {fault}", ShownPath(path))]
    Model {
        /// The model's file or folder.
        path: PathBuf,
        /// What is wrong.
        fault: Box<ModelFault>,
    },
    /// A draft can not be used, alone or with its target.
    #[error("{}: {fault}", ShownPath(path))]
    Draft {
        /// The draft's file or folder.
        path: PathBuf,
        /// What is wrong.
        fault: Box<DflashFault>,
    },
    /// A request can not be served as asked.
    #[error(transparent)]
    Generate(#[from] GenerateFault),
    /// A chat template could not be compiled or run.
    #[error(transparent)]
    Template(#[from] TemplateFault),
    /// A driver or device refused or failed.
    #[error(transparent)]
    Device(#[from] DeviceFault),
    /// A setting or measurement that speculation can not work with.
    #[error(transparent)]
    Speculate(#[from] SpeculateFault),
    /// A request asks for something out of range, or cannot go on.
    #[error(transparent)]
    Request(#[from] RequestFault),
}

impl Error {
    /// Ties a system error to the file it happened on.
    pub fn io(path: impl AsRef<Path>, source: std::io::Error) -> Self {
        Self::Io { path: path.as_ref().to_path_buf(), source }
    }

    /// Ties a model fault to the file it was found in.
    pub fn model(path: impl AsRef<Path>, fault: ModelFault) -> Self {
        Self::Model { path: path.as_ref().to_path_buf(), fault: Box::new(fault) }
    }

    /// Ties a draft's fault to the file it was found in.
    pub fn draft(path: impl AsRef<Path>, fault: DflashFault) -> Self {
        Self::Draft { path: path.as_ref().to_path_buf(), fault: Box::new(fault) }
    }

    /// Ties a tokenizer's fault to the file it was found in; other errors stay as they are.
    pub(crate) fn in_tokenizer_file(self, path: &Path) -> Self {
        match self {
            Self::Tokenizer(fault) => {
                Self::TokenizerFile { path: path.to_path_buf(), fault: Box::new(fault) }
            }
            other => other,
        }
    }

    /// Ties a format fault to the file it was found in.
    pub fn format(path: impl AsRef<Path>, fault: FormatFault) -> Self {
        Self::Format { path: path.as_ref().to_path_buf(), fault }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_stay_on_one_line_whatever_the_path() {
        let path = "a\nb";
        let gone = std::io::Error::from(std::io::ErrorKind::NotFound);
        let errors = [
            Error::io(path, gone),
            Error::model(path, ModelFault::MissingConfig),
            Error::format(path, FormatFault::Empty),
        ];
        for message in errors.map(|error| error.to_string()) {
            assert!(message.starts_with("a\\nb: ") && message.lines().count() == 1, "{message}");
        }
    }
}
