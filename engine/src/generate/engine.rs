//! A loaded model on a device.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::layout::{MaybeDrafter, drafts_on};
use super::memory::Held;
use super::planner::{Planned, Planner};
use super::{Session, SessionOptions};
use crate::device::{Activations, Device, DeviceFault, DeviceInfo, MemoryPlan, Rehearsal};
use crate::error::{Error, Result};
use crate::format::OpenOptions;
use crate::model::{LoadedWeights, ModelConfig, ModelFault, ModelFile};
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
    /// The session it was loaded for.
    pub(super) planned: Planned,
    pub(super) config: ModelConfig,
    pub(super) tokenizer: Tokenizer,
    pub(super) chat_template: Option<String>,
    pub(super) name: String,
    pub(super) path: PathBuf,
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
        let planner = Planner::new(file, device, options.activations)?;
        let session = match session {
            Some(session) => session,
            None => SessionOptions::on(&planner.device().info(), planner.default_context()?),
        };
        planner.load(&session, stage)
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

    fn named(&self, error: Error) -> Error {
        refused(&self.path, error)
    }

    /// Plans a session, unless it is the one planned at load, and reserves the scratch
    /// memory that it needs.
    pub(super) fn prepare_session(
        &self,
        options: &SessionOptions,
        drafter: MaybeDrafter,
    ) -> Result<(MemoryPlan, MaybeDrafter)> {
        if self.planned.is_for(options, drafter.as_deref(), &self.config, &*self.device)? {
            return Ok((self.planned.plan.clone(), drafter));
        }
        let on = drafts_on(drafter.as_deref(), &*self.device).map(Rehearsal::of);
        let stand_in = Rehearsal::of(Arc::clone(&self.device));
        let held =
            Held { config: &self.config, weights: self.weights.bytes, device: &*self.device };
        let parts = (held, &self.weights);
        let (planned, drafter) = Planned::new(parts, &stand_in, on.as_ref(), options, drafter)?;
        planned.reserve_scratch(&stand_in, on.as_ref())?;
        Ok((planned.plan, drafter))
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

/// Names the model where its settings are what the device refuses.
pub(super) fn refused(path: &Path, error: Error) -> Error {
    match error {
        Error::Device(
            fault @ (DeviceFault::BadOperands { .. } | DeviceFault::Unsupported { .. }),
        ) => Error::model(path, ModelFault::SessionRefused(fault)),
        other => other,
    }
}
