//! From flags to an opened model and a loaded engine.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use foretoken::Error;
use foretoken::cache::KvType;
use foretoken::device::DeviceFault;
use foretoken::format::{GgufFile, OpenOptions};
use foretoken::generate::{Engine, GenerateFault, LoadStage, Planner, SessionOptions};
use foretoken::model::ModelFile;
use foretoken::tokenizer::Tokenizer;

use crate::args::{DeviceArgs, ModelArgs, SessionArgs};
use crate::drivers;
use crate::failure::shown;
use crate::models::{Located, locate};
use crate::ui::Ui;

/// Bytes that the logits of one call may take when every row is wanted.
const LOGIT_BYTES: usize = 64 << 20;

impl ModelArgs {
    /// How files are opened.
    pub(crate) fn open_options(&self) -> OpenOptions {
        OpenOptions { mmap: !self.no_mmap }
    }
}

/// Finds and opens the model, loading no weight.
///
/// # Errors
/// When it is not found or can not be used.
pub(crate) fn open_model(asked: Option<&Path>, options: &OpenOptions) -> Result<ModelFile> {
    open_located(locate(asked)?, options)
}

/// Opens a model that was found.
///
/// # Errors
/// When it can not be used.
pub(crate) fn open_located(located: Located, options: &OpenOptions) -> Result<ModelFile> {
    match located {
        Located::Path(path) => named(&path, ModelFile::open(&path, options)),
        Located::Embedded { name, bytes } => {
            let path = Path::new(name);
            named(path, GgufFile::from_bytes(path, bytes).and_then(ModelFile::from_gguf))
        }
    }
}

/// Finds a model and opens its vocabulary alone, which is all that some files have.
///
/// # Errors
/// When it is not found or can not be used.
pub(crate) fn open_tokenizer(model: &ModelArgs) -> Result<Tokenizer> {
    let from_gguf = |file: GgufFile| Tokenizer::from_gguf(file.metadata());
    let options = model.open_options();
    match locate(model.model.as_deref())? {
        Located::Path(path) if path.is_dir() => from_json(&path.join("tokenizer.json")),
        Located::Path(path) if is(&path, "json") => from_json(&path),
        Located::Path(path) if is(&path, "safetensors") => {
            from_json(&path.with_file_name("tokenizer.json"))
        }
        Located::Path(path) => named(&path, GgufFile::open(&path, &options).and_then(from_gguf)),
        Located::Embedded { name, bytes } => {
            let path = Path::new(name);
            named(path, GgufFile::from_bytes(path, bytes).and_then(from_gguf))
        }
    }
}

fn is(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|e| e == extension)
}

fn from_json(path: &Path) -> Result<Tokenizer> {
    Ok(Tokenizer::open_json(path)?)
}

/// Names the file in faults that do not name it themselves.
fn named<T>(path: &Path, result: foretoken::Result<T>) -> Result<T> {
    match result {
        Err(fault @ (Error::Tokenizer(_) | Error::Quant(_))) => {
            Err(fault).with_context(|| shown(path))
        }
        other => Ok(other?),
    }
}

/// Names the model in errors of a command whose cause is its weights or settings and
/// which only showed while it ran.
///
/// # Errors
/// That of the command.
pub(crate) fn in_model<T>(asked: Option<&Path>, result: Result<T>) -> Result<T> {
    result.map_err(|error| {
        let of_model = matches!(
            error.downcast_ref(),
            Some(Error::Device(DeviceFault::NonFinite { .. } | DeviceFault::BadOperands { .. }))
        );
        match locate(asked) {
            Ok(Located::Path(path)) if of_model => error.context(path.display().to_string()),
            Ok(Located::Embedded { name, .. }) if of_model => error.context(name),
            _ => error,
        }
    })
}

/// What a session is to be made for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    /// Tokens it should hold when `--context` says nothing.
    pub(crate) tokens: usize,
    /// Whether the logits of every row of a call are wanted.
    pub(crate) all_logits: bool,
}

/// Opens the device of the flags and checks the model against it.
///
/// # Errors
/// `NoSuchDevice`; faults of the weights.
pub(crate) fn planner(
    file: ModelFile,
    device: &DeviceArgs,
    session: &SessionArgs,
) -> Result<Planner> {
    let device = drivers::open(&device.device, device.driver_options())?;
    Ok(Planner::new(file, device, session.activations.into())?)
}

/// Session options from the flags. Without `--context` the model's default is taken, or
/// as much more as the demand needs and the model allows.
///
/// # Errors
/// Those of planning, for the default.
pub(crate) fn session_options(
    planner: &Planner,
    args: &SessionArgs,
    demand: Demand,
) -> Result<SessionOptions> {
    let config = &planner.file().config;
    let context = match args.context {
        Some(context) => context,
        None => planner.default_context()?.max(demand.tokens.min(config.context_length)),
    };
    let mut options = SessionOptions::on(&planner.device().info(), context);
    options.kv_type = args.cache_type;
    options.chunk = args.chunk.unwrap_or(options.chunk);
    if demand.all_logits {
        options.logit_rows = logit_rows(config.vocab, options.chunk);
    }
    Ok(options)
}

/// Checks a prompt before anything is loaded; `room` tokens must be left for the answer.
///
/// # Errors
/// `EmptyPrompt`, `TokenOutOfRange`, `ContextLengthExceeded`.
pub(crate) fn check_prompt(
    file: &ModelFile,
    ids: &[u32],
    context: usize,
    room: usize,
) -> Result<()> {
    if ids.is_empty() {
        return Err(GenerateFault::EmptyPrompt.into());
    }
    check_ids(file, ids)?;
    if ids.len().saturating_add(room) > context {
        let (prompt, max) = (ids.len(), file.config.context_length);
        return Err(GenerateFault::ContextLengthExceeded { prompt, context, room, max }.into());
    }
    Ok(())
}

/// Checks that the model has all these tokens.
///
/// # Errors
/// `TokenOutOfRange`.
pub(crate) fn check_ids(file: &ModelFile, ids: &[u32]) -> Result<(), GenerateFault> {
    let vocab = file.config.vocab;
    match ids.iter().find(|&&id| id as usize >= vocab) {
        Some(&id) => Err(GenerateFault::TokenOutOfRange { id, vocab }),
        None => Ok(()),
    }
}

/// Rows whose logits fit in [`LOGIT_BYTES`], whole grid lines, at most a chunk.
fn logit_rows(vocab: usize, chunk: usize) -> usize {
    const GRID: usize = 64;
    let rows = LOGIT_BYTES / vocab.saturating_mul(size_of::<f32>()).max(1);
    (rows / GRID * GRID).max(GRID).min(chunk)
}

/// Loads the weights, with a bar.
///
/// # Errors
/// Model and device faults; `DoesNotFit`.
pub(crate) fn load(planner: Planner, options: &SessionOptions, ui: &Ui) -> Result<Arc<Engine>> {
    let mut bar = ui.progress("loading");
    let engine = planner.load(options, &mut |stage| match stage {
        LoadStage::Planned(plan) => ui.detail(plan),
        LoadStage::Weights { done, total } => bar.set(done, total),
    })?;
    Ok(engine)
}

/// The cache types, by name.
pub(crate) fn kv_type_names() -> [&'static str; 3] {
    KvType::ALL.map(KvType::name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logit_rows_stay_on_the_grid_and_in_the_chunk() {
        assert_eq!(logit_rows(8192, 512), 512);
        assert_eq!(logit_rows(248_320, 512), 64);
        assert_eq!(logit_rows(100_000, 512), 128);
        assert_eq!(logit_rows(usize::MAX, 64), 64);
    }
}
