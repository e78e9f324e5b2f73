//! From flags to a session that speculates.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use anyhow::Result;
use foretoken::Error;
use foretoken::device::{
    Activations, Device, DeviceFault, DeviceInfo, DeviceSpec, MemoryKind, Rehearsal,
};
use foretoken::format::{GgufFile, OpenOptions};
use foretoken::generate::{
    Engine, GenerateFault, Planner, Session, SessionOptions, SpeculationRoom,
};
use foretoken::speculate::dflash::{DflashFile, DflashPlan};
use foretoken::speculate::{
    CostCache, CostKey, DflashDrafter, DflashModel, Drafter, PromptLookup, SpecLimits, SpecMode,
};

use crate::args::DraftSource;
use crate::drivers::{self, DriverOptions};
use crate::failure::usage;
use crate::load::open_model;
use crate::models::{Located, locate_for};
use crate::ui::Ui;

/// A drafter's origin, loaded; sessions make their own drafters from it.
pub(crate) enum Drafts {
    /// A draft model.
    Dflash(Arc<DflashModel>),
    /// The text itself.
    Lookup,
    /// Nothing, perhaps for want of memory, as is told here.
    None(Option<String>),
}

/// The same, opened and checked, with nothing loaded.
pub(crate) enum Opened {
    /// A draft model, and its device.
    Dflash(Box<DflashPlan>, Arc<dyn Device>),
    /// As of [`Drafts`].
    Lookup,
    /// As of [`Drafts`].
    None(Option<String>),
}

/// Where a draft model is to be, and what it drafts for.
pub(crate) struct Place<'a> {
    /// `--draft-device`.
    pub(crate) device: Option<&'a DeviceSpec>,
    /// Settings of the drivers.
    pub(crate) drivers: DriverOptions,
    /// `--model`, of which another device takes the embedding table and the head.
    pub(crate) target: Option<&'a Path>,
    /// How files are opened.
    pub(crate) open: OpenOptions,
    /// Precision of activations.
    pub(crate) activations: Activations,
}

impl Place<'_> {
    /// The device, when it is not the target's.
    fn other(&self, target: &DeviceInfo) -> Result<Option<Arc<dyn Device>>> {
        let Some(spec) = self.device else { return Ok(None) };
        let own = matches!(spec, DeviceSpec::Named { driver, index }
            if *driver == target.driver && *index == target.index);
        Ok(if own { None } else { Some(drivers::open(spec, self.drivers)?) })
    }
}

/// Opens what drafts come from, and lets the planner count it.
///
/// # Errors
/// When a draft model is not found or does not fit the target; `--draft-device` without
/// one.
pub(crate) fn open(
    source: &DraftSource,
    place: &Place<'_>,
    limits: SpecLimits,
    planner: &mut Planner,
) -> Result<Opened> {
    let name = match source {
        DraftSource::Model(name) => name,
        _ if place.device.is_some() => {
            return Err(usage("--draft-device is for a draft model, and there is none".to_owned()));
        }
        DraftSource::None => return Ok(Opened::None(None)),
        DraftSource::Lookup => {
            let most = limits.draft_len();
            let make = move || Ok(Box::new(PromptLookup::new(most)?) as Box<dyn Drafter>);
            planner.draft_with(Box::new(make), None);
            return Ok(Opened::Lookup);
        }
    };
    let file = match locate_for("--draft", Some(name))? {
        Located::Path(path) => DflashFile::open(&path, &place.open)?,
        Located::Embedded { name, bytes } => {
            DflashFile::from_gguf(GgufFile::from_bytes(name.as_ref(), bytes)?)?
        }
    };
    let other = place.other(&planner.device().info())?;
    let plan = match &other {
        None => {
            let target = &planner.file().config;
            DflashPlan::new(file, &**planner.device(), target, place.activations)?
        }
        Some(device) => {
            let target = open_model(place.target, &place.open)?;
            DflashPlan::apart(file, &**device, target, place.activations)?
        }
    };
    let on = other.as_ref().map(|device| Rehearsal::of(Arc::clone(device)));
    let model = plan.rehearse(on.as_ref().unwrap_or(planner.stand_in()))?;
    let make = move || Ok(Box::new(DflashDrafter::new(Arc::clone(&model))) as Box<dyn Drafter>);
    planner.draft_with(Box::new(make), on);
    Ok(Opened::Dflash(Box::new(plan), other.unwrap_or_else(|| Arc::clone(planner.device()))))
}

impl Opened {
    /// Under `auto`, which promises to be no worse than plain decoding, gives drafts up
    /// that there is no memory for. Others were asked for: loading the model then fails.
    ///
    /// # Errors
    /// Faults of the options.
    pub(crate) fn or_none(
        self,
        planner: &mut Planner,
        options: &mut SessionOptions,
        mode: SpecMode,
    ) -> Result<Self> {
        if mode != SpecMode::Auto || matches!(self, Self::None(_)) {
            return Ok(self);
        }
        match planner.fits(options) {
            Err(Error::Generate(fault @ GenerateFault::DoesNotFit { .. })) => {
                tracing::warn!("plain decoding, since drafting needs too much memory: {fault}");
                planner.draft_without();
                options.speculation = None;
                Ok(Self::None(Some(fault.to_string())))
            }
            Err(other) => Err(other.into()),
            Ok(()) => Ok(self),
        }
    }

    /// Loads it.
    ///
    /// # Errors
    /// `OutOfMemory` and whatever a device fails with.
    pub(crate) fn load(self, ui: &Ui) -> Result<Drafts> {
        Ok(match self {
            Self::Dflash(plan, device) => {
                let mut bar = ui.progress("loading draft");
                Drafts::Dflash(plan.load(&device, &mut |done, total| bar.set(done, total))?)
            }
            Self::Lookup => Drafts::Lookup,
            Self::None(why) => Drafts::None(why),
        })
    }
}

/// Room for the trees of a mode.
pub(crate) fn room(
    source: &DraftSource,
    mode: SpecMode,
    limits: SpecLimits,
) -> Option<SpeculationRoom> {
    let (chain, tree) = (limits.draft_len(), limits.tree_budget());
    match (source, mode) {
        (DraftSource::None, _) | (_, SpecMode::Off) => None,
        (_, SpecMode::Chain) => Some(SpeculationRoom { rows: chain + 1, width: 1 }),
        (_, SpecMode::Tree) => Some(SpeculationRoom::for_budget(tree)),
        (_, SpecMode::Auto) => Some(SpeculationRoom::for_budget(chain.max(tree))),
    }
}

impl Drafts {
    /// A new drafter.
    fn drafter(&self, limits: SpecLimits) -> Result<Option<Box<dyn Drafter>>> {
        Ok(match self {
            Self::None(_) => None,
            Self::Lookup => Some(Box::new(PromptLookup::new(limits.draft_len())?)),
            Self::Dflash(model) => Some(Box::new(DflashDrafter::new(Arc::clone(model)))),
        })
    }

    /// A session of these options, with times of steps from the cache when they are
    /// known there.
    ///
    /// # Errors
    /// Session faults.
    pub(crate) fn session(
        &self,
        engine: &Arc<Engine>,
        options: SessionOptions,
        mode: SpecMode,
        limits: SpecLimits,
        activations: Activations,
    ) -> Result<Session> {
        let drafter = match options.speculation {
            Some(_) => self.drafter(limits)?,
            None => None,
        };
        let Some(drafter) = drafter else {
            let mut session = engine.session(options)?;
            if let Self::None(Some(why)) = self {
                session.add_fallback("auto to plain", why);
            }
            return Ok(session);
        };
        let mut session = match engine.session_with_drafter(options, drafter) {
            // `auto` promises to be no worse than plain decoding; others were asked for.
            Err(Error::Device(fault @ DeviceFault::OutOfMemory { .. }))
                if mode == SpecMode::Auto =>
            {
                tracing::warn!("plain decoding, since drafting needs too much memory: {fault}");
                let options = SessionOptions { speculation: None, ..options };
                let mut session = engine.session(options)?;
                session.add_fallback("auto to plain", fault.to_string());
                return Ok(session);
            }
            other => other?,
        };
        if mode == SpecMode::Auto
            && let Some(points) = cache_file().and_then(|path| {
                CostCache::load(path).get(&self.key(&session, activations)).cloned()
            })
        {
            session.set_cost(points)?;
        }
        Ok(session)
    }

    /// Keeps the times of steps that a request had to measure, for later sessions.
    pub(crate) fn keep_times(&self, session: &Session, activations: Activations) {
        let (Some(points), Some(path)) = (session.cost(), cache_file()) else { return };
        let (key, mut cache) = (self.key(session, activations), CostCache::load(&path));
        if cache.get(&key).is_some() {
            return;
        }
        cache.insert(key, points.clone());
        if let Err(error) = cache.store(&path) {
            tracing::debug!(%error, "step times are not kept");
        }
    }
}

impl Drafts {
    /// A name for results.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Dflash(model) => model.name.clone(),
            Self::Lookup => "lookup".to_owned(),
            Self::None(_) => "none".to_owned(),
        }
    }

    /// What the times of a session depend on.
    fn key(&self, session: &Session, activations: Activations) -> CostKey {
        let (info, options) = (session.engine().device_info(), session.options());
        let weights = session.plan().of(MemoryKind::Weights);
        let precision = match activations {
            Activations::Fast => "fast",
            Activations::F32 => "f32",
        };
        let features = info.features.join(" ");
        let drafter = match self {
            Self::Dflash(model) => {
                let on = model.device.info();
                let (name, bytes) = (&model.name, model.bytes);
                match (&on.driver, on.index) == (&info.driver, info.index) {
                    true => format!("{name} {bytes} bytes"),
                    false => {
                        format!("{name} {bytes} bytes on {}:{} {}", on.driver, on.index, on.name)
                    }
                }
            }
            _ => self.name(),
        };
        let room = options.speculation.map_or((0, 0), |room| (room.rows, room.width));
        CostKey {
            device: format!(
                "{}:{} {} {} x{} [{features}]",
                info.driver, info.index, info.name, info.arch, info.units
            ),
            model: format!(
                "{} {weights} bytes, {precision} activations, {} cache",
                session.engine().name(),
                options.kv_type
            ),
            drafter: format!("{drafter}, {} rows of {}", room.0, room.1),
            build: build(),
        }
    }
}

/// This executable: its version, size and age, so that another build measures anew.
fn build() -> String {
    let meta = std::env::current_exe().and_then(std::fs::metadata);
    let size = meta.as_ref().map_or(0, std::fs::Metadata::len);
    let age = meta.ok().and_then(|m| m.modified().ok()?.duration_since(UNIX_EPOCH).ok());
    let age = age.map_or(0, |age| age.as_secs());
    format!("{} {size} {age}", env!("CARGO_PKG_VERSION"))
}

/// Where step times are kept: `FORETOKEN_CACHE`, or the user's cache folder.
fn cache_file() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let folder = set("FORETOKEN_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|f| f.join("foretoken")))
        .or_else(|| set("LOCALAPPDATA").map(|f| f.join("foretoken")))
        .or_else(|| set("HOME").map(|f| f.join(".cache/foretoken")))?;
    Some(folder.join("step-times.json"))
}
