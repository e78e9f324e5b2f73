//! A loaded model on a device.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{GenerateFault, Session, SessionOptions, default_context, plan};
use crate::device::{Activations, Device, DeviceFault, DeviceInfo, MemoryPlan};
use crate::error::{Error, Result};
use crate::format::OpenOptions;
use crate::model::{LoadedWeights, ModelConfig, ModelFault, ModelFile, WeightPlan};
use crate::speculate::Drafter;
use crate::tokenizer::Tokenizer;

/// How to load a model.
#[derive(Clone, Debug, Default)]
pub struct EngineOptions {
    /// File access.
    pub open: OpenOptions,
    /// Activation precision into quantised weights.
    pub activations: Activations,
}

/// What the caller hears while a model loads.
#[derive(Debug)]
pub enum LoadStage<'a> {
    /// The plan, before anything is reserved: weights and a session of this context.
    Planned(&'a MemoryPlan),
    /// Tensors done, of all.
    Weights {
        /// Done.
        done: usize,
        /// Of.
        total: usize,
    },
}

/// A loaded model. Shared by its sessions; immutable.
pub struct Engine {
    pub(super) device: Arc<dyn Device>,
    pub(super) weights: LoadedWeights,
    config: ModelConfig,
    tokenizer: Tokenizer,
    chat_template: Option<String>,
    name: String,
    path: PathBuf,
}

impl Engine {
    /// Loads a model: opens, plans, checks that the plan fits, then reserves.
    /// `session` is what will be made first, for the plan; `None` picks the default
    /// context.
    ///
    /// # Errors
    /// File and model faults; `DoesNotFit` before anything is reserved.
    pub fn load(
        path: &Path,
        device: Arc<dyn Device>,
        options: &EngineOptions,
        session: Option<SessionOptions>,
        stage: &mut dyn FnMut(LoadStage<'_>),
    ) -> Result<Arc<Self>> {
        let file = ModelFile::open(path, &options.open)?;
        Self::from_file(file, device, options, session, stage)
    }

    /// As [`load`](Self::load), from an opened file.
    pub fn from_file(
        file: ModelFile,
        device: Arc<dyn Device>,
        options: &EngineOptions,
        session: Option<SessionOptions>,
        stage: &mut dyn FnMut(LoadStage<'_>),
    ) -> Result<Arc<Self>> {
        let ModelFile { config, provider, tokenizer, chat_template, name } = file;
        let path = provider.path().to_path_buf();
        let weights = WeightPlan::new(&config, &provider, &*device, options.activations)?;
        let info = device.info();
        let context = || default_context(&config, weights.bytes(), &info);
        let session = session.unwrap_or_else(|| SessionOptions::on(&info, context()));
        let planned = plan(&config, weights.bytes(), &info, &session)?;
        fits(&planned, &info, session.context)?;
        stage(LoadStage::Planned(&planned));
        let mut progress = |done, total| stage(LoadStage::Weights { done, total });
        let weights = weights.load(&config, &provider, &device, &mut progress)?;
        tracing::info!(model = name, bytes = weights.bytes, device = info.name, "model loaded");
        Ok(Arc::new(Self { device, weights, config, tokenizer, chat_template, name, path }))
    }

    /// A new sequence.
    ///
    /// # Errors
    /// Option faults and `OutOfMemory`; `SessionRefused` when the device can not do what
    /// the model needs.
    pub fn session(self: &Arc<Self>, options: SessionOptions) -> Result<Session> {
        Session::new(Arc::clone(self), options, None).map_err(|error| self.named(error))
    }

    /// A new sequence that can speculate with a drafter of its own. Without
    /// [`SessionOptions::speculation`] the drafter is not used.
    ///
    /// # Errors
    /// As [`session`](Self::session), and what the drafter reports.
    pub fn session_with_drafter(
        self: &Arc<Self>,
        options: SessionOptions,
        drafter: Box<dyn Drafter>,
    ) -> Result<Session> {
        Session::new(Arc::clone(self), options, Some(drafter)).map_err(|error| self.named(error))
    }

    /// Names the model where its settings are what the device refuses.
    fn named(&self, error: Error) -> Error {
        match error {
            Error::Device(
                fault @ (DeviceFault::BadOperands { .. } | DeviceFault::Unsupported { .. }),
            ) => Error::model(&self.path, ModelFault::SessionRefused(fault)),
            other => other,
        }
    }

    /// What a session of these options takes, weights included.
    pub fn plan(&self, options: &SessionOptions) -> Result<MemoryPlan> {
        plan(&self.config, self.weights.bytes, &self.device.info(), options)
    }

    /// The context picked when none is asked for.
    pub fn default_context(&self) -> usize {
        default_context(&self.config, self.weights.bytes, &self.device.info())
    }

    /// Settings.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// The device it lives on.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Vocabulary.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The model's chat template.
    pub fn chat_template(&self) -> Option<&str> {
        self.chat_template.as_deref()
    }

    /// The model's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file or folder it was loaded from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The device's properties now.
    pub fn device_info(&self) -> DeviceInfo {
        self.device.info()
    }
}

fn fits(plan: &MemoryPlan, info: &DeviceInfo, context: usize) -> Result<(), GenerateFault> {
    let (needed, free) = (plan.total(), info.memory_free);
    if needed <= free {
        return Ok(());
    }
    let device = format!("{}:{}", info.driver, info.index);
    Err(GenerateFault::DoesNotFit { context, needed, free, device })
}
