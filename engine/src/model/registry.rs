//! Architectures by name.

use serde_json::Value;

use super::provider::TensorNaming;
use super::qwen3::Qwen3;
use super::qwen35::Qwen35;
use super::{ModelConfig, ModelFault};
use crate::error::Result;
use crate::format::GgufFile;

/// One model architecture: how to read its settings and name its tensors.
pub trait Architecture: Send + Sync {
    /// Name in GGUF's `general.architecture`.
    fn name(&self) -> &'static str;

    /// Names in the `model_type` of a `config.json`.
    fn hf_names(&self) -> &'static [&'static str];

    /// Settings from GGUF metadata.
    ///
    /// # Errors
    /// `MissingSetting`, `BadSetting`, or a format fault for a value of wrong type.
    fn config_from_gguf(&self, file: &GgufFile) -> Result<ModelConfig>;

    /// Settings from a `config.json`.
    ///
    /// # Errors
    /// `MissingSetting` and `BadSetting`.
    fn config_from_hf(&self, config: &Value) -> Result<ModelConfig, ModelFault>;

    /// Naming of the tensors of a Hugging Face checkpoint. `has` tells whether the
    /// checkpoint holds a tensor, so that prefixes can be found out.
    fn hf_naming(&self, has: &dyn Fn(&str) -> bool) -> Box<dyn TensorNaming>;
}

const ALL: &[&dyn Architecture] = &[&Qwen35, &Qwen3];

/// Names of all architectures, comma-separated.
pub fn known_architectures() -> String {
    ALL.iter().map(|a| a.name()).collect::<Vec<_>>().join(", ")
}

fn unknown(found: &str) -> ModelFault {
    ModelFault::UnknownArchitecture { found: found.to_owned(), known: known_architectures() }
}

/// Finds an architecture by its GGUF name.
pub(super) fn by_gguf_name(name: &str) -> Result<&'static dyn Architecture, ModelFault> {
    ALL.iter().copied().find(|a| a.name() == name).ok_or_else(|| unknown(name))
}

/// Finds an architecture by the `model_type` of a `config.json`.
pub(super) fn by_hf_name(name: &str) -> Result<&'static dyn Architecture, ModelFault> {
    ALL.iter().copied().find(|a| a.hf_names().contains(&name)).ok_or_else(|| unknown(name))
}
