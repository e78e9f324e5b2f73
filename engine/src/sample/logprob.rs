//! Log-probabilities of the model itself: natural logs of the softmax over the logits as the
//! model gave them, before bias, penalties, temperature and filters. This is what OpenAI's
//! API and vLLM report by default. Sums are taken in f64.

use crate::Result;

use super::RequestFault;
use super::filter::{self, Candidate};
use super::math::{checked_max, sum_exp};

/// A token and the natural log of its probability.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TokenLogprob {
    /// The token.
    pub id: u32,
    /// Natural log of the model's probability: at most 0, -inf for a masked token.
    pub logprob: f64,
}

/// What turns logits into log-probabilities. The two parts are kept apart: added up, a
/// large maximum would swallow the logarithm.
struct Norm {
    max: f64,
    log_sum: f64,
}

impl Norm {
    fn new(logits: &[f32]) -> Result<Self, RequestFault> {
        let max = checked_max(logits)?;
        Ok(Self { max: f64::from(max), log_sum: sum_exp(logits, max).ln() })
    }

    fn logprob(&self, logit: f32) -> f64 {
        (f64::from(logit) - self.max) - self.log_sum
    }
}

/// ln of the sum of e^logit over all logits.
///
/// # Errors
/// `NonFiniteLogit` for NaN or +inf, `NoCandidates` when all are -inf or there are none.
pub fn log_sum_exp(logits: &[f32]) -> Result<f64> {
    let norm = Norm::new(logits)?;
    Ok(norm.max + norm.log_sum)
}

/// Log-probabilities of all tokens, in id order, into `out` (cleared first).
///
/// # Errors
/// As [`log_sum_exp`].
pub fn log_softmax(logits: &[f32], out: &mut Vec<f64>) -> Result<()> {
    let norm = Norm::new(logits)?;
    out.clear();
    out.extend(logits.iter().map(|&x| norm.logprob(x)));
    Ok(())
}

/// Log-probability of one token.
///
/// # Errors
/// As [`log_sum_exp`], and `LogprobId` when `id` has no logit.
pub fn logprob_of(logits: &[f32], id: u32) -> Result<f64> {
    Ok(Norm::new(logits)?.logprob(logit_of(logits, id)?))
}

fn logit_of(logits: &[f32], id: u32) -> Result<f32, RequestFault> {
    let logit = logits.get(id as usize).copied();
    logit.ok_or(RequestFault::LogprobId { id, vocab: logits.len() })
}

/// A chosen token and the most likely ones beside it.
#[derive(Debug, Clone, PartialEq)]
pub struct TopLogprobs {
    /// The token that was chosen, whether or not it is among `top`.
    pub chosen: TokenLogprob,
    /// The most likely tokens, best first, the lower id first among equals.
    pub top: Vec<TokenLogprob>,
}

impl TopLogprobs {
    /// The `n` most likely tokens beside `chosen`. `top` is shorter when fewer tokens are
    /// left unmasked. Linear in the vocabulary.
    ///
    /// # Errors
    /// As [`log_sum_exp`], and `LogprobId` when `chosen` has no logit.
    pub fn new(logits: &[f32], chosen: u32, n: usize) -> Result<Self> {
        let norm = Norm::new(logits)?;
        let logprob = norm.logprob(logit_of(logits, chosen)?);
        let chosen = TokenLogprob { id: chosen, logprob };
        let mut keys = Vec::new();
        filter::best_keys(logits, n, &mut keys);
        keys.sort_unstable();
        let top = keys.into_iter().map(|key| {
            let Candidate { id, logit } = filter::from_key(key);
            TokenLogprob { id, logprob: norm.logprob(logit) }
        });
        Ok(Self { chosen, top: top.collect() })
    }
}
