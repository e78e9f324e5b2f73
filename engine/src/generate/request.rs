//! Requests and results.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::GenerationStats;
use crate::sample::{SamplingParams, TopLogprobs};
use crate::speculate::{SpecLimits, SpecMode};

/// What to generate.
#[derive(Clone, Debug)]
pub struct GenerateRequest {
    /// Prompt ids, at least one.
    pub prompt: Vec<u32>,
    /// Most tokens to generate; `None` goes on to the end of the context.
    pub max_tokens: Option<usize>,
    /// How to choose among the model's logits.
    pub sampling: SamplingParams,
    /// Further ids that end generation, as the model's end tokens do.
    pub stop_tokens: Vec<u32>,
    /// Byte strings that end generation.
    pub stop_strings: Vec<Vec<u8>>,
    /// Go on past the model's end tokens (and count them).
    pub ignore_eos: bool,
    /// Report this many of the best log-probabilities with each token.
    pub logprobs: Option<usize>,
    /// How to speculate; the answer is the same in every mode.
    pub speculation: Speculate,
}

/// How a request speculates, on a session that has a drafter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Speculate {
    /// Which shapes may be chosen. Auto is plain decoding where there is no drafter.
    pub mode: SpecMode,
    /// How large they may be.
    pub limits: SpecLimits,
}

impl GenerateRequest {
    /// A greedy request with no limits but the context.
    pub fn greedy(prompt: Vec<u32>) -> Self {
        Self {
            prompt,
            max_tokens: None,
            sampling: SamplingParams::greedy(),
            stop_tokens: Vec::new(),
            stop_strings: Vec::new(),
            ignore_eos: false,
            logprobs: None,
            speculation: Speculate::default(),
        }
    }
}

/// A handle that ends a running request from another thread.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Asks the request to end at its next token or prefill chunk.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was asked to.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Why generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// An end token, a stop token or a stop string.
    Stop,
    /// The token limit or the end of the context.
    Length,
    /// The caller's wish.
    Cancelled,
}

impl FinishReason {
    /// `stop`, `length` or `cancelled`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::Cancelled => "cancelled",
        }
    }
}

/// What the caller hears while a request runs.
#[derive(Debug)]
pub enum StreamEvent<'a> {
    /// Prompt tokens done, of all.
    Prefill {
        /// Done.
        done: usize,
        /// Of.
        total: usize,
    },
    /// Text that is final.
    Text(&'a str),
}

/// A finished request.
#[derive(Clone, Debug)]
pub struct Generation {
    /// The text, without a stop string.
    pub text: String,
    /// The new ids, without an end token that ended it. The token that completes a
    /// stop string is included.
    pub ids: Vec<u32>,
    /// Why it ended.
    pub finish: FinishReason,
    /// One entry per id, when asked for: of the model's logits before any penalty or filter.
    pub logprobs: Vec<TopLogprobs>,
    /// Counts and times.
    pub stats: GenerationStats,
}
