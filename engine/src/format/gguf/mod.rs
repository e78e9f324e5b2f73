//! GGUF versions 2 and 3, little-endian (specification: `docs/gguf.md` of ggml).
//!
//! A file is: magic, version, counts; metadata key-value pairs; tensor infos; padding to
//! `general.alignment`; tensor data. A model may be split over files named
//! `NAME-00001-of-00005.gguf`.

mod array;
mod cursor;
mod header;
mod json;
mod layout;
mod metadata;
mod split;
mod value;
mod writer;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

pub use array::{Array, StrArray};
pub use layout::{GgufLayout, GgufPlace};
pub use metadata::Metadata;
pub use value::{Kind, Value, ValueType};
pub use writer::{GgufBody, GgufWriter};

use super::{FormatFault, OpenOptions, SharedBytes, TensorInfo, TensorSource, file};
use crate::{Error, Result};

/// What is loaded here.
const FORMAT: file::Format = file::Format { name: "GGUF", check_start: header::check_start };

/// An open GGUF model: one file, or all shards of a split one.
#[derive(Debug)]
pub struct GgufFile {
    path: PathBuf,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    index: HashMap<String, usize>,
    version: u32,
    alignment: u32,
    shards: u32,
}

impl GgufFile {
    /// Opens a model. Any shard of a split model opens all of it.
    ///
    /// # Errors
    /// [`Error::Io`] when a file cannot be read, [`Error::Format`] when one is malformed
    /// or missing; the path in the error is that of the file at fault.
    pub fn open(path: &Path, opts: &OpenOptions) -> Result<Self> {
        let bytes = file::load(path, *opts, FORMAT)?;
        split::assemble(path, &bytes, |shard| file::load(shard, *opts, FORMAT))
    }

    /// Parses a model held in memory; `path` serves for messages. A shard of a split
    /// model is refused, since its siblings cannot be found.
    ///
    /// # Errors
    /// [`Error::Format`].
    pub fn from_bytes(path: &Path, bytes: SharedBytes) -> Result<Self> {
        if bytes.is_empty() {
            return Err(Error::format(path, FormatFault::Empty));
        }
        split::assemble(path, &bytes, |shard| {
            Err(Error::io(shard, std::io::ErrorKind::NotFound.into()))
        })
    }

    /// The metadata, of the first shard when there are several.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Format version, 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Alignment of tensor data in bytes, within the first shard.
    pub fn alignment(&self) -> u32 {
        self.alignment
    }

    /// Number of files the model is spread over.
    pub fn shards(&self) -> u32 {
        self.shards
    }
}

impl TensorSource for GgufFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.index.get(name).and_then(|&i| self.tensors.get(i))
    }
}
