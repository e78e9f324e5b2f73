//! Reading settings from GGUF metadata and `config.json` with typed faults.

use serde_json::Value;

use super::ModelFault;
use super::config::bounded;
use crate::error::{Error, Result};
use crate::format::{GgufFile, TensorSource};

/// The `<architecture>.*` keys of a GGUF file.
pub(crate) struct GgufSettings<'a> {
    file: &'a GgufFile,
    prefixes: Vec<String>,
}

impl<'a> GgufSettings<'a> {
    pub(crate) fn new(file: &'a GgufFile, prefix: &str) -> Self {
        Self::with_prefixes(file, vec![prefix.to_owned()])
    }

    /// For files that spell one key under several prefixes; the first one wins.
    pub(crate) fn with_prefixes(file: &'a GgufFile, prefixes: Vec<String>) -> Self {
        Self { file, prefixes }
    }

    /// The key under the prefix that has it, or under the first one.
    pub(crate) fn key(&self, key: &str) -> String {
        let mut full = self.prefixes.iter().map(|prefix| format!("{prefix}.{key}"));
        let found = full.clone().find(|k| self.file.metadata().get(k).is_some());
        found.or_else(|| full.next()).unwrap_or_default()
    }

    pub(crate) fn fault(&self, fault: ModelFault) -> Error {
        Error::model(self.file.path(), fault)
    }

    pub(crate) fn missing(&self, key: &str) -> Error {
        self.fault(ModelFault::MissingSetting(self.key(key)))
    }

    /// A positive count no larger than `max`.
    pub(crate) fn count(&self, key: &str, max: u64) -> Result<usize> {
        self.count_or_none(key, max)?.ok_or_else(|| self.missing(key))
    }

    pub(crate) fn count_or_none(&self, key: &str, max: u64) -> Result<Option<usize>> {
        let full = self.key(key);
        match self.file.metadata().u64(&full)? {
            Some(v) => bounded(&full, v, max).map(Some).map_err(|f| self.fault(f)),
            None => Ok(None),
        }
    }

    pub(crate) fn float(&self, key: &str) -> Result<f64> {
        self.file.metadata().f64(&self.key(key))?.ok_or_else(|| self.missing(key))
    }
}

/// An object of a `config.json`.
#[derive(Clone, Copy)]
pub(crate) struct HfSettings<'a>(pub(crate) &'a Value);

impl<'a> HfSettings<'a> {
    /// The value, unless it is absent or null.
    pub(crate) fn get(&self, key: &str) -> Option<&'a Value> {
        self.0.get(key).filter(|v| !v.is_null())
    }

    pub(crate) fn count(&self, key: &str, max: u64) -> Result<usize, ModelFault> {
        self.count_or_none(key, max)?.ok_or_else(|| ModelFault::MissingSetting(key.to_owned()))
    }

    pub(crate) fn count_or_none(&self, key: &str, max: u64) -> Result<Option<usize>, ModelFault> {
        match self.get(key) {
            None => Ok(None),
            Some(v) => {
                let n = v.as_u64().ok_or_else(|| Self::bad(key, v, "must be a whole number"))?;
                bounded(key, n, max).map(Some)
            }
        }
    }

    pub(crate) fn float_or_none(&self, key: &str) -> Result<Option<f64>, ModelFault> {
        match self.get(key) {
            None => Ok(None),
            Some(v) => v.as_f64().map(Some).ok_or_else(|| Self::bad(key, v, "must be a number")),
        }
    }

    pub(crate) fn float(&self, key: &str) -> Result<f64, ModelFault> {
        self.float_or_none(key)?.ok_or_else(|| ModelFault::MissingSetting(key.to_owned()))
    }

    pub(crate) fn bool_or_none(&self, key: &str) -> Result<Option<bool>, ModelFault> {
        match self.get(key) {
            None => Ok(None),
            Some(v) => v.as_bool().map(Some).ok_or_else(|| Self::bad(key, v, "must be a boolean")),
        }
    }

    /// The nested object under the key, when there is one.
    pub(crate) fn object(&self, key: &str) -> Option<HfSettings<'a>> {
        self.0.get(key).filter(|v| v.is_object()).map(HfSettings)
    }

    /// Rotary base: in `rope_parameters` (new configs) or at top level.
    pub(crate) fn rope_theta(&self) -> Result<f64, ModelFault> {
        let nested = self.object("rope_parameters");
        match nested.map(|r| r.float_or_none("rope_theta")).transpose()?.flatten() {
            Some(theta) => Ok(theta),
            None => self.float("rope_theta"),
        }
    }

    pub(crate) fn bad(key: &str, value: &Value, rule: &'static str) -> ModelFault {
        // A wrong value may be a whole object; its beginning says enough.
        let value = value.to_string().chars().take(80).collect();
        ModelFault::BadSetting { key: key.to_owned(), value, rule }
    }
}
