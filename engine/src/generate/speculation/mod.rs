//! The speculative side of a session: its drafter, its trees, its recorded graphs.
//!
//! A step is one graph: the drafter takes in what was committed since it last drafted
//! and proposes; the tree is built and verified; the target's own choices walk it; the
//! path is committed. Choices are the best tokens or sampled ones; where a device can not
//! tell what is sampled the path ends, and the host chooses that one token from the row's
//! logits. When all choices are made on the host (penalties, biases, log-probabilities,
//! sampling from more than the best candidates) the same operations run as three graphs:
//! draft, verify, commit.

mod apart;
mod calibrate;
mod graphs;
mod pace;
mod session;
mod shape;

use std::time::Duration;

use self::apart::Apart;
pub use self::calibrate::PassTime;
pub(in crate::generate) use self::graphs::speculation_bytes;
use self::graphs::{Graphs, Small, feature_ring};
pub(in crate::generate) use self::pace::Pace;
use self::shape::TreeOnHost;
pub use self::shape::{SpeculativeStep, TreeShape};
use super::layout::Site;
use super::memory::{STEP_ROWS, SessionOptions, SpeculationRoom};
use super::session::{read, write};
use super::{GenerateFault, Speculate};
use crate::device::{Device, Stream};
use crate::error::Result;
use crate::kernel::{Control, Cursor, TreeLimits, TreeWalk};
use crate::model::{FeatureTap, GraphBuilder, VerifyBuffers};
use crate::sample::Draw;
use crate::speculate::{Candidates, Controller, CostPoints, DraftSite, Drafter};
use crate::tensor::Tensor;

/// A session's drafter and all that belongs to verification.
pub(super) struct Speculation {
    pub(super) drafter: Box<dyn Drafter>,
    pub(super) verify: VerifyBuffers,
    small: Small,
    pub(super) ring: Option<Tensor>,
    ring_rows: usize,
    graphs: Graphs,
    /// The drafter's side, when that is another device.
    apart: Option<Apart>,
    room: SpeculationRoom,
    on_host: bool,
    /// Committed tokens whose features the drafter has taken in.
    pub(super) drafted: usize,
    /// What the device's cursor holds, when known.
    cursor: Option<[i32; Cursor::WORDS]>,
    limits: Option<[i32; TreeLimits::WORDS]>,
    /// What the device samples by, when known.
    draw: Option<Draw>,
    ids: Vec<i32>,
    scores: Vec<f32>,
    /// Result and clock, as they lie on the device.
    words: Vec<i32>,
    /// Tokens, parents and choices of the last tree.
    pub(super) rows: TreeOnHost,
    /// The lineage and the committed tokens it was drafted after, while it can be committed.
    pub(super) open: Option<(u64, usize)>,
    pub(super) step: SpeculativeStep,
    /// Times of steps.
    pub(super) cost: Option<CostPoints>,
    /// The last request's controller, for the next one that asks for the same.
    pub(super) controller: Option<(Speculate, Controller)>,
}

impl Speculation {
    /// Reserves everything and records the graphs. `builder` is that of the session's plain
    /// steps.
    pub(super) fn new(
        place: &Site<'_>,
        options: &SessionOptions,
        room: SpeculationRoom,
        mut drafter: Box<dyn Drafter>,
        builder: GraphBuilder<'_>,
    ) -> Result<Self> {
        let Site { device, config, .. } = *place;
        let verify = VerifyBuffers::reserve(config, device, room.rows)?;
        let sizes = options.draft_sizes(room, config);
        let (ring_rows, width) = (sizes.rows, sizes.width);
        let small = Small::carve(drafter.positions(), width, device)?;
        let ring = feature_ring(&*drafter, config.hidden, ring_rows, device)?;
        let apart = place.drafts_on.map(|on| Apart::new(on, &*drafter, config.hidden, &sizes));
        let apart = apart.transpose()?;
        let (site, site_ring) = match &apart {
            Some(apart) => (&apart.small, apart.ring.as_ref()),
            None => (&small, ring.as_ref()),
        };
        let drafts_on = apart.as_ref().map(|apart| &*apart.device);
        drafter.attach(&DraftSite {
            device: drafts_on.unwrap_or(device),
            target: config,
            embedding: &place.weights.embedding,
            head: &place.weights.head,
            cursor: &site.cursor,
            ring: site_ring,
            proposal: &site.proposal,
            sizes,
        })?;
        let tap = ring.as_ref().map(|ring| FeatureTap { layers: drafter.layers(), ring });
        let builder = GraphBuilder { buffers: &verify.step, verify: Some(&verify), tap, ..builder };
        let graphs = Graphs::record(device, drafts_on, &*drafter, &builder, &small, ring_rows)?;
        let proposal = drafter.proposal()?;
        let (rows, candidates) = (room.rows, drafter.positions() * width);
        let bytes = verify.clock.offset() + verify.clock.bytes() - verify.result.offset();
        Ok(Self {
            on_host: proposal.is_empty(),
            drafter,
            small,
            ring,
            ring_rows,
            graphs,
            apart,
            room,
            drafted: 0,
            cursor: None,
            limits: None,
            draw: None,
            ids: vec![-1; candidates],
            scores: vec![f32::NEG_INFINITY; candidates],
            words: vec![0; bytes / 4],
            open: None,
            rows: TreeOnHost {
                tokens: vec![0; rows],
                parents: vec![0; rows],
                choices: vec![0; rows],
                ..TreeOnHost::default()
            },
            step: SpeculativeStep { tokens: Vec::with_capacity(rows + 1), ..Default::default() },
            verify,
            cost: None,
            controller: None,
        })
    }

    /// Looks for a way to the drafter's device that does not lead through the host, when
    /// that is another than the target's.
    pub(super) fn connect(&mut self, target: &dyn Device) {
        if let Some(apart) = &mut self.apart {
            apart.connect(target);
        }
    }

    /// Where the target's plain calls are to put features.
    pub(super) fn tap(&self) -> Option<FeatureTap<'_>> {
        let ring = self.ring.as_ref()?;
        Some(FeatureTap { layers: self.drafter.layers(), ring })
    }

    /// An empty sequence.
    pub(super) fn reset(&mut self) {
        self.drafted = 0;
        self.cursor = None;
    }

    /// Back to `committed` tokens, all of which the drafter has taken in.
    pub(super) fn rewind(&mut self, committed: usize) {
        self.drafted = self.drafted.min(committed);
        self.cursor = None;
    }

    /// Most rows of a tree.
    pub(super) fn capacity(&self) -> usize {
        self.room.rows
    }

    /// Lets the drafter take features in before a call of `rows` rows would overwrite
    /// some it has not seen.
    pub(super) fn make_room(
        &mut self,
        stream: &mut dyn Stream,
        committed: usize,
        rows: usize,
    ) -> Result<()> {
        if self.ring.is_none() || committed - self.drafted + rows <= self.ring_rows {
            return Ok(());
        }
        self.catch_up(stream, committed)
    }

    /// Lets the drafter take in the features of all committed tokens.
    fn catch_up(&mut self, stream: &mut dyn Stream, committed: usize) -> Result<()> {
        let Some(graph) = &self.graphs.context else { return Ok(()) };
        if committed > self.drafted {
            let words = [committed as i32, 0, self.drafted as i32, 0];
            match &mut self.apart {
                Some(apart) => apart.launch(stream, self.ring.as_ref(), words, &**graph)?,
                None => {
                    write(stream, &self.small.cursor.0, &words)?;
                    stream.launch_graph(&**graph)?;
                }
            }
            self.cursor = None;
            self.drafted = committed;
        }
        Ok(())
    }

    /// Brings the device's cursor and limits up to date and, for a drafter on the host or
    /// on another device, the proposal. `history` ends with the pending token.
    fn prepare(
        &mut self,
        stream: &mut dyn Stream,
        committed: usize,
        history: &[u32],
        shape: TreeShape,
    ) -> Result<()> {
        let Some(&pending) = history.last() else {
            return Err(GenerateFault::EmptyPrompt.into());
        };
        if self.ring.is_some() && committed - self.drafted > STEP_ROWS {
            self.catch_up(stream, committed)?;
        }
        let mut positions = self.drafter.positions();
        if self.on_host {
            positions = self.propose(stream, history)?;
        }
        let drafted = if self.ring.is_some() { self.drafted } else { committed };
        let cursor = [committed as i32, pending as i32, drafted as i32, 0];
        if self.cursor != Some(cursor) {
            write(stream, &self.small.cursor.0, &cursor)?;
        }
        let small = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
        let budget = shape.budget.min(self.room.rows - 1);
        // No deeper than what is proposed, so that the words stay the same from step to step.
        let depth = shape.depth.min(positions);
        let limits = [budget, depth, positions, shape.chain].map(small);
        if self.limits != Some(limits) {
            write(stream, &self.small.limits.0, &limits)?;
            self.limits = Some(limits);
        }
        self.step.positions = positions;
        if let Some(apart) = &mut self.apart {
            let (graph, proposal) = (&*self.graphs.draft, &self.small.proposal);
            apart.draft(stream, self.ring.as_ref(), cursor, graph, proposal)?;
        }
        Ok(())
    }

    fn propose(&mut self, stream: &mut dyn Stream, history: &[u32]) -> Result<usize> {
        let most = self.drafter.positions();
        self.ids.fill(-1);
        self.scores.fill(f32::NEG_INFINITY);
        let width = self.ids.len() / most;
        let (ids, scores) = (&mut self.ids, &mut self.scores);
        let filled = self.drafter.propose(history, &mut Candidates { ids, scores, width });
        self.write_proposal(stream)?;
        Ok(filled.min(most))
    }

    /// Puts candidates made on the host, with log-probabilities for scores, where a
    /// drafter on the device leaves its own.
    fn write_proposal(&self, stream: &mut dyn Stream) -> Result<()> {
        let proposal = &self.small.proposal;
        write(stream, &proposal.ids, &self.ids)?;
        write(stream, &proposal.scores, bytemuck::cast_slice(&self.scores))?;
        let sums = &proposal.log_sum_exp;
        stream.fill(sums.buffer(), sums.offset(), sums.bytes(), 0)
    }

    /// Drafts after the committed tokens, and no more.
    fn draft(
        &mut self,
        stream: &mut dyn Stream,
        committed: usize,
        history: &[u32],
        shape: TreeShape,
    ) -> Result<()> {
        self.prepare(stream, committed, history, shape)?;
        let own = self.apart.is_none();
        stream.launch_graph(if own { &*self.graphs.draft } else { &*self.graphs.stamp })?;
        if self.ring.is_some() {
            self.drafted = committed;
        }
        self.cursor = None;
        Ok(())
    }

    /// One step with the target's choices, sampled by `draw` or else its best tokens,
    /// committed. Returns rows committed.
    pub(super) fn run_whole(
        &mut self,
        stream: &mut dyn Stream,
        committed: usize,
        history: &[u32],
        shape: TreeShape,
        draw: Option<&Draw>,
    ) -> Result<usize> {
        self.prepare(stream, committed, history, shape)?;
        if let Some(draw) = draw
            && self.draw != Some(*draw)
        {
            write(stream, &self.verify.step.head.best.params.0, &draw.words())?;
            self.draw = Some(*draw);
        }
        // Until the result is here nobody knows how far the device's cursor came.
        self.cursor = None;
        stream.launch_graph(if draw.is_some() {
            &*self.graphs.sampled
        } else {
            &*self.graphs.whole
        })?;
        self.read_result(stream)?;
        let Self { words, step, .. } = self;
        let result = words.get(..TreeWalk::HEADER + self.room.rows).unwrap_or_default();
        let (header, tokens) = result.split_at_checked(TreeWalk::HEADER).unwrap_or_default();
        let [accepted, rows, next, depth] =
            [TreeWalk::ACCEPTED, TreeWalk::ROWS, TreeWalk::NEXT, TreeWalk::DEPTH]
                .map(|word| header.get(word).copied().unwrap_or(-1));
        let accepted = usize::try_from(accepted).unwrap_or(0).min(tokens.len());
        step.is_finite = next != Draw::NOT_FINITE;
        step.undecided = match next {
            Draw::UNDECIDED => Some(last_row(stream, &self.verify.path.0, accepted)?),
            _ => None,
        };
        let next = u32::try_from(next).ok();
        let tokens = tokens.get(1..accepted).unwrap_or_default().iter().map(|&t| t as u32);
        step.tokens.clear();
        step.tokens.extend(tokens);
        step.tokens.extend(next);
        step.accepted = accepted;
        step.rows = usize::try_from(rows).unwrap_or(0);
        step.depth = usize::try_from(depth).unwrap_or(0);
        self.committed(committed, accepted, next);
        Ok(accepted)
    }

    /// Drafts and verifies; the choices are the caller's, who then commits.
    pub(super) fn run_open(
        &mut self,
        stream: &mut dyn Stream,
        committed: usize,
        history: &[u32],
        shape: TreeShape,
    ) -> Result<()> {
        self.draft(stream, committed, history, shape)?;
        stream.launch_graph(&*self.graphs.verify)?;
        let (rows, step) = (&mut self.rows, &self.verify.step);
        read(stream, &step.control.0, bytemuck::cast_slice_mut(&mut rows.control))?;
        let live = usize::try_from(rows.control[0]).unwrap_or(0);
        let live = live.min(rows.tokens.len());
        rows.live = live;
        let part = |all: &mut Vec<i32>, t: &Tensor, stream: &mut dyn Stream| {
            read(stream, t, bytemuck::cast_slice_mut(&mut all[..live]))
        };
        part(&mut rows.tokens, &step.tokens, stream)?;
        part(&mut rows.parents, &self.verify.tree.parents, stream)?;
        part(&mut rows.choices, &step.head.top_ids, stream)?;
        self.step.rows = live;
        self.step.undecided = None;
        self.step.depth = self.rows.depth();
        Ok(())
    }

    /// Commits a path chosen on the host. `path` has the rows in ascending order.
    pub(super) fn run_commit(
        &mut self,
        stream: &mut dyn Stream,
        committed: usize,
        path: &[i32],
        next: u32,
    ) -> Result<()> {
        let (tensor, count) = (&self.verify.path.0, path.len());
        write(stream, tensor, &[count as i32])?;
        stream.write(tensor.buffer(), tensor.offset() + 4, bytemuck::cast_slice(path))?;
        let header = [count as i32, self.step.rows as i32, next as i32];
        write(stream, &self.verify.result, &header)?;
        stream.launch_graph(&*self.graphs.commit)?;
        self.read_result(stream)?;
        self.step.accepted = count;
        self.committed(committed, count, Some(next));
        Ok(())
    }

    /// Times a draft; nothing is proposed to anyone.
    pub(super) fn time_draft(
        &mut self,
        stream: &mut dyn Stream,
        committed: usize,
    ) -> Result<Duration> {
        self.draft(stream, committed, &[0], TreeShape::chain(1))?;
        self.read_result(stream)?;
        Ok(self.draft_time())
    }

    /// Times a verification pass of this many rows, the first `chain` drafted ones a chain,
    /// and the commit of one of them. One token is committed.
    pub(super) fn time_verify(
        &mut self,
        stream: &mut dyn Stream,
        committed: usize,
        rows: usize,
        chain: usize,
    ) -> Result<PassTime> {
        let positions = self.drafter.positions();
        let width = self.ids.len() / positions;
        for (i, id) in self.ids.iter_mut().enumerate() {
            *id = (i % width) as i32;
        }
        self.scores.fill(-1.0);
        self.write_proposal(stream)?;
        let cursor = [committed as i32, 0, self.drafted as i32, 0];
        write(stream, &self.small.cursor.0, &cursor)?;
        let most = positions as i32;
        write(stream, &self.small.limits.0, &[rows as i32 - 1, most, most, chain as i32])?;
        (self.cursor, self.limits) = (None, None);
        stream.launch_graph(&*self.graphs.stamp)?;
        stream.launch_graph(&*self.graphs.verify)?;
        write(stream, &self.verify.path.0, &[1, 0])?;
        write(stream, &self.verify.result, &[1, 1, 0])?;
        stream.launch_graph(&*self.graphs.commit)?;
        self.read_result(stream)?;
        let mut control = [0; Control::WORDS];
        let tensor = &self.verify.step.control.0;
        read(stream, tensor, bytemuck::cast_slice_mut(&mut control))?;
        let rows = usize::try_from(control[Control::ROWS]).unwrap_or(0);
        Ok(PassTime { rows, verify: self.time(2), commit: self.time(4) })
    }

    /// Follows what a commit of `rows` rows has left on the device.
    fn committed(&mut self, before: usize, rows: usize, next: Option<u32>) {
        // A host drafter's cursor is written anew: nothing on the device moves `drafted`.
        self.cursor = None;
        if self.ring.is_some() {
            self.drafted = before;
            let after = (before + rows) as i32;
            // A drafter on another device has a cursor of its own.
            let next = next.filter(|_| self.apart.is_none());
            self.cursor = next.map(|next| [after, next as i32, before as i32, 0]);
        }
        self.note_times();
    }

    fn note_times(&mut self) {
        self.step.draft = self.draft_time();
        self.step.verify = self.time(2);
        self.step.commit = self.time(4);
    }

    /// Notes how far an answer followed a tree that is not committed, since it ended.
    pub(super) fn abandon(&mut self, stream: &mut dyn Stream, accepted: usize) -> Result<()> {
        self.read_result(stream)?;
        self.note_times();
        self.step.commit = Duration::ZERO;
        self.step.accepted = accepted;
        Ok(())
    }

    /// Time of the last draft, what went from device to device included.
    fn draft_time(&self) -> Duration {
        self.apart.as_ref().map_or_else(|| self.time(1), |apart| apart.took)
    }

    fn read_result(&mut self, stream: &mut dyn Stream) -> Result<()> {
        let result = &self.verify.result;
        let bytes = bytemuck::cast_slice_mut(&mut self.words);
        stream.read(result.buffer(), result.offset(), bytes)
    }

    /// Time between stamp `n - 1` and stamp `n`.
    fn time(&self, n: usize) -> Duration {
        let at = (self.verify.clock.offset() - self.verify.result.offset()) / 4;
        let stamp = |n: usize| {
            let halves = self.words.get(at + 2 * n..at + 2 * n + 2).unwrap_or_default();
            bytemuck::cast_slice(halves).first_chunk().map_or(0, |b| i64::from_le_bytes(*b))
        };
        let nanos = stamp(n).saturating_sub(stamp(n.saturating_sub(1)));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
    }
}

/// The last row of a path of `rows` rows.
fn last_row(stream: &mut dyn Stream, path: &Tensor, rows: usize) -> Result<usize> {
    let mut row = [0i32];
    let at = path.offset() + 4 * rows;
    stream.read(path.buffer(), at, bytemuck::cast_slice_mut(&mut row))?;
    Ok(usize::try_from(row[0]).unwrap_or(0))
}
