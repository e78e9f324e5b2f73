//! A drafter on another device than its target: what goes from one to the other.
//!
//! Before a draft the features of newly committed tokens go from the target's ring to one
//! of the same shape on the drafter's device; after it the proposal comes back. Both go
//! straight from device to device where such copies have been verified, else through host
//! memory. What is drafted has the bits it has on the target's device, if the two devices
//! compute alike.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::graphs::{Small, feature_ring};
use crate::device::{Device, End, Graph, Link, Stream, verified_link};
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
    /// Straight from device to device, or why not.
    link: Result<Arc<dyn Link>, String>,
    /// On the way between the devices, through the host.
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
        let link = Err("not tried".to_owned());
        Ok(Self { device, stream, small, ring, link, staging, took: Duration::ZERO })
    }

    /// Looks for a way from device to device. Where there is none that is no fault: copies
    /// go through host memory, and the reason is told.
    pub(super) fn connect(&mut self, target: &dyn Device) {
        let found = verified_link(target, &*self.device);
        let (of, on) = (target.info(), self.device.info());
        let (target, drafter) =
            (format!("{}:{}", of.driver, of.index), format!("{}:{}", on.driver, on.index));
        match &found {
            Ok(_) => {
                tracing::info!(drafter, target, "features and proposals go by peer copies");
            }
            // Of two drivers nobody expects it.
            Err(reason) if of.driver != on.driver => {
                tracing::info!(drafter, target, "drafts go through host memory: {reason}");
            }
            Err(reason) => {
                tracing::warn!(drafter, target, "drafts go through host memory: {reason}");
            }
        }
        self.link = found.map_err(|reason| reason.to_string());
    }

    /// Whether copies go from device to device, or why not.
    pub(super) fn link(&self) -> Result<(), &str> {
        self.link.as_ref().map(|_| ()).map_err(String::as_str)
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
                let [source, place] = [from, to].map(|ring| ring.offset() + slot * row);
                if let Ok(link) = &self.link {
                    let from = End { stream: target, buffer: from.buffer(), offset: source };
                    let stream = &mut *self.stream;
                    let to = End { stream, buffer: to.buffer(), offset: place };
                    link.copy(from, to, count * row)?;
                } else {
                    let bytes = self.staging.get_mut(..count * row).unwrap_or_default();
                    target.read(from.buffer(), source, bytes)?;
                    self.stream.write(to.buffer(), place, bytes)?;
                }
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
        if let Ok(link) = &self.link {
            let (own, place) = (self.small.proposal.ids.buffer(), span(proposal).0);
            let from = End { stream: &mut *self.stream, buffer: own, offset: from };
            let to = End { stream: target, buffer: proposal.ids.buffer(), offset: place };
            link.copy(from, to, bytes)?;
            // The time of a draft is known when it is done.
            self.stream.synchronize()?;
            self.took = start.elapsed();
            return Ok(());
        }
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
