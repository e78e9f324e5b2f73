//! Small device buffers and recorded graphs of speculation.

use std::sync::Arc;

use crate::device::{Device, DeviceFault, Graph};
use crate::error::{Error, Result};
use crate::generate::layout::record;
use crate::generate::memory::STEP_ROWS;
use crate::kernel::{Cursor, Op, Regime, Stamp, TreeBuild, TreeLimits};
use crate::model::{Carver, GraphBuilder};
use crate::speculate::{DraftSizes, Drafter, Proposal};
use crate::tensor::{DType, Tensor};

/// Small tensors a step reads and writes.
pub(super) struct Small {
    pub(super) cursor: Cursor,
    pub(super) limits: TreeLimits,
    pub(super) proposal: Proposal,
}

impl Small {
    fn build(positions: usize, width: usize, c: &mut Carver) -> Result<Self> {
        let [cursor] = c.views(DType::I32, [&[Cursor::WORDS]])?;
        let [limits] = c.views(DType::I32, [&[TreeLimits::WORDS]])?;
        let [ids] = c.views(DType::I32, [&[positions, width]])?;
        let [scores] = c.views(DType::F32, [&[positions, width]])?;
        let [log_sum_exp] = c.views(DType::F32, [&[positions]])?;
        let proposal = Proposal { ids, scores, log_sum_exp };
        Ok(Self { cursor: Cursor(cursor), limits: TreeLimits(limits), proposal })
    }

    fn bytes(positions: usize, width: usize) -> Result<usize> {
        let mut counter = Carver::counting();
        Self::build(positions, width, &mut counter)?;
        Ok(counter.bytes())
    }

    pub(super) fn carve(positions: usize, width: usize, device: &dyn Device) -> Result<Self> {
        let buffer = device.allocate(Self::bytes(positions, width)?, "proposals")?;
        Self::build(positions, width, &mut Carver::over(buffer))
    }
}

/// The recorded graphs.
pub(super) struct Graphs {
    /// Takes in up to a ring of features.
    pub(super) context: Option<Arc<dyn Graph>>,
    pub(super) draft: Arc<dyn Graph>,
    /// Takes the time that a verification without a draft starts at.
    pub(super) stamp: Arc<dyn Graph>,
    pub(super) verify: Arc<dyn Graph>,
    pub(super) commit: Arc<dyn Graph>,
    /// Draft (unless that is another device's), verification, walk by the best tokens and
    /// commit.
    pub(super) whole: Arc<dyn Graph>,
    /// The same, by sampled tokens.
    pub(super) sampled: Arc<dyn Graph>,
}

/// `[rows, columns]` of the ring of features, when the drafter reads any.
fn ring_dims(drafter: &dyn Drafter, hidden: usize, rows: usize) -> Option<[usize; 2]> {
    let columns = drafter.layers().len().saturating_mul(hidden);
    (columns > 0).then_some([rows, columns])
}

fn ring_bytes(dims: [usize; 2]) -> Result<usize> {
    let mut counter = Carver::counting();
    counter.views(DType::F32, [&dims])?;
    Ok(counter.bytes())
}

/// Room for the features of `rows` tokens, when the drafter reads any.
pub(super) fn feature_ring(
    drafter: &dyn Drafter,
    hidden: usize,
    rows: usize,
    device: &dyn Device,
) -> Result<Option<Tensor>> {
    let Some(dims) = ring_dims(drafter, hidden, rows) else { return Ok(None) };
    let buffer = device.allocate(ring_bytes(dims)?, "features")?;
    let [ring] = Carver::over(buffer).views(DType::F32, [&dims])?;
    Ok(Some(ring))
}

/// Bytes of the ring of features and of proposals on a device: on the target's, and again
/// on the drafter's where that is another.
pub(in crate::generate) fn speculation_bytes(
    drafter: &dyn Drafter,
    hidden: usize,
    sizes: &DraftSizes,
    device: &dyn Device,
) -> Result<u64> {
    let small = device.allocation_bytes(Small::bytes(drafter.positions(), sizes.width)?);
    let ring = match ring_dims(drafter, hidden, sizes.rows) {
        Some(dims) => device.allocation_bytes(ring_bytes(dims)?),
        None => 0,
    };
    Ok(small.saturating_add(ring))
}

impl Graphs {
    /// `drafts_on` is the drafter's device when that is not the target's.
    pub(super) fn record(
        device: &dyn Device,
        drafts_on: Option<&dyn Device>,
        drafter: &dyn Drafter,
        builder: &GraphBuilder<'_>,
        small: &Small,
        ring_rows: usize,
    ) -> Result<Self> {
        let verify = builder
            .verify
            .ok_or(DeviceFault::BadOperands { op: "graph", detail: "not a verification pass" })?;
        let stamp = |slot| Op::from(Stamp { clock: verify.clock.clone(), slot });
        let proposes =
            || Ok::<_, Error>([drafter.context(STEP_ROWS)?, drafter.proposal()?].concat());
        // What goes before the verification, here, and what drafts.
        let (before, draft) = match drafts_on {
            None => ([vec![stamp(0)], proposes()?, vec![stamp(1)]].concat(), None),
            Some(_) => (vec![stamp(1)], Some(proposes()?)),
        };
        let buffers = builder.buffers;
        let build = Op::from(TreeBuild {
            cursor: small.cursor.clone(),
            limits: small.limits.clone(),
            ids: small.proposal.ids.clone(),
            scores: small.proposal.scores.clone(),
            log_sum_exp: Some(small.proposal.log_sum_exp.clone()),
            vocab: builder.config.vocab,
            control: buffers.control.clone(),
            tokens: buffers.tokens.clone(),
            positions: buffers.positions.clone(),
            tree: verify.tree.clone(),
        });
        let check = |sampled| -> Result<Vec<Op>> {
            let rows = GraphBuilder { sampled, ..*builder }.build(Regime::Step)?;
            let rows = rows.into_iter().map(|traced| traced.op);
            Ok([build.clone()].into_iter().chain(rows).chain([stamp(2)]).collect())
        };
        let (check, check_sampled) = (check(false)?, check(true)?);
        let mut commit = vec![stamp(3)];
        commit.extend(builder.commit(&small.cursor)?);
        commit.push(stamp(4));
        let walk = Op::from(builder.walk()?);
        let whole =
            |check| record(device, before.iter().chain(check).chain([&walk]).chain(&commit));
        let context = drafter.context(ring_rows)?;
        Ok(Self {
            context: match context.is_empty() {
                true => None,
                false => Some(record(drafts_on.unwrap_or(device), context.iter())?),
            },
            draft: record(drafts_on.unwrap_or(device), draft.as_ref().unwrap_or(&before).iter())?,
            stamp: record(device, [stamp(1)].iter())?,
            verify: record(device, check.iter())?,
            commit: record(device, commit.iter())?,
            whole: whole(&check)?,
            sampled: whole(&check_sampled)?,
        })
    }
}
