//! Timing plain steps, drafts and verification passes of a session.

use std::time::{Duration, Instant};

use crate::error::Result;
use crate::generate::{GenerateFault, Session, WantLogits};
use crate::speculate::{Calibration, CalibrationPlan, CostPoints, Task};

/// Times of one verification pass, by the device's own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassTime {
    /// Rows that were run.
    pub rows: usize,
    /// Building the tree and running its rows, all of them with logits.
    pub verify: Duration,
    /// Committing one row.
    pub commit: Duration,
}

impl Session {
    /// Smallest context in which steps can be timed. Below it `auto` is plain decoding.
    pub const CALIBRATION_CONTEXT: usize = 8;

    /// Times of steps, when they were measured or handed in.
    pub fn cost(&self) -> Option<&CostPoints> {
        self.speculation.as_deref()?.cost.as_ref()
    }

    /// Hands in times measured earlier on the same device with the same files.
    ///
    /// # Errors
    /// `NoDrafter`; times that make no sense.
    pub fn set_cost(&mut self, cost: CostPoints) -> Result<()> {
        cost.check()?;
        let speculation = self.speculation.as_deref_mut().ok_or(GenerateFault::NoDrafter)?;
        speculation.cost = Some(cost);
        speculation.controller = None;
        Ok(())
    }

    /// Times one verification pass of `rows` rows after the committed tokens: a chain, or
    /// with `tree` one that branches as wide as candidates allow. What is drafted means
    /// nothing; one token is committed.
    ///
    /// # Errors
    /// `NoDrafter`; `TooManyRows` when there is no room for them, or for a chain fewer
    /// drafted positions; `ContextLengthExceeded`; device faults.
    pub fn time_pass(&mut self, rows: usize, tree: bool) -> Result<PassTime> {
        self.check(&[0])?;
        let (speculation, stream, committed) = self.parts()?;
        let capacity = match tree {
            true => speculation.capacity(),
            false => speculation.capacity().min(1 + speculation.drafter.positions()),
        };
        if rows == 0 || rows > capacity {
            return Err(GenerateFault::TooManyRows { asked: rows, capacity }.into());
        }
        let chain = if tree { 0 } else { rows - 1 };
        let time = speculation.time_verify(stream, committed, rows, chain)?;
        self.committed += 1;
        self.logit_count = 0;
        Ok(time)
    }

    /// Measures the times of steps: a second or two. The session is empty afterwards.
    ///
    /// # Errors
    /// `NoDrafter`; `ContextLengthExceeded` below
    /// [`CALIBRATION_CONTEXT`](Self::CALIBRATION_CONTEXT); device faults.
    pub fn calibrate(&mut self) -> Result<&CostPoints> {
        let (on_host, capacity) = {
            let speculation = self.speculation.as_deref().ok_or(GenerateFault::NoDrafter)?;
            (speculation.on_host, speculation.capacity())
        };
        self.reset()?;
        // A few tokens, so that nothing is timed on an empty cache.
        self.step(&[0; 4], WantLogits::Last)?;
        let plan = CalibrationPlan::new(capacity);
        let mut calibration = Calibration::new(&plan, !on_host);
        let mut commits = Vec::new();
        while let Some(task) = calibration.next_task() {
            let seconds = match task {
                Task::Plain => {
                    let start = Instant::now();
                    self.step(&[0], WantLogits::Last)?;
                    start.elapsed().as_secs_f64()
                }
                Task::Draft => {
                    let (speculation, stream, committed) = self.parts()?;
                    speculation.time_draft(stream, committed)?.as_secs_f64()
                }
                Task::Verify { rows } => {
                    let (speculation, stream, committed) = self.parts()?;
                    let time = speculation.time_verify(stream, committed, rows, 0)?;
                    self.committed += 1;
                    commits.push(time.commit.as_secs_f64());
                    time.verify.as_secs_f64()
                }
            };
            calibration.record(seconds);
            if self.committed + 2 > self.options.context {
                self.reset()?;
            }
        }
        let mut points = calibration.finish()?;
        commits.sort_by(f64::total_cmp);
        points.commit_s = commits.get(commits.len() / 2).copied().unwrap_or(0.0);
        self.reset()?;
        tracing::debug!(?points, "steps timed");
        self.set_cost(points)?;
        self.cost().ok_or(GenerateFault::NoDrafter.into())
    }
}
