//! Opening a draft.

use std::collections::HashSet;
use std::path::Path;

use super::config::DflashConfig;
use super::fault::DflashFault;
use super::naming::DflashNaming;
use super::weights::{EMBEDDING, HEAD, inventory};
use crate::error::{Error, Result};
use crate::format::{GgufFile, OpenOptions, SafetensorsModel, TensorSource};
use crate::model::{ModelFault, Provider};

/// A draft file, opened and understood, with no weight loaded yet. It needs no vocabulary.
pub struct DflashFile {
    /// Settings.
    pub config: DflashConfig,
    /// Weights under canonical names.
    pub provider: Provider,
    /// `general.name`, or the name of the file or folder.
    pub name: String,
}

impl DflashFile {
    /// Opens a GGUF file, or a safetensors file or folder with a `config.json`.
    ///
    /// # Errors
    /// Format faults, those of [`DflashConfig::from_gguf`], `MissingConfig`,
    /// `ReducedVocab`, `UnknownTensor`; each names the file.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Self> {
        if path.is_dir() || path.extension().is_some_and(|e| e == "safetensors") {
            Self::from_safetensors(SafetensorsModel::open(path, options)?)
        } else {
            Self::from_gguf(GgufFile::open(path, options)?)
        }
    }

    /// As [`open`](Self::open), from a GGUF file that is open already, perhaps in memory.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn from_gguf(file: GgufFile) -> Result<Self> {
        let config = DflashConfig::from_gguf(&file)?;
        let title = file.metadata().str("general.name")?.map(str::to_owned);
        let name = title.unwrap_or_else(|| stem(file.path()));
        let naming = DflashNaming::gguf(&file);
        let provider = Provider::new(Box::new(file), Box::new(naming));
        Self { config, provider, name }.checked()
    }

    fn from_safetensors(model: SafetensorsModel) -> Result<Self> {
        let path = model.path();
        let settings = model.config();
        let settings = settings.ok_or_else(|| Error::model(path, ModelFault::MissingConfig))?;
        let config = DflashConfig::from_hf(path, settings)?;
        let name = stem(path);
        let naming = DflashNaming::safetensors(&model);
        let provider = Provider::new(Box::new(model), Box::new(naming));
        Self { config, provider, name }.checked()
    }

    /// Every tensor must have its place: one left out (a bias, a convolution, a head
    /// over other tokens) would lower acceptance without a word.
    fn checked(self) -> Result<Self> {
        let mut known = HashSet::new();
        let needed = inventory(&self.config).into_iter().map(|need| need.name);
        for name in needed.chain([EMBEDDING.to_owned(), HEAD.to_owned()]) {
            let stem = name.strip_suffix(".weight").unwrap_or(&name);
            for name in [name.clone(), format!("{stem}.scale"), format!("{name}.scale")] {
                known.extend(self.provider.find(&name).map(|(info, _)| info.name()));
            }
        }
        let source = self.provider.source();
        let stranger = source.tensors().iter().map(|t| t.name()).find(|name| {
            // The frequencies of the rotary embedding follow from its base.
            !known.contains(name) && !name.ends_with("rotary_emb.inv_freq")
        });
        match stranger {
            Some(name) => Err(Error::draft(source.path(), stranger_fault(name))),
            None => Ok(self),
        }
    }
}

/// What a tensor says that a draft of this kind does not have.
fn stranger_fault(name: &str) -> DflashFault {
    let bare = name.strip_prefix("model.").unwrap_or(name);
    let tensor = name.chars().take(200).collect();
    if matches!(bare.strip_suffix(".weight").unwrap_or(bare), "d2t" | "t2d") {
        return DflashFault::ReducedVocab { tensor };
    }
    if bare.contains("_conv") || bare.contains("selector") {
        return DflashFault::Dflash2 { found: tensor };
    }
    DflashFault::UnknownTensor(tensor)
}

fn stem(path: &Path) -> String {
    path.file_stem().map_or_else(|| "draft".to_owned(), |s| s.to_string_lossy().into_owned())
}
