//! What a drafter is to a session.

use std::sync::Arc;

use crate::cache::KvType;
use crate::device::{Device, Weight};
use crate::error::Result;
use crate::kernel::{Cursor, Op};
use crate::model::ModelConfig;
use crate::tensor::Tensor;

/// Candidates for the positions after the pending token, on the device: `P` positions
/// of `k` candidates, most likely first.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// `[P, k]` I32.
    pub ids: Tensor,
    /// `[P, k]` F32: logits.
    pub scores: Tensor,
    /// `[P]` F32: log of the sum of exponentials of each position's logits.
    pub log_sum_exp: Tensor,
}

/// Sizes that decide how much memory a drafter takes.
#[derive(Clone, Copy, Debug)]
pub struct DraftSizes {
    /// Context of the session in tokens.
    pub context: usize,
    /// Most rows of features taken in at a time.
    pub rows: usize,
    /// Candidates per position.
    pub width: usize,
    /// Storage type of keys and values.
    pub kv_type: KvType,
}

/// What a session lends its drafter.
pub struct DraftSite<'a> {
    /// The drafter's device: the target's, when the drafter names none.
    pub device: &'a dyn Device,
    /// The target's settings.
    pub target: &'a ModelConfig,
    /// The target's embedding table, on the target's device.
    pub embedding: &'a Weight,
    /// The target's head, on the target's device.
    pub head: &'a Weight,
    /// Where the sequence stands.
    pub cursor: &'a Cursor,
    /// `[R, W]` F32: features of the layers the drafter asked for, side by side.
    pub ring: Option<&'a Tensor>,
    /// Where the proposal goes.
    pub proposal: &'a Proposal,
    /// Sizes.
    pub sizes: DraftSizes,
}

/// Candidates from the host, for drafters without device operations.
pub struct Candidates<'a> {
    /// `[P, k]`, row by row; what is left at -1 is no candidate.
    pub ids: &'a mut [i32],
    /// `[P, k]`: log-probabilities, descending within a position.
    pub scores: &'a mut [f32],
    /// Candidates per position, `k`.
    pub width: usize,
}

/// Proposes tokens. One per session; nothing it proposes changes the answer.
pub trait Drafter: Send {
    /// Short name for logs and results.
    fn name(&self) -> &str;

    /// Most positions it proposes, at least 1 and at most 63.
    fn positions(&self) -> usize;

    /// Layers of the target whose output it reads, in the order of their columns in the
    /// ring; empty for a drafter that reads none.
    fn layers(&self) -> &[usize] {
        &[]
    }

    /// The device its weights are on; `None` for one that has none, which goes with the
    /// target.
    fn device(&self) -> Option<Arc<dyn Device>> {
        None
    }

    /// Bytes that its weights take on its device.
    fn weight_bytes(&self) -> u64 {
        0
    }

    /// Bytes that [`attach`](Self::attach) will reserve on this device, each buffer counted
    /// by [`Device::allocation_bytes`].
    fn bytes(&self, sizes: &DraftSizes, device: &dyn Device) -> Result<u64>;

    /// Reserves memory. Called before the methods below, which go by the last call: the
    /// first may be at a [`Rehearsal`](crate::device::Rehearsal), to measure what they need.
    ///
    /// # Errors
    /// `OutOfMemory`, operand faults.
    fn attach(&mut self, site: &DraftSite<'_>) -> Result<()>;

    /// Operations that take the features of up to `rows` committed tokens in, from the
    /// cursor's `drafted` on. Empty for a drafter that reads none.
    fn context(&self, rows: usize) -> Result<Vec<Op>>;

    /// Operations that fill the proposal for the cursor's pending token. Empty for a
    /// drafter that proposes from the host.
    fn proposal(&self) -> Result<Vec<Op>>;

    /// Proposes from the host: fills candidates for the tokens after `history` (prompt,
    /// answer and pending token) and returns for how many positions. Only called when
    /// [`proposal`](Self::proposal) is empty.
    fn propose(&mut self, history: &[u32], candidates: &mut Candidates<'_>) -> usize {
        let _ = (history, candidates);
        0
    }
}
