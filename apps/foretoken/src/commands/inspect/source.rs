//! A model file of either format, opened without asking whether it can be run.

use std::path::{Path, PathBuf};

use anyhow::Result;
use foretoken::Error;
use foretoken::format::{GgufFile, OpenOptions, SafetensorsModel, TensorSource};
use foretoken::model::ModelFile;
use foretoken::speculate::dflash::{DflashConfig, DflashFault};

use super::metadata::MetadataReport;
use crate::load::open_located;
use crate::models::{Located, locate};

/// The file's contents.
pub(super) struct Source {
    located: Located,
    path: PathBuf,
    contents: Contents,
}

enum Contents {
    Gguf(GgufFile),
    Safetensors(SafetensorsModel),
}

impl Source {
    /// Finds and opens a file or folder.
    pub(super) fn open(asked: Option<&Path>, options: &OpenOptions) -> Result<Self> {
        let located = locate(asked)?;
        let (path, contents) = match &located {
            Located::Path(path) if is_safetensors(path) => {
                (path.clone(), Contents::Safetensors(SafetensorsModel::open(path, options)?))
            }
            Located::Path(path) => (path.clone(), Contents::Gguf(GgufFile::open(path, options)?)),
            Located::Embedded { name, bytes } => {
                let path = PathBuf::from(name);
                let file = GgufFile::from_bytes(&path, bytes.clone())?;
                (path, Contents::Gguf(file))
            }
        };
        Ok(Self { located, path, contents })
    }

    /// The model, if this build can run it.
    pub(super) fn model(&self, options: &OpenOptions) -> Result<ModelFile> {
        open_located(self.located.clone(), options)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn format(&self) -> &'static str {
        match &self.contents {
            Contents::Gguf(_) => "gguf",
            Contents::Safetensors(_) => "safetensors",
        }
    }

    pub(super) fn tensors(&self) -> &dyn TensorSource {
        match &self.contents {
            Contents::Gguf(file) => file,
            Contents::Safetensors(model) => model,
        }
    }

    /// As the file names it; a name that is not text counts as none.
    pub(super) fn architecture(&self) -> Option<&str> {
        match &self.contents {
            Contents::Gguf(file) => file.metadata().str("general.architecture").ok().flatten(),
            Contents::Safetensors(model) => model.config()?.get("model_type")?.as_str(),
        }
    }

    /// The settings of a DFlash draft, if this is one.
    pub(super) fn draft(&self) -> Option<Result<DflashConfig, Error>> {
        let read = match &self.contents {
            Contents::Gguf(file) => {
                self.architecture()?;
                DflashConfig::from_gguf(file)
            }
            Contents::Safetensors(model) => DflashConfig::from_hf(&self.path, model.config()?),
        };
        match read {
            Err(Error::Draft { fault, .. }) if matches!(*fault, DflashFault::NotDflash { .. }) => {
                None
            }
            read => Some(read),
        }
    }

    pub(super) fn metadata(&self) -> MetadataReport<'_> {
        match &self.contents {
            Contents::Gguf(file) => MetadataReport::Gguf(file.metadata()),
            Contents::Safetensors(model) => MetadataReport::Config(model.config()),
        }
    }
}

fn is_safetensors(path: &Path) -> bool {
    path.is_dir() || path.extension().is_some_and(|e| e == "safetensors")
}
