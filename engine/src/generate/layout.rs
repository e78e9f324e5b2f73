//! What a session reserves and records on its devices; on stand-ins for them, to learn
//! beforehand what that takes.

use std::sync::Arc;

use super::memory::{STEP_ROWS, SessionOptions};
use super::speculation::Speculation;
use crate::cache::{KvCache, RecurrentState};
use crate::device::{Device, Graph, Measured, Rehearsal};
use crate::error::Result;
use crate::kernel::{Op, Regime};
use crate::model::{GraphBuilder, LoadedWeights, ModelConfig, StepBuffers};
use crate::speculate::Drafter;

/// Rows of prefill calls that have graphs of their own beside that of a whole chunk.
const SHORT_CHUNKS: [usize; 2] = [512, 128];

/// A session's own drafter, if it has one.
pub(super) type MaybeDrafter = Option<Box<dyn Drafter>>;

/// Where a session is to be.
#[derive(Clone, Copy)]
pub(super) struct Site<'a> {
    pub(super) device: &'a dyn Device,
    /// The drafter's device, when that is another.
    pub(super) drafts_on: Option<&'a Arc<dyn Device>>,
    pub(super) weights: &'a LoadedWeights,
    pub(super) config: &'a ModelConfig,
}

/// The device of a drafter that is not on its target's.
pub(super) fn drafts_on(
    drafter: Option<&dyn Drafter>,
    target: &dyn Device,
) -> Option<Arc<dyn Device>> {
    drafter.and_then(Drafter::device).filter(|device| device.id() != target.id())
}

/// Caches, activations and recorded graphs.
pub(super) struct Layout {
    pub(super) kv: KvCache,
    pub(super) recurrent: RecurrentState,
    pub(super) buffers: StepBuffers,
    pub(super) single_graph: Arc<dyn Graph>,
    pub(super) sampled_graph: Arc<dyn Graph>,
    pub(super) step_graph: Arc<dyn Graph>,
    pub(super) prefill_graphs: Vec<(usize, Arc<dyn Graph>)>,
    pub(super) speculation: Option<Speculation>,
}

impl Layout {
    /// Reserves everything and records the graphs.
    pub(super) fn new(
        site: &Site<'_>,
        options: &SessionOptions,
        drafter: Option<Box<dyn Drafter>>,
    ) -> Result<Self> {
        let Site { device, config, weights, .. } = *site;
        let kv = KvCache::reserve(config, device, options.slots(), options.kv_type)?;
        let recurrent = RecurrentState::reserve(config, device)?;
        let buffers = StepBuffers::reserve(config, device, options.rows(), options.logit_rows)?;
        let mut builder = GraphBuilder {
            config,
            weights,
            buffers: &buffers,
            kv: &kv,
            recurrent: &recurrent,
            tap: None,
            verify: None,
            sampled: false,
        };
        let speculation = match (drafter, options.speculation) {
            (Some(drafter), Some(room)) => {
                Some(Speculation::new(site, options, room, drafter, builder)?)
            }
            _ => None,
        };
        builder.tap = speculation.as_ref().and_then(Speculation::tap);
        // A graph is as large as its buffers: calls of few rows have graphs of their own.
        let (single, few) = (buffers.first_rows(1)?, buffers.first_rows(STEP_ROWS)?);
        let short = SHORT_CHUNKS.into_iter().filter(|rows| *rows < options.rows());
        let short = short.map(|rows| Ok((rows, buffers.first_rows(rows)?)));
        let short = short.collect::<Result<Vec<_>>>()?;
        let graph = |regime, buffers, sampled| -> Result<Arc<dyn Graph>> {
            let ops = GraphBuilder { buffers, sampled, ..builder }.build(regime)?;
            record(device, ops.iter().map(|traced| &traced.op))
        };
        let mut prefill_graphs = vec![(options.rows(), graph(Regime::Prefill, &buffers, false)?)];
        for (rows, buffers) in &short {
            prefill_graphs.push((*rows, graph(Regime::Prefill, buffers, false)?));
        }
        let single_graph = graph(Regime::Step, &single, false)?;
        let sampled_graph = graph(Regime::Step, &single, true)?;
        let step_graph = graph(Regime::Step, &few, false)?;
        Ok(Self {
            kv,
            recurrent,
            buffers,
            single_graph,
            sampled_graph,
            step_graph,
            prefill_graphs,
            speculation,
        })
    }
}

/// Makes a session on stand-ins. Returns what it takes of the target's device and of the
/// drafter's, if that is another, and the drafter.
pub(super) fn rehearse(
    device: &Arc<Rehearsal>,
    drafts_on: Option<&Arc<Rehearsal>>,
    (config, weights): (&ModelConfig, &LoadedWeights),
    options: &SessionOptions,
    drafter: MaybeDrafter,
) -> Result<([Measured; 2], MaybeDrafter)> {
    let measured = || {
        let other = drafts_on.map(|device| device.take_measured());
        [device.take_measured(), other.unwrap_or_default()]
    };
    measured();
    let other: Option<Arc<dyn Device>> = drafts_on.map(|device| Arc::clone(device) as _);
    let site = Site { device: &**device, drafts_on: other.as_ref(), weights, config };
    let layout = Layout::new(&site, options, drafter)?;
    Ok((measured(), layout.speculation.map(|speculation| speculation.drafter)))
}

/// Prepares operations and records them, in order.
pub(super) fn record<'a>(
    device: &dyn Device,
    ops: impl Iterator<Item = &'a Op>,
) -> Result<Arc<dyn Graph>> {
    let kernels: Result<Vec<_>> = ops.map(|op| device.prepare(op)).collect();
    device.record(&kernels?)
}
