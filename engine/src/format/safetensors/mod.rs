//! safetensors (format description: the README of `huggingface/safetensors`), alone or in
//! shards with an index, with the `config.json` beside them.
//!
//! A file is: `u64` header length, a JSON object of tensors, their data without holes.

mod header;
mod index;
mod json;

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::{FormatFault, OpenOptions, SharedBytes, TensorInfo, TensorSource, file};
use crate::{Error, Result};
use header::Contents;

/// A `config.json` is a few kilobytes. Read, its JSON takes some thirty times as much.
const MAX_CONFIG: u64 = 1 << 20;

/// What is loaded here.
const FORMAT: file::Format =
    file::Format { name: "safetensors", check_start: |s, n| header::check_start(s, n).map(drop) };

/// An open safetensors model: one file, or a folder of shards.
#[derive(Debug)]
pub struct SafetensorsModel {
    path: PathBuf,
    config: Option<serde_json::Value>,
    tensors: Vec<TensorInfo>,
    index: HashMap<String, usize>,
    unusable: HashMap<String, Unusable>,
}

/// A tensor that is well-formed but that the engine cannot hold, and the file it is in.
#[derive(Debug)]
struct Unusable {
    file: PathBuf,
    fault: FormatFault,
}

impl SafetensorsModel {
    /// Opens a folder or a `.safetensors` file. In a folder, `model.safetensors` is looked
    /// for first, then `model.safetensors.index.json`, then a single `.safetensors` file. A
    /// `config.json` in the same folder is read in all cases.
    ///
    /// # Errors
    /// [`Error::Io`] when a file cannot be read, [`Error::Format`] when one is malformed
    /// or missing; the path in the error is that of the file at fault.
    pub fn open(path: &Path, opts: &OpenOptions) -> Result<Self> {
        let is_folder = std::fs::metadata(path).map_err(|e| Error::io(path, e))?.is_dir();
        let (folder, weights) = if is_folder {
            (path, index::find(path)?)
        } else {
            (path.parent().unwrap_or(Path::new("")), index::Weights::File(path.to_path_buf()))
        };
        let config = config(&folder.join("config.json"))?;
        let mut model = Self::empty(path, config);
        match weights {
            index::Weights::File(file) => {
                let bytes = file::load(&file, *opts, FORMAT)?;
                model.add(&file, &bytes)?;
            }
            index::Weights::Sharded(listing) => model.add_shards(&listing, *opts)?,
        }
        Ok(model)
    }

    /// Parses one file held in memory; `path` serves for messages.
    ///
    /// # Errors
    /// [`Error::Format`].
    pub fn from_bytes(path: &Path, bytes: SharedBytes) -> Result<Self> {
        let mut model = Self::empty(path, None);
        model.add(path, &bytes)?;
        Ok(model)
    }

    /// The `config.json` beside the weights, an object.
    pub fn config(&self) -> Option<&serde_json::Value> {
        self.config.as_ref()
    }

    fn empty(path: &Path, config: Option<serde_json::Value>) -> Self {
        Self {
            path: path.to_path_buf(),
            config,
            tensors: Vec::new(),
            index: HashMap::new(),
            unusable: HashMap::new(),
        }
    }

    /// Takes in the tensors of one file.
    fn add(&mut self, file: &Path, bytes: &SharedBytes) -> Result<()> {
        let fail = |fault| Error::format(file, fault);
        let Contents { tensors, unusable } = header::parse(bytes).map_err(fail)?;
        for info in tensors {
            if self.holds(&info.name) {
                return Err(fail(FormatFault::DuplicateTensor { tensor: info.name }));
            }
            self.index.insert(info.name.clone(), self.tensors.len());
            self.tensors.push(info);
        }
        for (tensor, fault) in unusable {
            if self.holds(&tensor) {
                return Err(fail(FormatFault::DuplicateTensor { tensor }));
            }
            self.unusable.insert(tensor, Unusable { file: file.to_path_buf(), fault });
        }
        Ok(())
    }

    fn add_shards(&mut self, listing: &index::Listing, opts: OpenOptions) -> Result<()> {
        for (name, promised) in &listing.shards {
            let file = listing.folder.join(name);
            let bytes = file::load(&file, opts, FORMAT).map_err(|e| match e {
                Error::Io { path, source } if source.kind() == ErrorKind::NotFound => {
                    Error::format(path, FormatFault::MissingIndexed)
                }
                other => other,
            })?;
            let before = self.tensors.len();
            self.add(&file, &bytes)?;
            for tensor in promised {
                let here = self.index.get(tensor).is_some_and(|&i| i >= before)
                    || self.unusable.get(tensor).is_some_and(|u| u.file == file);
                if !here {
                    let tensor = tensor.clone();
                    return Err(Error::format(&file, FormatFault::NotInShard { tensor }));
                }
            }
        }
        Ok(())
    }

    fn holds(&self, name: &str) -> bool {
        self.index.contains_key(name) || self.unusable.contains_key(name)
    }
}

impl TensorSource for SafetensorsModel {
    fn path(&self) -> &Path {
        &self.path
    }

    fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.index.get(name).and_then(|&i| self.tensors.get(i))
    }

    fn require(&self, name: &str) -> Result<&TensorInfo> {
        self.tensor(name).ok_or_else(|| match self.unusable.get(name) {
            Some(u) => Error::format(&u.file, u.fault.clone()),
            None => {
                let tensor = name.to_owned();
                Error::format(&self.path, FormatFault::MissingTensor { tensor })
            }
        })
    }
}

/// Reads `config.json`, which may be absent but not malformed.
fn config(path: &Path) -> Result<Option<serde_json::Value>> {
    let Some(text) = file::read_small(path, "config.json", MAX_CONFIG)? else {
        return Ok(None);
    };
    let map: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&text)
        .map_err(|e| Error::format(path, json::fault("not the JSON of a config", &e)))?;
    Ok(Some(map.into()))
}
