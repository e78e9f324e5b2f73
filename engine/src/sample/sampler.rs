//! The sampler: from logits to a token.

use crate::Result;

use super::filter::{self, Candidate, Scratch};
use super::math::{checked_max, exp};
use super::penalty::PenaltyCounts;
use super::{RequestFault, SamplingParams, logprob_of, uniform};

/// A chosen token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// The token.
    pub id: u32,
    /// Natural log of the probability the *model* gave it: from the logits as they came,
    /// whatever bias, penalties, temperature and filters were set.
    pub logprob: f64,
}

/// Chooses tokens. A choice depends only on the parameters and the arguments of the call:
/// what is kept between calls is scratch memory, so calls may come in any order.
///
/// The steps, in llama.cpp's default order (`l` logits, `m` their maximum, all filters
/// breaking ties by the lower id):
/// 1. bias: `l += logit_bias`
/// 2. penalties, for tokens that occur `c > 0` times in the last `penalty_last_n` of the
///    history: `l = l > 0 ? l / repetition : l * repetition`, then
///    `l -= c * frequency + presence`
/// 3. temperature 0: the highest `l`, and that is all
/// 4. top-k: the `top_k` highest `l`
/// 5. top-p: of those, highest first, the fewest whose softmax sums to at least `top_p`
/// 6. min-p: of those, the ones with `e^(l - m) >= min_p`
/// 7. temperature: weights `w = e^((l - m) / temperature)`
/// 8. draw: going through the rest in ascending id order, the first whose running sum of `w`
///    exceeds `uniform(seed, position)` times the whole sum
///
/// The filters so see the distribution at temperature 1, as in llama.cpp; vLLM and Hugging
/// Face apply the temperature before top-k, top-p and min-p. At temperature 1 the two agree.
/// At least one token always remains. Exponentials and sums are f64 in a fixed order, with no
/// platform mathematics, so equal logits give equal tokens on every platform.
#[derive(Debug, Clone)]
pub struct Sampler {
    params: SamplingParams,
    vocab: u32,
    counts: Option<PenaltyCounts>,
    /// The logits after bias and penalties, when there are any.
    edited: Vec<f32>,
    candidates: Vec<Candidate>,
    weights: Vec<f64>,
    scratch: Scratch,
}

impl Sampler {
    /// A sampler over a vocabulary of `vocab` tokens.
    ///
    /// # Errors
    /// The first rule of [`SamplingParams::validate`] that is broken.
    pub fn new(params: SamplingParams, vocab: u32) -> Result<Self> {
        params.validate(vocab)?;
        let counts = params.has_penalties().then(|| PenaltyCounts::new(vocab));
        Ok(Self {
            params,
            vocab,
            counts,
            edited: Vec::new(),
            candidates: Vec::new(),
            weights: Vec::new(),
            scratch: Scratch::default(),
        })
    }

    /// The parameters this was made with.
    pub fn params(&self) -> &SamplingParams {
        &self.params
    }

    /// Chooses the token at `position` and tells how likely the model thought it.
    ///
    /// `logits` has one value per token; -inf masks a token (a grammar, for one, masks
    /// before it calls). `history` is the prompt and the answer before this position, along
    /// the path being verified when speculating; only penalties look at it. `position` is
    /// the index the new token takes in the sequence.
    ///
    /// # Errors
    /// `LogitCount`, `NonFiniteLogit`, `NoCandidates` or, when penalties are set, `HistoryId`.
    pub fn choose(&mut self, logits: &[f32], history: &[u32], position: u64) -> Result<Choice> {
        let id = self.choose_id(logits, history, position)?;
        Ok(Choice { id, logprob: logprob_of(logits, id)? })
    }

    /// As [`Sampler::choose`] without the log-probability, which costs an exponential per
    /// token of the vocabulary.
    ///
    /// # Errors
    /// As [`Sampler::choose`].
    pub fn choose_id(&mut self, logits: &[f32], history: &[u32], position: u64) -> Result<u32> {
        if let Some(id) = self.prepare(logits, history)? {
            return Ok(id);
        }
        let drawn = pick(&self.weights, uniform(self.params.seed, position));
        let candidate = drawn.and_then(|index| self.candidates.get(index));
        Ok(candidate.ok_or(RequestFault::NoCandidates)?.id)
    }

    /// The tokens that [`Sampler::choose`] draws from and their probabilities above 0, in
    /// ascending id order: under greedy decoding one token with probability 1.
    ///
    /// # Errors
    /// As [`Sampler::choose`].
    pub fn distribution(&mut self, logits: &[f32], history: &[u32]) -> Result<Vec<(u32, f64)>> {
        if let Some(id) = self.prepare(logits, history)? {
            return Ok(vec![(id, 1.0)]);
        }
        let total: f64 = self.weights.iter().sum();
        let pairs = self.candidates.iter().zip(&self.weights).filter(|&(_, &weight)| weight > 0.0);
        Ok(pairs.map(|(candidate, weight)| (candidate.id, weight / total)).collect())
    }

    /// Fills `candidates` and `weights`, or gives the one token of greedy decoding.
    fn prepare(&mut self, logits: &[f32], history: &[u32]) -> Result<Option<u32>, RequestFault> {
        let Self { params, vocab, counts, edited, candidates, weights, scratch } = self;
        if logits.len() != *vocab as usize {
            return Err(RequestFault::LogitCount { got: logits.len(), vocab: *vocab as usize });
        }
        let mut max = checked_max(logits)?;
        let mut logits = logits;
        if counts.is_some() || !params.logit_bias.is_empty() {
            edited.clear();
            edited.extend_from_slice(logits);
            for &(id, bias) in &params.logit_bias {
                if let Some(logit) = edited.get_mut(id as usize) {
                    *logit += bias;
                }
            }
            if let Some(counts) = counts {
                counts.count(history, params.penalty_last_n)?;
                counts.apply(params, edited)?;
            }
            logits = edited;
            max = checked_max(logits)?;
        }
        if params.is_greedy() {
            return Ok((0u32..).zip(logits).find(|&(_, &x)| x == max).map(|(id, _)| id));
        }
        filter::top_k(logits, params.top_k, scratch, candidates);
        if params.top_p < 1.0 {
            filter::top_p(candidates, params.top_p, max, scratch);
        }
        if params.min_p > 0.0 {
            filter::min_p(candidates, params.min_p, max);
        }
        let (max, temperature) = (f64::from(max), f64::from(params.temperature));
        let weight = |c: &Candidate| exp((f64::from(c.logit) - max) / temperature);
        weights.clear();
        weights.extend(candidates.iter().map(weight));
        Ok(None)
    }
}

/// The first index whose running sum of weights exceeds `u` (below 1) times the whole: never
/// one of weight 0, and none only when all are.
fn pick(weights: &[f64], u: f64) -> Option<usize> {
    let target = u * weights.iter().sum::<f64>();
    let mut sum = 0.0;
    weights.iter().position(|weight| {
        sum += weight;
        sum > target
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_the_unit_interval_pick_weights_above_zero() {
        let largest = 1.0 - 1.0 / (1u64 << 53) as f64;
        for scale in [1.0, 0.1, 1.0 + f64::EPSILON, 1.5, 1.9999, 3e-300] {
            let weights = [0.0, scale, 0.0, 3.0 * scale, 0.0];
            assert_eq!(pick(&weights, 0.0), Some(1));
            assert_eq!(pick(&weights, 0.2499), Some(1));
            assert_eq!(pick(&weights, 0.2501), Some(3));
            assert_eq!(pick(&weights, largest), Some(3));
        }
        assert_eq!(pick(&[0.0], 0.5), None);
    }
}
