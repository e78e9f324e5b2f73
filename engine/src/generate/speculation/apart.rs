//! A drafter on another device than its target: what goes from one to the other.
//!
//! Before a draft the features of newly committed tokens go from the target's ring to one
//! of the same shape on the drafter's device; after it the proposal comes back. Both go
//! through host memory. What is drafted has the bits it has on the target's device, if the
//! two devices compute alike.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::graphs::{Small, feature_ring};
use crate::device::{Device, Graph, Stream};
use crate::error::Result;
use crate::generate::session::write;
use crate::kernel::Cursor;
use crate::speculate::{DraftSizes, Drafter, Proposal};
use crate::tensor::Tensor;

/// The drafter's side.
pub(super) struct Apart {
    pub(super) device: Arc<dyn Device>,
    stream: Box<dyn Stream>,
    /// Its own cursor and proposal.
    pub(super) small: Small,
    /// Its own ring.
    pub(super) ring: Option<Tensor>,
    /// On the way between the devices.
    staging: Vec<u8>,
    /// Time of the last draft, copies included.
    pub(super) took: Duration,
}

impl Apart {
    /// The drafter's side, on the device of its weights.
    pub(super) fn new(
        device: &Arc<dyn Device>,
        drafter: &dyn Drafter,
        hidden: usize,
        sizes: &DraftSizes,
    ) -> Result<Self> {
        let small = Small::carve(drafter.positions(), sizes.width, &**device)?;
        let ring = feature_ring(drafter, hidden, sizes.rows, &**device)?;
        let most = ring.as_ref().map_or(0, Tensor::bytes).max(span(&small.proposal).1);
        let (stream, staging) = (device.stream()?, vec![0; most]);
        let device = Arc::clone(device);
        Ok(Self { device, stream, small, ring, staging, took: Duration::ZERO })
    }

    /// Brings over the features of the tokens that the cursor calls committed but not
    /// drafted, then launches a graph of the drafter.
    pub(super) fn launch(
        &mut self,
        target: &mut dyn Stream,
        ring: Option<&Tensor>,
        cursor: [i32; Cursor::WORDS],
        graph: &dyn Graph,
    ) -> Result<()> {
        if let (Some(from), Some(to)) = (ring, &self.ring) {
            let slots = from.shape().rows().max(1);
            let row = from.bytes() / slots;
            let [committed, _, drafted, _] = cursor.map(|word| usize::try_from(word).unwrap_or(0));
            let mut first = drafted;
            while first < committed {
                // Up to the end of the ring, then from its start.
                let slot = first % slots;
                let count = (committed - first).min(slots - slot);
                let bytes = self.staging.get_mut(..count * row).unwrap_or_default();
                target.read(from.buffer(), from.offset() + slot * row, bytes)?;
                self.stream.write(to.buffer(), to.offset() + slot * row, bytes)?;
                first += count;
            }
        }
        write(&mut *self.stream, &self.small.cursor.0, &cursor)?;
        self.stream.launch_graph(graph)
    }

    /// Drafts, and puts the proposal where the target's tree is built from.
    pub(super) fn draft(
        &mut self,
        target: &mut dyn Stream,
        ring: Option<&Tensor>,
        cursor: [i32; Cursor::WORDS],
        graph: &dyn Graph,
        proposal: &Proposal,
    ) -> Result<()> {
        let start = Instant::now();
        self.launch(target, ring, cursor, graph)?;
        // The three tensors lie one after the other, here and there.
        let (from, bytes) = span(&self.small.proposal);
        let staging = self.staging.get_mut(..bytes).unwrap_or_default();
        self.stream.read(self.small.proposal.ids.buffer(), from, staging)?;
        target.write(proposal.ids.buffer(), span(proposal).0, staging)?;
        self.took = start.elapsed();
        Ok(())
    }
}

/// Where a proposal begins in its buffer, and its bytes.
fn span(proposal: &Proposal) -> (usize, usize) {
    let (first, last) = (&proposal.ids, &proposal.log_sum_exp);
    (first.offset(), last.offset() + last.bytes() - first.offset())
}
