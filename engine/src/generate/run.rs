//! The host side of a request: what was chosen, what was said.

use super::{
    Engine, Fallback, FinishReason, GenerateFault, GenerateRequest, Generation, GenerationStats,
    Session, StopMatcher, StreamEvent, TreeShape, WantLogits,
};
use crate::device::DeviceFault;
use crate::error::{Error, Result};
use crate::kernel::TreeRows;
use crate::sample::{Draw, Sampler, TopLogprobs};
use crate::tokenizer::Utf8Stream;

/// Tokens that room is made for ahead of time, so that no step allocates. Longer answers
/// grow their buffers as they go: what a request merely allows should cost no memory.
const EXPECTED_TOKENS: usize = 1 << 20;

/// What comes after a choice.
pub(super) enum Outcome {
    /// The token was said and waits to be run.
    Token(u32),
    /// The request is over.
    End(FinishReason),
}

fn say(text: &str, on_event: &mut dyn FnMut(StreamEvent<'_>)) {
    if !text.is_empty() {
        on_event(StreamEvent::Text(text));
    }
}

/// A request being served.
pub(super) struct Run<'a> {
    engine: &'a Engine,
    pub(super) request: &'a GenerateRequest,
    sampler: Sampler,
    /// The sampling, when the device does it.
    draw: Option<Draw>,
    /// Tokens that the device left to the host.
    undecided: u64,
    matcher: StopMatcher,
    utf8: Utf8Stream,
    history: Vec<u32>,
    limit: usize,
    text: String,
    logprobs: Vec<TopLogprobs>,
    pub(super) stats: GenerationStats,
    /// Rows accepted in a tree whose choices are made here.
    path: Vec<i32>,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        engine: &'a Engine,
        session: &Session,
        request: &'a GenerateRequest,
    ) -> Result<Self> {
        let prompt = request.prompt.len();
        if prompt == 0 {
            return Err(GenerateFault::EmptyPrompt.into());
        }
        let context = session.options().context;
        if prompt >= context {
            let (room, max) = (1, engine.config().context_length);
            return Err(GenerateFault::ContextLengthExceeded { prompt, context, room, max }.into());
        }
        let room = context - prompt;
        let limit = request.max_tokens.map_or(room, |n| n.min(room));
        let expected = limit.min(EXPECTED_TOKENS);
        let vocab = engine.config().vocab;
        let draw = match request.logprobs {
            None => request.sampling.draw(vocab),
            Some(_) => None,
        };
        let mut history = Vec::with_capacity(prompt + expected);
        history.extend_from_slice(&request.prompt);
        Ok(Self {
            engine,
            request,
            sampler: Sampler::new(request.sampling.clone(), vocab as u32)?,
            draw,
            undecided: 0,
            matcher: StopMatcher::new(&request.stop_strings)?,
            utf8: Utf8Stream::default(),
            history,
            limit,
            // A token is a handful of bytes; more than this grows as strings do.
            text: String::with_capacity(expected * 8),
            logprobs: Vec::new(),
            stats: GenerationStats {
                prompt_tokens: prompt,
                memory: session.plan().clone(),
                fallbacks: session.fallbacks().to_vec(),
                ..GenerationStats::default()
            },
            path: Vec::with_capacity(TreeRows::MAX),
        })
    }

    fn generated(&self) -> usize {
        self.history.len() - self.request.prompt.len()
    }

    /// Tokens that may still be generated.
    pub(super) fn remaining(&self) -> usize {
        self.limit - self.generated()
    }

    /// Chooses the token after the session's last row and says what it says.
    pub(super) fn next(
        &mut self,
        session: &mut Session,
        on_event: &mut dyn FnMut(StreamEvent<'_>),
    ) -> Result<Outcome> {
        if self.remaining() == 0 {
            return Ok(Outcome::End(FinishReason::Length));
        }
        let id = if self.argmax_decides() {
            session.argmax(0).ok_or(GenerateFault::EmptyPrompt)?
        } else {
            let logits = session.read_logits()?;
            self.choose(logits)?
        };
        Ok(self.take(id, on_event))
    }

    /// One plain step from the pending token `id` on.
    pub(super) fn plain(
        &mut self,
        session: &mut Session,
        id: u32,
        on_event: &mut dyn FnMut(StreamEvent<'_>),
    ) -> Result<Outcome> {
        if let Some(draw) = self.draw.filter(|_| !self.argmax_decides()) {
            if let Some(id) = session.step_sampled(id, &draw)? {
                return Ok(self.take(id, on_event));
            }
            self.undecided += 1;
        } else {
            session.step(&[id], WantLogits::Last)?;
        }
        self.next(session, on_event)
    }

    /// One speculative step from the pending token on. Ends early where plain decoding
    /// would: nothing past an end token or a stop string is said.
    pub(super) fn speculate(
        &mut self,
        session: &mut Session,
        shape: TreeShape,
        on_event: &mut dyn FnMut(StreamEvent<'_>),
    ) -> Result<Outcome> {
        if let Some(draw) = self.draw {
            let step = match self.argmax_decides() {
                true => session.speculate(&self.history, shape),
                false => session.speculate_sampled(&self.history, shape, &draw),
            };
            // Where plain decoding would have ended before it met logits that are not
            // finite, so does this.
            let fault = match step {
                Ok(_) => None,
                Err(fault @ Error::Device(DeviceFault::NonFinite { .. })) => Some(fault),
                Err(other) => return Err(other),
            };
            let mut outcome = Outcome::End(FinishReason::Length);
            for &id in session.last_step().map_or(&[][..], |step| &step.tokens) {
                outcome = self.take(id, on_event);
                if matches!(outcome, Outcome::End(_)) {
                    return Ok(outcome);
                }
            }
            if let Some(row) = session.last_step().and_then(|step| step.undecided) {
                self.undecided += 1;
                let id = self.choose(session.tree_logits(row)?)?;
                return Ok(self.take(id, on_event));
            }
            return fault.map_or(Ok(outcome), Err);
        }
        session.draft(&self.history, shape)?;
        self.path.clear();
        self.path.push(0);
        let mut row = 0;
        loop {
            let id = self.choose(session.tree_logits(row)?)?;
            let outcome = self.take(id, on_event);
            if matches!(outcome, Outcome::End(_)) {
                session.abandon_tree(self.path.len())?;
                return Ok(outcome);
            }
            match session.tree_child(row, id) {
                Some(child) => {
                    row = child;
                    self.path.push(child as i32);
                }
                None => {
                    session.commit_path(&self.path, id)?;
                    return Ok(outcome);
                }
            }
        }
    }

    /// Takes a chosen token into the answer.
    fn take(&mut self, id: u32, on_event: &mut dyn FnMut(StreamEvent<'_>)) -> Outcome {
        if !self.request.ignore_eos && self.engine.tokenizer().eos_ids().contains(&id)
            || self.request.stop_tokens.contains(&id)
        {
            self.logprobs.truncate(self.generated());
            return Outcome::End(FinishReason::Stop);
        }
        self.history.push(id);
        let bytes = self.engine.tokenizer().token_bytes(id).unwrap_or_default();
        let emit = self.matcher.push(bytes);
        let stopped = emit.stopped.is_some();
        let said = self.text.len();
        self.utf8.push_into(emit.bytes, &mut self.text);
        say(&self.text[said..], on_event);
        if stopped {
            return Outcome::End(FinishReason::Stop);
        }
        if self.remaining() == 0 {
            return Outcome::End(FinishReason::Length);
        }
        Outcome::Token(id)
    }

    /// Whether the device's argmax is the choice.
    fn argmax_decides(&self) -> bool {
        self.draw.is_some() && self.request.sampling.is_greedy()
    }

    /// Chooses from logits, for the position after the history.
    fn choose(&mut self, logits: &[f32]) -> Result<u32> {
        let position = self.history.len() as u64;
        let id = self.sampler.choose_id(logits, &self.history, position)?;
        if let Some(n) = self.request.logprobs {
            self.logprobs.push(TopLogprobs::new(logits, id, n)?);
        }
        Ok(id)
    }

    pub(super) fn finish(
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
        if self.undecided > 0 {
            self.stats.fallbacks.push(Fallback {
                what: "sampling on the device to sampling on the host".into(),
                reason: "the best candidates did not decide a token".into(),
                count: self.undecided,
            });
        }
        let ids = self.history.split_off(self.request.prompt.len());
        Generation { text: self.text, ids, finish, logprobs: self.logprobs, stats: self.stats }
    }
}
