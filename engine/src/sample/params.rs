//! The sampling parameters of a request and their legal ranges.

use super::RequestFault;

/// How the next token is chosen. [`super::Sampler`] gives the formula of each step and
/// their order.
///
/// [`Default`] is what llama.cpp's tools sample with (temperature 0.8, top-k 40, top-p 0.95,
/// min-p 0.05, penalties off over a window of 64); [`SamplingParams::greedy`] always takes
/// the most likely token.
#[derive(Debug, Clone, PartialEq)]
pub struct SamplingParams {
    /// Divides the logits; 0 means greedy: the highest logit, the lowest id among equals,
    /// and `top_k`, `top_p`, `min_p` and `seed` then have no effect. 0..=100.
    pub temperature: f32,
    /// Keep this many of the most likely tokens; 0 = all.
    pub top_k: u32,
    /// Keep the fewest most likely tokens whose probabilities reach this sum; 1 = all, and
    /// 0 or anything tiny keeps the most likely one. 0..=1.
    pub top_p: f32,
    /// Keep tokens at least this many times as likely as the most likely; 0 = all. 0..=1.
    pub min_p: f32,
    /// Logits of tokens in the window are divided by this when positive and multiplied by it
    /// otherwise; 1 = off, below 1 favours repetition. 0.01..=100.
    pub repetition_penalty: f32,
    /// Taken from a token's logit once per occurrence in the window; 0 = off. -2..=2.
    pub frequency_penalty: f32,
    /// Taken from a token's logit when the window holds it; 0 = off. -2..=2.
    pub presence_penalty: f32,
    /// The window of the three penalties: the last so many tokens of prompt and answer
    /// together; -1 = all of them, 0 = no penalties.
    ///
    /// This is llama.cpp's rule. vLLM has no window and, like OpenAI's service, counts
    /// only the answer for `frequency_penalty` and `presence_penalty` (vLLM's repetition
    /// penalty sees prompt and answer): whoever expects that sets -1 and hands the sampler
    /// a history that starts after the prompt.
    pub penalty_last_n: i32,
    /// Added to the logit of each named token before anything else: -10000..=10000, or -inf
    /// to ban the token. One entry per token. OpenAI's customary -100 and 100 in effect ban
    /// and force.
    pub logit_bias: Vec<(u32, f32)>,
    /// Key of the random numbers; the same seed gives the same answer.
    pub seed: u64,
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            temperature: 0.8,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            penalty_last_n: 64,
            logit_bias: Vec::new(),
            seed: 0,
        }
    }
}

impl SamplingParams {
    /// Greedy decoding: no randomness, no filters, no penalties.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0, ..Self::default() }
    }

    /// Whether this always takes the highest (biased and penalised) logit.
    pub fn is_greedy(&self) -> bool {
        self.temperature == 0.0
    }

    /// Whether any penalty can change a logit.
    pub fn has_penalties(&self) -> bool {
        self.penalty_last_n != 0
            && (self.repetition_penalty != 1.0
                || self.frequency_penalty != 0.0
                || self.presence_penalty != 0.0)
    }

    /// Checks every field against its range, for a vocabulary of `vocab` tokens. Nothing is
    /// ever clamped.
    ///
    /// # Errors
    /// The first broken rule, in the order of the fields.
    pub fn validate(&self, vocab: u32) -> Result<(), RequestFault> {
        let Self { temperature, top_p, min_p, .. } = *self;
        // `contains` is false for NaN, which is what we want.
        if !(0.0..=100.0).contains(&temperature) {
            return Err(RequestFault::Temperature { value: temperature });
        }
        if !(0.0..=1.0).contains(&top_p) {
            return Err(RequestFault::TopP { value: top_p });
        }
        if !(0.0..=1.0).contains(&min_p) {
            return Err(RequestFault::MinP { value: min_p });
        }
        if !(0.01..=100.0).contains(&self.repetition_penalty) {
            return Err(RequestFault::RepetitionPenalty { value: self.repetition_penalty });
        }
        if !(-2.0..=2.0).contains(&self.frequency_penalty) {
            return Err(RequestFault::FrequencyPenalty { value: self.frequency_penalty });
        }
        if !(-2.0..=2.0).contains(&self.presence_penalty) {
            return Err(RequestFault::PresencePenalty { value: self.presence_penalty });
        }
        if self.penalty_last_n < -1 {
            return Err(RequestFault::PenaltyLastN { value: self.penalty_last_n });
        }
        for &(id, value) in &self.logit_bias {
            if id >= vocab {
                return Err(RequestFault::LogitBiasId { id, vocab });
            }
            if value != f32::NEG_INFINITY && !(-1e4..=1e4).contains(&value) {
                return Err(RequestFault::LogitBias { id, value });
            }
        }
        let mut ids: Vec<u32> = self.logit_bias.iter().map(|&(id, _)| id).collect();
        ids.sort_unstable();
        match ids.windows(2).find(|pair| pair.first() == pair.last()) {
            Some(pair) => Err(RequestFault::LogitBiasTwice { id: pair[0] }),
            None => Ok(()),
        }
    }
}
