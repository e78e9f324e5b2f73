//! Opening a model: which file it is, which architecture, which vocabulary.

use std::path::Path;

use serde_json::Value;

use super::provider::Provider;
use super::registry::{by_gguf_name, by_hf_name};
use super::{ModelConfig, ModelFault, sidecar};
use crate::error::{Error, Result};
use crate::format::{GgufFile, OpenOptions, SafetensorsModel, TensorSource};
use crate::tokenizer::Tokenizer;

/// A model file, opened and understood, with no weight loaded yet.
pub struct ModelFile {
    /// Settings.
    pub config: ModelConfig,
    /// Weights under canonical names.
    pub provider: Provider,
    /// Vocabulary.
    pub tokenizer: Tokenizer,
    /// The chat template, when the model brings one.
    pub chat_template: Option<String>,
    /// `general.name` or the folder's name.
    pub name: String,
}

impl ModelFile {
    /// Opens a GGUF file (any shard of a split one), a safetensors file or a folder
    /// of safetensors with `config.json` and `tokenizer.json`.
    ///
    /// # Errors
    /// Format, model and tokenizer faults, each naming the file.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Self> {
        let folder = path.is_dir();
        let safetensors = path.extension().is_some_and(|e| e == "safetensors");
        if folder || safetensors {
            Self::open_safetensors(path, options)
        } else {
            Self::open_gguf(path, options)
        }
    }

    fn open_gguf(path: &Path, options: &OpenOptions) -> Result<Self> {
        Self::from_gguf(GgufFile::open(path, options)?)
    }

    /// As [`open`](Self::open), from a GGUF file that is open already, perhaps in memory.
    ///
    /// # Errors
    /// Model and tokenizer faults, each naming the file.
    pub fn from_gguf(file: GgufFile) -> Result<Self> {
        let path = &file.path().to_path_buf();
        let fault = |fault| Error::model(path, fault);
        if file.tensors().is_empty() && file.metadata().get("tokenizer.ggml.tokens").is_some() {
            return Err(fault(ModelFault::VocabularyOnly));
        }
        let key = "general.architecture";
        let name = file.metadata().str(key)?;
        let name = name.ok_or_else(|| fault(ModelFault::MissingSetting(key.to_owned())))?;
        let architecture = by_gguf_name(name).map_err(fault)?;
        let config = architecture.config_from_gguf(&file)?;
        let tokenizer = Tokenizer::from_gguf(file.metadata());
        let tokenizer = tokenizer.map_err(|error| error.in_tokenizer_file(path))?;
        let title = file.metadata().str("general.name")?.map(str::to_owned);
        let chat_template = tokenizer.chat_template().map(str::to_owned);
        let name = title.unwrap_or_else(|| file_stem(path));
        let provider = Provider::gguf(file);
        Self { config, provider, tokenizer, chat_template, name }.checked()
    }

    fn open_safetensors(path: &Path, options: &OpenOptions) -> Result<Self> {
        let model = SafetensorsModel::open(path, options)?;
        let fault = |fault| Error::model(path, fault);
        let settings = model.config().ok_or_else(|| fault(ModelFault::MissingConfig))?;
        let key = "model_type";
        let name = settings.get(key).and_then(Value::as_str);
        let name = name.ok_or_else(|| fault(ModelFault::MissingSetting(key.to_owned())))?;
        let architecture = by_hf_name(name).map_err(fault)?;
        let config = architecture.config_from_hf(settings).map_err(fault)?;
        let naming = architecture.hf_naming(&|name| model.tensor(name).is_some());
        let folder = if path.is_dir() { path } else { path.parent().unwrap_or(Path::new(".")) };
        let tokenizer = Tokenizer::open_json(&folder.join("tokenizer.json"))?;
        let chat_template = sidecar::chat_template(folder)?;
        let provider = Provider::safetensors(model, naming);
        let name = file_stem(path);
        Self { config, provider, tokenizer, chat_template, name }.checked()
    }

    /// The table may be padded past the vocabulary, never be smaller.
    fn checked(self) -> Result<Self> {
        let (tokenizer, table) = (self.tokenizer.vocab_size(), self.config.vocab);
        if tokenizer > table {
            return Err(self.provider.fault(ModelFault::VocabMismatch { tokenizer, table }));
        }
        Ok(self)
    }
}

fn file_stem(path: &Path) -> String {
    path.file_stem().map_or_else(|| "model".to_owned(), |s| s.to_string_lossy().into_owned())
}
