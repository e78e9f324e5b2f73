//! Speculative steps of a session.

use super::{Speculation, SpeculativeStep, TreeShape};
use crate::device::DeviceFault;
use crate::error::Result;
use crate::generate::session::{Session, read};
use crate::generate::{GenerateFault, Speculate};
use crate::sample::Draw;
use crate::speculate::Controller;

impl Session {
    /// Name of the session's drafter, when it has one.
    pub fn drafter(&self) -> Option<&str> {
        self.speculation.as_ref().map(|s| s.drafter.name())
    }

    /// With a drafter on another device: whether copies between the two go straight from
    /// device to device, or why they go through host memory.
    pub fn drafter_link(&self) -> Option<Result<(), &str>> {
        Some(self.speculation.as_ref()?.apart.as_ref()?.link())
    }

    /// Positions the drafter proposes at most, and drafted rows a tree can have.
    pub fn speculation_limits(&self) -> Option<(usize, usize)> {
        let speculation = self.speculation.as_ref()?;
        Some((speculation.drafter.positions(), speculation.capacity() - 1))
    }

    /// One speculative step with the target's greedy choices, as one graph. `history`
    /// is the whole sequence: the committed tokens and the pending one.
    ///
    /// Afterwards the accepted path is committed and a new token is pending: the last of
    /// the step's `tokens`.
    ///
    /// # Errors
    /// `NoDrafter`, `HistoryMismatch`, `ContextLengthExceeded`, device faults. After
    /// `NonFinite` the path is committed, and [`last_step`](Self::last_step) has it.
    pub fn speculate(&mut self, history: &[u32], shape: TreeShape) -> Result<&SpeculativeStep> {
        self.speculate_by(history, shape, None)
    }

    /// The same with sampled tokens: those that a [`Sampler`](crate::sample::Sampler) of
    /// these parameters would choose. Where the best candidates do not tell a token, the
    /// step ends: then `undecided` names a row, [`tree_logits`](Self::tree_logits) of which
    /// the caller chooses the next pending token from.
    ///
    /// # Errors
    /// As [`speculate`](Self::speculate).
    pub fn speculate_sampled(
        &mut self,
        history: &[u32],
        shape: TreeShape,
        draw: &Draw,
    ) -> Result<&SpeculativeStep> {
        self.speculate_by(history, shape, Some(draw))
    }

    fn speculate_by(
        &mut self,
        history: &[u32],
        shape: TreeShape,
        draw: Option<&Draw>,
    ) -> Result<&SpeculativeStep> {
        let shape = self.admit(history, shape)?;
        let (speculation, stream, committed) = self.parts()?;
        let rows = speculation.run_whole(stream, committed, history, shape, draw)?;
        self.committed += rows;
        self.logit_count = 0;
        let step = &self.parts()?.0.step;
        match step.is_finite {
            true => Ok(step),
            false => {
                let row = rows.saturating_sub(1);
                Err(DeviceFault::NonFinite { op: "lm_head", row }.into())
            }
        }
    }

    /// Drafts and verifies a tree without choosing. Follow it with
    /// [`tree_logits`](Self::tree_logits) and [`tree_child`](Self::tree_child) from row
    /// 0 on, then [`commit_path`](Self::commit_path); or with nothing, which leaves the
    /// sequence where it was.
    ///
    /// # Errors
    /// As [`speculate`](Self::speculate).
    pub fn draft(&mut self, history: &[u32], shape: TreeShape) -> Result<&SpeculativeStep> {
        let shape = self.admit(history, shape)?;
        let lineage = self.lineage;
        let (speculation, stream, committed) = self.parts()?;
        speculation.open = None;
        speculation.run_open(stream, committed, history, shape)?;
        speculation.open = Some((lineage, committed));
        self.logit_count = 0;
        Ok(&self.parts()?.0.step)
    }

    /// The target's logits after a row of the tree last drafted, or after the `undecided`
    /// row of a sampled step, `[vocab]`.
    ///
    /// # Errors
    /// `NoDrafter`; `TooManyRows` for a row the tree does not have; `NonFinite`.
    pub fn tree_logits(&mut self, row: usize) -> Result<&[f32]> {
        let vocab = self.engine.config().vocab;
        let Self { speculation, stream, logits, .. } = self;
        let speculation = speculation.as_deref().ok_or(GenerateFault::NoDrafter)?;
        check_row(speculation, row)?;
        let tensor = &speculation.verify.step.head.logits;
        let out = &mut logits[..vocab];
        let offset = tensor.offset() + row * vocab * 4;
        stream.read(tensor.buffer(), offset, bytemuck::cast_slice_mut(out))?;
        Ok(out)
    }

    /// The row of the tree last drafted that holds `token` after `row`.
    pub fn tree_child(&self, row: usize, token: u32) -> Option<usize> {
        self.speculation.as_deref()?.rows.child(row, token)
    }

    /// Tokens and parents of the tree last drafted; the first parent is -1.
    pub fn tree(&self) -> Option<(&[i32], &[i32])> {
        let rows = &self.speculation.as_deref()?.rows;
        Some((rows.tokens.get(..rows.len())?, rows.parents.get(..rows.len())?))
    }

    /// Commits rows of the tree last drafted: `path` from row 0 down, and the token
    /// that is then pending.
    ///
    /// # Errors
    /// `NoDrafter`; `NoTree` when none was drafted at this place of the sequence, which any
    /// commit moves on; `BadPath`; device faults.
    pub fn commit_path(&mut self, path: &[i32], next: u32) -> Result<&SpeculativeStep> {
        let lineage = self.lineage;
        let (speculation, stream, committed) = self.parts()?;
        if speculation.open != Some((lineage, committed)) {
            return Err(GenerateFault::NoTree.into());
        }
        if !speculation.rows.is_path(path) {
            return Err(GenerateFault::BadPath.into());
        }
        speculation.open = None;
        speculation.run_commit(stream, committed, path, next)?;
        self.committed += path.len();
        Ok(&self.parts()?.0.step)
    }

    /// Leaves the tree last drafted without a commit: the answer ended after `accepted` of
    /// its rows.
    pub(in crate::generate) fn abandon_tree(&mut self, accepted: usize) -> Result<()> {
        let (speculation, stream, _) = self.parts()?;
        speculation.abandon(stream, accepted)
    }

    /// Features in the ring that the drafter has not taken in, `[rows, columns]`, for
    /// checks.
    pub fn read_features(&mut self) -> Result<Vec<f32>> {
        let (speculation, stream, committed) = self.parts()?;
        let Some(ring) = &speculation.ring else { return Ok(Vec::new()) };
        let shape = ring.shape();
        let mut all = vec![0f32; shape.elements()];
        read(stream, ring, bytemuck::cast_slice_mut(&mut all))?;
        let (rows, columns) = (shape.rows(), shape.row_len());
        let at = |p: usize| p % rows * columns;
        let pending = speculation.drafted..committed;
        Ok(pending.flat_map(|p| all[at(p)..at(p) + columns].to_vec()).collect())
    }

    /// The last speculative step.
    pub fn last_step(&self) -> Option<&SpeculativeStep> {
        self.speculation.as_deref().map(|s| &s.step)
    }

    /// The proposal of the last draft: ids and log-probabilities, `[P, k]` each, for
    /// checks.
    pub fn read_proposal(&mut self) -> Result<(Vec<i32>, Vec<f32>)> {
        let (speculation, stream, _) = self.parts()?;
        let proposal = &speculation.small.proposal;
        let shape = proposal.ids.shape();
        let (mut ids, mut scores) = (vec![0; shape.elements()], vec![0f32; shape.elements()]);
        let mut sums = vec![0f32; shape.rows()];
        read(stream, &proposal.ids, bytemuck::cast_slice_mut(&mut ids))?;
        read(stream, &proposal.scores, bytemuck::cast_slice_mut(&mut scores))?;
        read(stream, &proposal.log_sum_exp, bytemuck::cast_slice_mut(&mut sums))?;
        for (row, sum) in scores.chunks_exact_mut(shape.row_len()).zip(&sums) {
            row.iter_mut().for_each(|score| *score -= sum);
        }
        Ok((ids, scores))
    }

    /// Takes the controller of an earlier request that asked for the same.
    pub(in crate::generate) fn take_controller(&mut self, asked: Speculate) -> Option<Controller> {
        let (kept, controller) = self.speculation.as_deref_mut()?.controller.take()?;
        (kept == asked).then_some(controller)
    }

    /// Keeps a controller for the next request.
    pub(in crate::generate) fn keep_controller(&mut self, asked: Speculate, made: Controller) {
        if let Some(speculation) = self.speculation.as_deref_mut() {
            speculation.controller = Some((asked, made));
        }
    }

    /// Lets the drafter, if there is one, take in all committed tokens.
    pub(in crate::generate) fn draft_to_end(&mut self) -> Result<()> {
        match self.parts() {
            Ok((speculation, stream, committed)) => speculation.catch_up(stream, committed),
            Err(_) => Ok(()),
        }
    }

    pub(super) fn parts(
        &mut self,
    ) -> Result<(&mut Speculation, &mut dyn crate::device::Stream, usize), GenerateFault> {
        let speculation = self.speculation.as_deref_mut().ok_or(GenerateFault::NoDrafter)?;
        Ok((speculation, &mut *self.stream, self.committed))
    }

    /// Checks the history and cuts the shape so that no path leads past the context.
    fn admit(&self, history: &[u32], shape: TreeShape) -> Result<TreeShape, GenerateFault> {
        if self.speculation.is_none() {
            return Err(GenerateFault::NoDrafter);
        }
        let (committed, context) = (self.committed, self.options.context);
        if history.len() != committed + 1 {
            let history = history.len();
            return Err(GenerateFault::HistoryMismatch { history, committed });
        }
        self.check(&history[committed..])?;
        Ok(shape.at_most(context - committed - 1))
    }
}

fn check_row(speculation: &Speculation, row: usize) -> Result<()> {
    if speculation.step.undecided == Some(row) {
        return Ok(());
    }
    let capacity = speculation.rows.len();
    if row >= capacity {
        return Err(GenerateFault::TooManyRows { asked: row + 1, capacity }.into());
    }
    if !speculation.rows.is_finite(row) {
        return Err(DeviceFault::NonFinite { op: "lm_head", row }.into());
    }
    Ok(())
}
