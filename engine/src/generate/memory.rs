//! The plan of a session's memory.

use super::GenerateFault;
use crate::cache::{KvCache, KvType, RecurrentState};
use crate::device::{DeviceInfo, MemoryKind, MemoryPlan};
use crate::error::Result;
use crate::kernel::TreeRows;
use crate::model::{LayerKind, ModelConfig, StepBuffers, VerifyBuffers};

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

/// Plans weights and a session on a device.
///
/// # Errors
/// Option faults; sizes that overflow.
pub fn plan(
    config: &ModelConfig,
    weights: u64,
    info: &DeviceInfo,
    options: &SessionOptions,
) -> Result<MemoryPlan> {
    options.validate(config)?;
    let mut plan = MemoryPlan::new(format!("{}:{} ({})", info.driver, info.index, info.name));
    plan.add(MemoryKind::Weights, config.architecture, weights);
    let kv = KvCache::bytes(config, options.slots(), options.kv_type).unwrap_or(usize::MAX);
    let layers = config.count(LayerKind::Attention);
    let detail = format!("{}, {} tokens, {layers} layers", options.kv_type, options.context);
    plan.add(MemoryKind::KvCache, detail, kv as u64);
    let state = RecurrentState::bytes(config).unwrap_or(usize::MAX);
    if state > 0 {
        let detail = format!("f32, {} layers", config.count(LayerKind::Delta));
        plan.add(MemoryKind::State, detail, state as u64);
    }
    let (scratch, outputs) = StepBuffers::bytes(config, options.rows(), options.logit_rows)?;
    plan.add(MemoryKind::Scratch, format!("{} rows", options.rows()), scratch as u64);
    let detail = format!("logits of {} rows", options.logit_rows);
    plan.add(MemoryKind::Outputs, detail, outputs as u64);
    if let Some(room) = options.speculation {
        let bytes = VerifyBuffers::bytes(config, room.rows)?;
        plan.add(MemoryKind::Verify, format!("trees of {} rows", room.rows), bytes as u64);
    }
    Ok(plan)
}

/// The context used when none is asked for: the model's own, at most 32,768, halved
/// until the plan fits in nine tenths of the free memory.
pub fn default_context(config: &ModelConfig, weights: u64, info: &DeviceInfo) -> usize {
    let mut context = config.context_length.min(DEFAULT_CONTEXT);
    while context > 512 {
        let planned = plan(config, weights, info, &SessionOptions::on(info, context));
        if planned.is_ok_and(|p| p.total() <= info.memory_free / 10 * 9) {
            break;
        }
        context /= 2;
    }
    context
}
