//! The decode loop: prefill, then plain or speculative steps until the request ends.

use std::time::Instant;

use super::run::{Outcome, Run};
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
        let start = Instant::now();
        let mut run = Run::new(self, session, request)?;
        session.reset()?;
        let total = request.prompt.len();
        let prefilled =
            session.prefill(&request.prompt, WantLogits::Last, cancel, &mut |_, done| {
                on_event(StreamEvent::Prefill { done, total });
                Ok(())
            });
        run.stats.prefill = start.elapsed();
        match prefilled {
            Err(Error::Generate(GenerateFault::Cancelled)) => {
                return Ok(run.finish(FinishReason::Cancelled, on_event));
            }
            other => other?,
        }
        let mut first = None;
        let finish = loop {
            let outcome = run.next(session, on_event)?;
            let first = *first.get_or_insert_with(|| {
                run.stats.ttft = start.elapsed();
                Instant::now()
            });
            run.stats.decode = first.elapsed();
            match outcome {
                Outcome::End(finish) => break finish,
                Outcome::Token(_) if cancel.is_cancelled() => break FinishReason::Cancelled,
                Outcome::Token(id) => {
                    session.step(&[id], WantLogits::Last)?;
                    run.stats.steps += 1;
                }
            }
        };
        Ok(run.finish(finish, on_event))
    }
}
