//! Golden files, models and engines.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use foretoken::device::Activations;
use foretoken::generate::{Engine, EngineOptions, Session, SessionOptions};
use serde_json::Value;

pub(crate) use crate::common::nano;
use crate::driver;

/// The folder of data that is not in the repository, or `None` with a line said.
pub(crate) fn test_data(test: &str) -> Option<PathBuf> {
    match std::env::var_os("FORETOKEN_TEST_DATA") {
        Some(dir) => Some(PathBuf::from(dir)),
        None => {
            eprintln!("skipped: {test}: FORETOKEN_TEST_DATA is not set");
            None
        }
    }
}

pub(crate) fn json(path: &Path) -> Value {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_slice(&bytes).unwrap()
}

pub(crate) fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as u32).collect()
}

pub(crate) fn floats(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect()
}

/// A loaded model; `None`, said, when the device is not here.
pub(crate) fn engine(path: &Path, activations: Activations) -> Option<Arc<Engine>> {
    let device = driver::open()?;
    let options = EngineOptions { activations, ..EngineOptions::default() };
    Some(Engine::load(path, device, &options, None, &mut |_| {}).unwrap())
}

/// A session whose every row can have logits.
pub(crate) fn all_logits(engine: &Arc<Engine>, options: SessionOptions) -> Session {
    engine.session(SessionOptions { chunk: 64, logit_rows: 64, ..options }).unwrap()
}
