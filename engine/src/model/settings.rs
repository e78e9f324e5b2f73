//! Reading settings from GGUF metadata and `config.json` with typed faults.

use serde_json::Value;

use super::ModelFault;
use super::config::bounded;
use crate::error::{Error, Result};
use crate::format::{GgufFile, TensorSource};

/// The `<architecture>.*` keys of a GGUF file.
pub(super) struct GgufSettings<'a> {
    file: &'a GgufFile,
    prefix: &'a str,
}

impl<'a> GgufSettings<'a> {
    pub(super) fn new(file: &'a GgufFile, prefix: &'a str) -> Self {
        Self { file, prefix }
    }

    pub(super) fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.prefix)
    }

    pub(super) fn fault(&self, fault: ModelFault) -> Error {
        Error::model(self.file.path(), fault)
    }

    fn missing(&self, key: &str) -> Error {
        self.fault(ModelFault::MissingSetting(self.key(key)))
    }

    /// A positive count no larger than `max`.
    pub(super) fn count(&self, key: &str, max: u64) -> Result<usize> {
        self.count_or_none(key, max)?.ok_or_else(|| self.missing(key))
    }

    pub(super) fn count_or_none(&self, key: &str, max: u64) -> Result<Option<usize>> {
        let full = self.key(key);
        match self.file.metadata().u64(&full)? {
            Some(v) => bounded(&full, v, max).map(Some).map_err(|f| self.fault(f)),
            None => Ok(None),
        }
    }

    pub(super) fn float(&self, key: &str) -> Result<f64> {
        self.file.metadata().f64(&self.key(key))?.ok_or_else(|| self.missing(key))
    }
}

/// An object of a `config.json`.
pub(super) struct HfSettings<'a>(pub(super) &'a Value);

impl HfSettings<'_> {
    pub(super) fn count(&self, key: &str, max: u64) -> Result<usize, ModelFault> {
        self.count_or_none(key, max)?.ok_or_else(|| ModelFault::MissingSetting(key.to_owned()))
    }

    pub(super) fn count_or_none(&self, key: &str, max: u64) -> Result<Option<usize>, ModelFault> {
        match self.0.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(v) => {
                let n = v.as_u64().ok_or_else(|| Self::bad(key, v, "must be a whole number"))?;
                bounded(key, n, max).map(Some)
            }
        }
    }

    pub(super) fn float_or_none(&self, key: &str) -> Result<Option<f64>, ModelFault> {
        match self.0.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(v) => v.as_f64().map(Some).ok_or_else(|| Self::bad(key, v, "must be a number")),
        }
    }

    pub(super) fn float(&self, key: &str) -> Result<f64, ModelFault> {
        self.float_or_none(key)?.ok_or_else(|| ModelFault::MissingSetting(key.to_owned()))
    }

    /// The nested object under the key, when there is one.
    pub(super) fn object(&self, key: &str) -> Option<HfSettings<'_>> {
        self.0.get(key).filter(|v| v.is_object()).map(HfSettings)
    }

    /// Rotary base: in `rope_parameters` (new configs) or at top level.
    pub(super) fn rope_theta(&self) -> Result<f64, ModelFault> {
        let nested = self.object("rope_parameters");
        match nested.map(|r| r.float_or_none("rope_theta")).transpose()?.flatten() {
            Some(theta) => Ok(theta),
            None => self.float("rope_theta"),
        }
    }

    fn bad(key: &str, value: &Value, rule: &'static str) -> ModelFault {
        ModelFault::BadSetting { key: key.to_owned(), value: value.to_string(), rule }
    }
}
