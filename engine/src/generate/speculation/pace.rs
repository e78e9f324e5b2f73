//! A request's speculation: asks the controller before each step and tells it after.

use std::time::Instant;

use super::TreeShape;
use crate::device::DeviceFault;
use crate::error::{Error, Result};
use crate::generate::run::{Outcome, Run};
use crate::generate::{Fallback, GenerateFault, GenerateRequest, Session, Speculate, StreamEvent};
use crate::speculate::{
    Choice, Controller, CostModel, CostPoints, Outcome as StepOutcome, SpecMode, SpecStats,
    VerifyPoint,
};

/// Controller and statistics of one request.
pub(in crate::generate) struct Pace {
    asked: Speculate,
    controller: Controller,
    stats: SpecStats,
}

/// The times of forced modes, which nothing is chosen by.
fn any_cost() -> CostPoints {
    let verify = vec![VerifyPoint { rows: 1, seconds: 1.0 }];
    CostPoints { plain_s: 1.0, draft_s: 0.0, commit_s: 0.0, verify }
}

impl Pace {
    /// The pace of a request, or `None` for plain decoding. A degradation is added to
    /// `fallbacks`.
    ///
    /// # Errors
    /// `NoDrafter` when a shape is demanded; `TooManyRows` when the session has no room
    /// for it.
    pub(in crate::generate) fn new(
        session: &mut Session,
        request: &GenerateRequest,
        fallbacks: &mut Vec<Fallback>,
    ) -> Result<Option<Self>> {
        let speculate = request.speculation;
        let limits = speculate.limits;
        let forced = matches!(speculate.mode, SpecMode::Chain | SpecMode::Tree);
        let Some((positions, capacity)) = session.speculation_limits() else {
            return if forced { Err(GenerateFault::NoDrafter.into()) } else { Ok(None) };
        };
        let asked = match speculate.mode {
            SpecMode::Off => return Ok(None),
            // Nothing can be drafted, so nothing needs to be timed.
            SpecMode::Auto if request.max_tokens.is_some_and(|n| n < 2) => return Ok(None),
            SpecMode::Auto if session.options().context < Session::CALIBRATION_CONTEXT => {
                return Ok(None);
            }
            SpecMode::Auto => 0,
            SpecMode::Chain => limits.draft_len().min(positions),
            SpecMode::Tree => limits.tree_budget(),
        };
        if asked > capacity {
            return Err(GenerateFault::TooManyRows { asked, capacity }.into());
        }
        if speculate.mode == SpecMode::Auto
            && session.cost().is_none()
            && let Err(fault) = session.calibrate()
        {
            if !matches!(fault, Error::Device(DeviceFault::NonFinite { .. })) {
                return Err(fault);
            }
            // Timing runs on tokens that the request may never use.
            let (what, reason) = ("auto to plain".to_owned(), fault.to_string());
            tracing::warn!(reason, "plain decoding, since steps can not be timed");
            fallbacks.push(Fallback { what, reason, count: 1 });
            return Ok(None);
        }
        let kept = session.take_controller(speculate);
        let controller = match kept {
            Some(mut controller) => {
                controller.next_request();
                controller
            }
            None => {
                let points = session.cost().cloned().unwrap_or_else(any_cost);
                Controller::new(speculate.mode, limits, positions, CostModel::new(points)?)
            }
        };
        Ok(Some(Self { asked: speculate, controller, stats: SpecStats::default() }))
    }

    /// One step from the pending token `id` on, plain or speculative.
    pub(in crate::generate) fn step(
        &mut self,
        run: &mut Run<'_>,
        session: &mut Session,
        id: u32,
        on_event: &mut dyn FnMut(StreamEvent<'_>),
    ) -> Result<Outcome> {
        let remaining = run.remaining();
        let decision = self.controller.choose(remaining);
        tracing::debug!(%decision, "step");
        let shape = match decision.choice {
            Choice::Plain => None,
            Choice::Chain { len } => Some(TreeShape::chain(len)),
            Choice::Tree { budget } => Some(TreeShape::tree(budget)),
        };
        let start = Instant::now();
        let outcome = match shape {
            None => run.plain(session, id, on_event)?,
            Some(shape) => run.speculate(session, shape.at_most(remaining - 1), on_event)?,
        };
        let total_s = start.elapsed().as_secs_f64();
        let mut seen = StepOutcome {
            choice: decision.choice,
            drafted_rows: 0,
            depth: 0,
            accepted: 0,
            draft_s: 0.0,
            verify_s: 0.0,
            commit_s: 0.0,
            total_s,
        };
        if shape.is_some()
            && let Some(step) = session.last_step()
        {
            seen.drafted_rows = step.rows.saturating_sub(1);
            seen.depth = step.depth;
            seen.accepted = step.accepted.saturating_sub(1);
            seen.draft_s = step.draft.as_secs_f64();
            seen.verify_s = step.verify.as_secs_f64();
            seen.commit_s = step.commit.as_secs_f64();
        }
        self.stats.record(decision.reason, &seen);
        self.controller.observe(&seen);
        Ok(outcome)
    }

    /// Hands the controller back to the session; returns the statistics.
    pub(in crate::generate) fn finish(self, session: &mut Session) -> SpecStats {
        session.keep_controller(self.asked, self.controller);
        self.stats
    }
}
