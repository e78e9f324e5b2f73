//! What a request reports of itself.

use std::time::Duration;

use crate::device::MemoryPlan;
use crate::speculate::SpecStats;

/// A degradation that happened and was logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// What was given up for what, for example `tree to chain`.
    pub what: String,
    /// Why.
    pub reason: String,
    /// How often.
    pub count: u64,
}

/// Counts and wall times of one request.
#[derive(Clone, Debug, Default)]
pub struct GenerationStats {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens generated.
    pub generated_tokens: usize,
    /// Time in prefill, from the request's start to the prompt's last logits.
    pub prefill: Duration,
    /// Time from the first token to the end.
    pub decode: Duration,
    /// Time from the request's start to the first token.
    pub ttft: Duration,
    /// Passes through the model after prefill.
    pub steps: usize,
    /// What was drafted, on a session with a drafter.
    pub speculation: Option<SpecStats>,
    /// Degradations.
    pub fallbacks: Vec<Fallback>,
    /// The session's memory.
    pub memory: MemoryPlan,
}
