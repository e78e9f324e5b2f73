//! The plan of a session's memory.

use super::GenerateFault;
use super::speculation::speculation_bytes;
use crate::cache::{KvCache, KvType, RecurrentState};
use crate::device::{Device, DeviceInfo, MemoryKind, MemoryPlan};
use crate::error::Result;
use crate::kernel::TreeRows;
use crate::model::{LayerKind, ModelConfig, StepBuffers, VerifyBuffers};
use crate::speculate::{DraftSizes, Drafter};

/// The absolute grid prefill chunks lie on, in tokens.
pub(super) const PREFILL_GRID: usize = 64;
/// Rows of a step call.
pub(super) const STEP_ROWS: usize = 64;
/// Largest prefill chunk.
pub(super) const MAX_CHUNK: usize = 8192;
/// Context picked when none is asked for, memory permitting.
const DEFAULT_CONTEXT: usize = 32768;

/// What a session reserves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionOptions {
    /// Context in tokens.
    pub context: usize,
    /// Storage type of keys and values.
    pub kv_type: KvType,
    /// Tokens of a prefill chunk, a multiple of 64.
    pub chunk: usize,
    /// Rows of one call that can have logits.
    pub logit_rows: usize,
    /// Room for speculation; `None` reserves none.
    pub speculation: Option<SpeculationRoom>,
}

/// How large the trees of a session may become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpeculationRoom {
    /// Rows of a tree, the pending token among them: 2 to 64.
    pub rows: usize,
    /// Candidates taken per drafted position.
    pub width: usize,
}

impl SpeculationRoom {
    /// Candidates per position of [`for_budget`](Self::for_budget).
    pub const WIDTH: usize = 8;

    /// Room for trees of up to `budget` drafted rows from eight candidates per position:
    /// the ninth is hardly ever right (on the nano models 63 candidates change the mean
    /// acceptance length by 0.004 at a budget of 22).
    pub fn for_budget(budget: usize) -> Self {
        Self { rows: budget.saturating_add(1), width: budget.clamp(1, Self::WIDTH) }
    }
}

impl SessionOptions {
    /// Plain generation with this context: F32 cache, chunks of 512, logits of one row.
    pub fn new(context: usize) -> Self {
        Self { context, kv_type: KvType::default(), chunk: 512, logit_rows: 1, speculation: None }
    }

    /// The same on this device, with the chunks that suit it, or fewer tokens where the
    /// context has no more.
    pub fn on(info: &DeviceInfo, context: usize) -> Self {
        let most = context.max(1).checked_next_multiple_of(PREFILL_GRID).unwrap_or(MAX_CHUNK);
        let chunk = info.prefill_chunk.next_multiple_of(PREFILL_GRID).min(most).min(MAX_CHUNK);
        Self { chunk: chunk.max(PREFILL_GRID), ..Self::new(context) }
    }

    /// Slots of the KV cache: rejected rows lie past the context for a moment.
    pub fn slots(&self) -> usize {
        self.context.saturating_add(self.speculation.map_or(0, |s| s.rows))
    }

    /// Rows the activations are reserved for.
    pub fn rows(&self) -> usize {
        self.chunk.max(STEP_ROWS)
    }

    /// Sizes of what drafts, with room for trees.
    pub(super) fn draft_sizes(&self, room: SpeculationRoom, config: &ModelConfig) -> DraftSizes {
        let (context, kv_type) = (self.context, self.kv_type);
        DraftSizes { context, rows: self.rows(), width: room.width.min(config.vocab), kv_type }
    }

    /// Checks the options against a model.
    ///
    /// # Errors
    /// `BadContext`, `BadChunk`, `TooManyRows`.
    pub fn validate(&self, config: &ModelConfig) -> Result<(), GenerateFault> {
        let max = config.context_length;
        if self.context == 0 || self.context > max {
            return Err(GenerateFault::BadContext { asked: self.context, max });
        }
        if self.chunk == 0 || !self.chunk.is_multiple_of(PREFILL_GRID) || self.chunk > MAX_CHUNK {
            let (asked, grid, max) = (self.chunk, PREFILL_GRID, MAX_CHUNK);
            return Err(GenerateFault::BadChunk { asked, grid, max });
        }
        if let Some(room) = self.speculation
            && (!(2..=TreeRows::MAX).contains(&room.rows) || room.width == 0)
        {
            let (asked, capacity) = (room.rows, TreeRows::MAX);
            return Err(GenerateFault::TooManyRows { asked, capacity });
        }
        if self.logit_rows == 0 || self.logit_rows > self.rows() {
            let (asked, capacity) = (self.logit_rows, self.rows());
            return Err(GenerateFault::TooManyRows { asked, capacity });
        }
        Ok(())
    }
}

/// A model on a device, as far as its memory goes.
#[derive(Clone, Copy)]
pub(super) struct Held<'a> {
    pub(super) config: &'a ModelConfig,
    /// Bytes of its weights.
    pub(super) weights: u64,
    pub(super) device: &'a dyn Device,
}

/// Plans weights and a session with its drafter, whose device is named when that is another.
/// What drivers take for themselves is not in it.
///
/// # Errors
/// Option faults; sizes that overflow.
pub(super) fn plan(
    held: &Held<'_>,
    options: &SessionOptions,
    drafter: Option<(&dyn Drafter, Option<&dyn Device>)>,
) -> Result<MemoryPlan> {
    let Held { config, weights, device } = *held;
    options.validate(config)?;
    let taken = |bytes: usize| device.allocation_bytes(bytes);
    let mut plan = MemoryPlan::new(label(device));
    plan.add(MemoryKind::Weights, config.architecture, weights);
    let kv = KvCache::bytes(config, options.slots(), options.kv_type).unwrap_or(usize::MAX);
    let layers = config.count(LayerKind::Attention);
    let detail = format!("{}, {} tokens, {layers} layers", options.kv_type, options.context);
    plan.add(MemoryKind::KvCache, detail, taken(kv));
    let state = RecurrentState::bytes(config).unwrap_or(usize::MAX);
    if state > 0 {
        let detail = format!("f32, {} layers", config.count(LayerKind::Delta));
        plan.add(MemoryKind::State, detail, taken(state));
    }
    let (rest, head) = StepBuffers::bytes(config, options.rows(), options.logit_rows)?;
    let (all, outputs) = (taken(rest.saturating_add(head)), head as u64);
    let scratch = all.saturating_sub(outputs);
    plan.add(MemoryKind::Scratch, format!("{} rows", options.rows()), scratch);
    plan.add(MemoryKind::Outputs, format!("logits of {} rows", options.logit_rows), outputs);
    if let (Some((drafter, other)), Some(room)) = (drafter, options.speculation) {
        let parts = VerifyBuffers::bytes(config, room.rows)?;
        let verify = parts.map(taken).into_iter().fold(0, u64::saturating_add);
        plan.add(MemoryKind::Verify, format!("trees of {} rows", room.rows), verify);
        let sizes = options.draft_sizes(room, config);
        let shared = |on| speculation_bytes(drafter, config.hidden, &sizes, on);
        let ring = format!("features of {} rows, proposals", sizes.rows);
        plan.add(MemoryKind::Draft, ring.clone(), shared(device)?);
        let (on, name) = (other.unwrap_or(device), drafter.name());
        let mut add = |detail, bytes: u64| {
            if bytes > 0 {
                plan.add_on(label(on), MemoryKind::Draft, detail, bytes);
            }
        };
        if let Some(other) = other {
            add(ring, shared(other)?);
        }
        add(format!("{name}, weights"), drafter.weight_bytes());
        add(format!("{name}, cache and activations"), drafter.bytes(&sizes, on)?);
    }
    Ok(plan)
}

/// Adds what a device's driver takes for itself, with so much scratch memory.
pub(super) fn add_driver(plan: &mut MemoryPlan, device: &dyn Device, scratch: u64) {
    if scratch > 0 {
        let bytes = usize::try_from(scratch).unwrap_or(usize::MAX);
        let taken = device.allocation_bytes(bytes);
        plan.add_on(label(device), MemoryKind::Driver, "scratch memory of kernels", taken);
    }
    let overhead = device.overhead_bytes();
    if overhead > 0 {
        let detail = "code, recorded graphs and stacks, about";
        plan.add_on(label(device), MemoryKind::Driver, detail, overhead);
    }
}

/// A device as plans name it.
pub(super) fn label(device: &dyn Device) -> String {
    let info = device.info();
    format!("{}:{} ({})", info.driver, info.index, info.name)
}

/// Fails when a device of the plan has less memory free than its part.
pub(super) fn fits(
    plan: &MemoryPlan,
    devices: &[&dyn Device],
    context: usize,
) -> Result<(), GenerateFault> {
    for device in devices {
        let (label, info) = (label(*device), device.info());
        let (needed, free) = (plan.total_on(&label), info.memory_free);
        if needed > free {
            let device = format!("{}:{}", info.driver, info.index);
            let parts = plan.parts_on(&label);
            return Err(GenerateFault::DoesNotFit { context, needed, free, device, parts });
        }
    }
    Ok(())
}

/// Contexts to try when none is asked for: the model's own, at most 32,768, halved down to
/// 512.
pub(super) fn default_contexts(config: &ModelConfig) -> impl Iterator<Item = usize> {
    let most = config.context_length.min(DEFAULT_CONTEXT);
    std::iter::successors(Some(most), |&context| (context > 512).then_some(context / 2))
}
