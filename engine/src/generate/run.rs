//! The plain decode loop.

use std::time::Instant;

use super::{
    Cancel, Engine, FinishReason, GenerateFault, GenerateRequest, Generation, GenerationStats,
    Session, StopMatcher, StreamEvent, WantLogits,
};
use crate::error::{Error, Result};
use crate::sample::{Sampler, TopLogprobs};
use crate::tokenizer::Utf8Stream;

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

enum Outcome {
    Token(u32),
    End(FinishReason),
}

fn say(text: &str, on_event: &mut dyn FnMut(StreamEvent<'_>)) {
    if !text.is_empty() {
        on_event(StreamEvent::Text(text));
    }
}

/// The host side of a request: what was chosen, what was said.
struct Run<'a> {
    engine: &'a Engine,
    request: &'a GenerateRequest,
    sampler: Sampler,
    matcher: StopMatcher,
    utf8: Utf8Stream,
    history: Vec<u32>,
    limit: usize,
    text: String,
    logprobs: Vec<TopLogprobs>,
    stats: GenerationStats,
}

impl<'a> Run<'a> {
    fn new(engine: &'a Engine, session: &Session, request: &'a GenerateRequest) -> Result<Self> {
        let prompt = request.prompt.len();
        if prompt == 0 {
            return Err(GenerateFault::EmptyPrompt.into());
        }
        let context = session.options().context;
        if prompt >= context {
            return Err(GenerateFault::ContextLengthExceeded { prompt, context }.into());
        }
        let room = context - prompt;
        let limit = request.max_tokens.map_or(room, |n| n.min(room));
        let mut history = Vec::with_capacity(prompt + limit);
        history.extend_from_slice(&request.prompt);
        Ok(Self {
            engine,
            request,
            sampler: Sampler::new(request.sampling.clone(), engine.config().vocab as u32)?,
            matcher: StopMatcher::new(&request.stop_strings)?,
            utf8: Utf8Stream::default(),
            history,
            limit,
            // A token is a handful of bytes; more than this grows as strings do.
            text: String::with_capacity(limit.saturating_mul(8)),
            logprobs: Vec::new(),
            stats: GenerationStats {
                prompt_tokens: prompt,
                memory: session.plan().clone(),
                ..GenerationStats::default()
            },
        })
    }

    fn generated(&self) -> usize {
        self.history.len() - self.request.prompt.len()
    }

    /// Chooses the token after the session's last row and says what it says.
    fn next(
        &mut self,
        session: &mut Session,
        on_event: &mut dyn FnMut(StreamEvent<'_>),
    ) -> Result<Outcome> {
        if self.generated() >= self.limit {
            return Ok(Outcome::End(FinishReason::Length));
        }
        let id = self.choose(session)?;
        if !self.request.ignore_eos && self.engine.tokenizer().eos_ids().contains(&id)
            || self.request.stop_tokens.contains(&id)
        {
            self.logprobs.truncate(self.generated());
            return Ok(Outcome::End(FinishReason::Stop));
        }
        self.history.push(id);
        let bytes = self.engine.tokenizer().token_bytes(id).unwrap_or_default();
        let emit = self.matcher.push(bytes);
        let stopped = emit.stopped.is_some();
        let said = self.text.len();
        self.utf8.push_into(emit.bytes, &mut self.text);
        say(&self.text[said..], on_event);
        if stopped {
            return Ok(Outcome::End(FinishReason::Stop));
        }
        if self.generated() >= self.limit {
            return Ok(Outcome::End(FinishReason::Length));
        }
        Ok(Outcome::Token(id))
    }

    fn choose(&mut self, session: &mut Session) -> Result<u32> {
        let position = self.history.len() as u64;
        let sampling = &self.request.sampling;
        let argmax_decides = sampling.is_greedy()
            && !sampling.has_penalties()
            && sampling.logit_bias.is_empty()
            && self.request.logprobs.is_none();
        if argmax_decides {
            return session.argmax(0).ok_or(GenerateFault::EmptyPrompt.into());
        }
        let logits = session.read_logits()?;
        let id = self.sampler.choose_id(logits, &self.history, position)?;
        if let Some(n) = self.request.logprobs {
            self.logprobs.push(TopLogprobs::new(logits, id, n)?);
        }
        Ok(id)
    }

    fn finish(
        mut self,
        finish: FinishReason,
        on_event: &mut dyn FnMut(StreamEvent<'_>),
    ) -> Generation {
        let rest = self.matcher.finish();
        let said = self.text.len();
        self.utf8.push_into(&rest, &mut self.text);
        self.text.push_str(&self.utf8.finish());
        say(&self.text[said..], on_event);
        self.stats.generated_tokens = self.generated();
        let ids = self.history.split_off(self.request.prompt.len());
        Generation { text: self.text, ids, finish, logprobs: self.logprobs, stats: self.stats }
    }
}
