//! From an opened model to a loaded one, by way of a plan of all memory.

use std::cell::RefCell;
use std::sync::Arc;

use super::engine::refused;
use super::layout::{MaybeDrafter, rehearse};
use super::memory::{Held, add_driver, default_contexts, fits, plan};
use super::{Engine, LoadStage, SessionOptions};
use crate::device::{Activations, Device, MemoryPlan, Rehearsal};
use crate::error::Result;
use crate::model::{LoadedWeights, ModelConfig, ModelFile, WeightPlan};
use crate::speculate::Drafter;

/// Makes a drafter to plan with.
type MakeDrafter = Box<dyn Fn() -> Result<Box<dyn Drafter>>>;

/// A model that is opened and checked against a device, with nothing loaded yet.
///
/// A plan is found by making a session, and its drafter, on stand-ins for the devices. It
/// names everything that the session will reserve.
pub struct Planner {
    file: ModelFile,
    device: Arc<dyn Device>,
    weights: WeightPlan,
    stand_in: Arc<Rehearsal>,
    unbacked: LoadedWeights,
    drafts: Option<(MakeDrafter, Option<Arc<Rehearsal>>)>,
    /// The last plan: the same is asked for more than once on the way to a session.
    last: RefCell<Option<Planned>>,
}

impl Planner {
    /// Checks every tensor's presence, shape and type. Nothing is loaded.
    ///
    /// # Errors
    /// Those of [`WeightPlan::new`].
    pub fn new(file: ModelFile, device: Arc<dyn Device>, activations: Activations) -> Result<Self> {
        let weights = WeightPlan::new(&file.config, &file.provider, &*device, activations)?;
        let stand_in = Rehearsal::of(Arc::clone(&device));
        let unbacked = weights.rehearse(&file.config, &file.provider, &stand_in)?;
        Ok(Self {
            file,
            device,
            weights,
            stand_in,
            unbacked,
            drafts: None,
            last: RefCell::default(),
        })
    }

    /// The model.
    pub fn file(&self) -> &ModelFile {
        &self.file
    }

    /// The device it is to be loaded on.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// The stand-in for the device, on which a draft has to be planned that goes with the
    /// model.
    pub fn stand_in(&self) -> &Arc<Rehearsal> {
        &self.stand_in
    }

    /// Counts sessions with a drafter. `make` makes one whose weights are on the model's
    /// [stand-in](Self::stand_in) or, if that is another device's, on `on`.
    pub fn draft_with(&mut self, make: MakeDrafter, on: Option<Arc<Rehearsal>>) {
        self.drafts = Some((make, on));
        self.last.take();
    }

    /// Counts sessions without a drafter.
    pub fn draft_without(&mut self) {
        self.drafts = None;
        self.last.take();
    }

    /// The weights, a session of these options and its drafter, and what the drivers take
    /// for themselves.
    ///
    /// # Errors
    /// Option faults; sizes that overflow; `SessionRefused` when a device can not do what
    /// the model needs.
    pub fn plan(&self, options: &SessionOptions) -> Result<MemoryPlan> {
        Ok(self.planned(options)?.plan)
    }

    /// The context to use when none is asked for: the model's own, at most 32,768, halved
    /// until the plan fits in nine tenths of the free memory.
    ///
    /// # Errors
    /// As [`plan`](Self::plan).
    pub fn default_context(&self) -> Result<usize> {
        let mut last = 0;
        for context in default_contexts(&self.file.config) {
            last = context;
            let options = SessionOptions::on(&self.device.info(), context);
            let roomy = |plan: &MemoryPlan| {
                plan.total_on(&plan.device) <= self.device.info().memory_free / 10 * 9
            };
            // What takes longer is only asked when the rest fits.
            if roomy(&plan(&self.held(), &options, None)?) && roomy(&self.plan(&options)?) {
                break;
            }
        }
        Ok(last)
    }

    /// Loads the model for a session of these options: checks that the plan fits, reserves
    /// what kernels share, then takes the weights in.
    ///
    /// # Errors
    /// As [`plan`](Self::plan); `DoesNotFit` before anything is reserved; `OutOfMemory`.
    pub fn load(
        self,
        options: &SessionOptions,
        stage: &mut dyn FnMut(LoadStage<'_>),
    ) -> Result<Arc<Engine>> {
        self.check(options)?;
        let planned = self.planned(options)?;
        fits(&planned.plan, &self.devices(), options.context)?;
        stage(LoadStage::Planned(&planned.plan));
        let other = self.drafts.as_ref().and_then(|(_, on)| on.as_ref());
        planned.reserve_scratch(&self.stand_in, other)?;
        let Self { file, device, weights, .. } = self;
        let ModelFile { config, provider, tokenizer, chat_template, name } = file;
        let path = provider.path().to_path_buf();
        let mut progress = |done, total| stage(LoadStage::Weights { done, total });
        let weights = weights.load(&config, &provider, &device, &mut progress)?;
        let on = device.info().name;
        tracing::info!(model = name, bytes = weights.bytes, device = on, "model loaded");
        let engine =
            Engine { device, weights, planned, config, tokenizer, chat_template, name, path };
        Ok(Arc::new(engine))
    }

    /// Whether the plan fits.
    ///
    /// # Errors
    /// As [`plan`](Self::plan); `DoesNotFit`.
    pub fn fits(&self, options: &SessionOptions) -> Result<()> {
        self.check(options)?;
        Ok(fits(&self.planned(options)?.plan, &self.devices(), options.context)?)
    }

    /// Whether the plan fits without what drivers take, which is only known of sizes that
    /// operations can have.
    fn check(&self, options: &SessionOptions) -> Result<()> {
        let drafter = self.drafter(options)?;
        let on = self.drafts.as_ref().and_then(|(_, on)| on.as_deref());
        let drafter = drafter.as_deref().map(|drafter| (drafter, on.map(|on| on as _)));
        let plan = plan(&self.held(), options, drafter)?;
        Ok(fits(&plan, &self.devices(), options.context)?)
    }

    fn held(&self) -> Held<'_> {
        let (config, weights) = (&self.file.config, self.weights.bytes());
        Held { config, weights, device: &*self.device }
    }

    fn devices(&self) -> Vec<&dyn Device> {
        let other = self.drafts.as_ref().and_then(|(_, on)| on.as_ref());
        std::iter::once(&*self.device).chain(other.map(|on| &**on.device())).collect()
    }

    fn drafter(&self, options: &SessionOptions) -> Result<MaybeDrafter> {
        match (&self.drafts, options.speculation) {
            (Some((make, _)), Some(_)) => make().map(Some),
            _ => Ok(None),
        }
    }

    fn planned(&self, options: &SessionOptions) -> Result<Planned> {
        if let Some(last) = self.last.borrow().as_ref().filter(|last| last.options == *options) {
            return Ok(last.clone());
        }
        let drafter = self.drafter(options)?;
        let other = self.drafts.as_ref().and_then(|(_, on)| on.as_ref());
        let parts = (self.held(), &self.unbacked);
        let planned = Planned::new(parts, &self.stand_in, other, options, drafter);
        let (planned, _) = planned.map_err(|error| refused(self.file.provider.path(), error))?;
        self.last.replace(Some(planned.clone()));
        Ok(planned)
    }
}

/// A session that is planned, and what for.
#[derive(Clone)]
pub(super) struct Planned {
    options: SessionOptions,
    drafter: Option<DrafterKey>,
    pub(super) plan: MemoryPlan,
    /// Bytes of scratch memory on the model's device and on the drafter's, if that is
    /// another.
    scratch: [u64; 2],
}

/// Drafters of one key take the same memory: name, device, bytes of weights and the rest.
type DrafterKey = (String, Option<u64>, u64, u64);

fn key(
    drafter: Option<&dyn Drafter>,
    options: &SessionOptions,
    config: &ModelConfig,
    device: &dyn Device,
) -> Result<Option<DrafterKey>> {
    let (Some(drafter), Some(room)) = (drafter, options.speculation) else { return Ok(None) };
    let own = drafter.device();
    let on = own.as_deref().unwrap_or(device);
    let bytes = drafter.bytes(&options.draft_sizes(room, config), on)?;
    Ok(Some((drafter.name().to_owned(), Some(on.id()), drafter.weight_bytes(), bytes)))
}

impl Planned {
    /// Plans a session on stand-ins, to which its weights and its drafter's belong, or to
    /// the devices themselves.
    pub(super) fn new(
        (held, weights): (Held<'_>, &LoadedWeights),
        stand_in: &Arc<Rehearsal>,
        other: Option<&Arc<Rehearsal>>,
        options: &SessionOptions,
        drafter: MaybeDrafter,
    ) -> Result<(Self, MaybeDrafter)> {
        let other = other.filter(|_| drafter.is_some());
        let key = key(drafter.as_deref(), options, held.config, held.device)?;
        let with = drafter.as_deref().map(|drafter| (drafter, other.map(|on| &**on as _)));
        let mut plan = plan(&held, options, with)?;
        let parts = (held.config, weights);
        let (measured, drafter) = rehearse(stand_in, other, parts, options, drafter)?;
        let scratch = measured.map(|measured| measured.scratch);
        add_driver(&mut plan, &**stand_in, scratch[0]);
        if let Some(other) = other {
            add_driver(&mut plan, &**other, scratch[1]);
        }
        Ok((Self { options: *options, drafter: key, plan, scratch }, drafter))
    }

    /// Whether a session is as was planned.
    pub(super) fn is_for(
        &self,
        options: &SessionOptions,
        drafter: Option<&dyn Drafter>,
        config: &ModelConfig,
        device: &dyn Device,
    ) -> Result<bool> {
        Ok(self.options == *options && self.drafter == key(drafter, options, config, device)?)
    }

    /// Reserves what kernels share on the devices.
    pub(super) fn reserve_scratch(
        &self,
        stand_in: &Arc<Rehearsal>,
        other: Option<&Arc<Rehearsal>>,
    ) -> Result<()> {
        stand_in.device().reserve_scratch(self.scratch[0])?;
        match other {
            Some(other) => other.device().reserve_scratch(self.scratch[1]),
            None => Ok(()),
        }
    }
}
