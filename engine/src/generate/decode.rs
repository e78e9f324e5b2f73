//! The decode loop: prefill, then plain or speculative steps until the request ends.

use std::time::Instant;

use super::run::{Outcome, Run};
use super::speculation::Pace;
use super::{
    Cancel, Engine, FinishReason, GenerateFault, GenerateRequest, Generation, Session, StreamEvent,
    WantLogits,
};
use crate::error::{Error, Result};

impl Engine {
    /// Runs a request on a session, which is reset first.
    ///
    /// # Errors
    /// Request faults before anything runs; device faults. Cancelling is no error:
    /// the result then has what there was.
    pub fn generate(
        &self,
        session: &mut Session,
        request: &GenerateRequest,
        cancel: &Cancel,
        on_event: &mut dyn FnMut(StreamEvent<'_>),
    ) -> Result<Generation> {
        let mut run = Run::new(self, session, request)?;
        let mut pace = Pace::new(session, request, &mut run.stats.fallbacks)?;
        let start = Instant::now();
        let outcome = self.decode(session, &mut run, pace.as_mut(), cancel, start, on_event);
        if let Some(pace) = pace {
            run.stats.speculation = Some(pace.finish(session));
        }
        Ok(run.finish(outcome?, on_event))
    }

    fn decode(
        &self,
        session: &mut Session,
        run: &mut Run<'_>,
        mut pace: Option<&mut Pace>,
        cancel: &Cancel,
        start: Instant,
        on_event: &mut dyn FnMut(StreamEvent<'_>),
    ) -> Result<FinishReason> {
        session.reset()?;
        let prompt = &run.request.prompt;
        let total = prompt.len();
        let prefilled = session.prefill(prompt, WantLogits::Last, cancel, &mut |_, done| {
            on_event(StreamEvent::Prefill { done, total });
            Ok(())
        });
        run.stats.prefill = start.elapsed();
        match prefilled {
            Err(Error::Generate(GenerateFault::Cancelled)) => return Ok(FinishReason::Cancelled),
            other => other?,
        }
        let mut outcome = run.next(session, on_event)?;
        run.stats.ttft = start.elapsed();
        let first = Instant::now();
        loop {
            run.stats.decode = first.elapsed();
            match outcome {
                Outcome::End(finish) => return Ok(finish),
                Outcome::Token(_) if cancel.is_cancelled() => return Ok(FinishReason::Cancelled),
                Outcome::Token(id) => {
                    outcome = match &mut pace {
                        Some(pace) => pace.step(run, session, id, on_event)?,
                        None => run.plain(session, id, on_event)?,
                    };
                    run.stats.steps += 1;
                }
            }
        }
    }
}
