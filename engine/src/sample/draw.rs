//! Sampling from a row's best candidates alone, as a device does it.
//!
//! A device has the best candidates of a row and, in F32, the log of the sum of
//! exponentials over the whole vocabulary. That decides most choices, and it can be told
//! when: then the token is the one that [`Sampler`](super::Sampler) chooses from all
//! logits. Where it can not be told, nothing is chosen.
//!
//! Every driver does this arithmetic, in this order, in F64 and with nothing fused; see
//! `Sample` in `kernel` for where the numbers come from.

use super::math::exp;
use super::{SamplingParams, uniform};

/// Sampling that a device can do: no bias, no penalties.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Draw {
    temperature: f32,
    top_k: u32,
    top_p: f32,
    min_p: f32,
    seed: u64,
}

/// What a device knows of a row.
#[derive(Clone, Copy, Debug)]
pub struct BestOfRow<'a> {
    /// The best candidates, best first, the lower id first among equals; at most
    /// [`Draw::CANDIDATES`] count.
    pub ids: &'a [i32],
    /// Their logits.
    pub logits: &'a [f32],
    /// Log of the sum of exponentials over the vocabulary, off by at most
    /// `2^-16 + 2^-22 |log_sum_exp|`.
    pub log_sum_exp: f32,
    /// Tokens in the vocabulary.
    pub vocab: usize,
}

impl SamplingParams {
    /// These parameters as a device takes them, when it can decide most rows with them:
    /// no bias, no penalties, and
    ///
    /// - temperature 0, or
    /// - `top_k` (or, when that is off, the vocabulary) of 1 to 64: it decides all, or
    /// - `top_p` below 1 or `min_p` above 0: it decides a row when they leave some of its
    ///   64 best tokens for certain.
    pub fn draw(&self, vocab: usize) -> Option<Draw> {
        if self.has_penalties() || !self.logit_bias.is_empty() {
            return None;
        }
        let wanted = if self.top_k == 0 { vocab } else { self.top_k as usize };
        let few = wanted.min(vocab) <= Draw::CANDIDATES;
        let closes = self.top_p < 1.0 || self.min_p > 0.0;
        (self.is_greedy() || few || closes).then_some(Draw {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            seed: self.seed,
        })
    }
}

impl Draw {
    /// Most candidates of a row. Up to as many, [`Sampler`](super::Sampler) sums best
    /// first, as is done here.
    pub const CANDIDATES: usize = 64;
    /// Words of the form that devices read.
    pub const WORDS: usize = 8;
    /// Stands for the choice after a row whose logits are not finite.
    pub const NOT_FINITE: i32 = -1;
    /// Stands for a choice that the best candidates do not decide.
    pub const UNDECIDED: i32 = -2;

    /// Bits of temperature, `top_k`, bits of `top_p` and of `min_p`, low and high half of
    /// the seed, two zeros.
    pub fn words(&self) -> [i32; Self::WORDS] {
        let bits = |x: f32| x.to_bits() as i32;
        let (low, high) = (self.seed as i32, (self.seed >> 32) as i32);
        let Self { temperature, top_k, top_p, min_p, .. } = *self;
        [bits(temperature), top_k as i32, bits(top_p), bits(min_p), low, high, 0, 0]
    }

    /// The parameters that [`words`](Self::words) were made from. Any words will do.
    pub fn from_words(words: [i32; Self::WORDS]) -> Self {
        let [temperature, top_k, top_p, min_p, low, high, ..] = words;
        let value = |word: i32| f32::from_bits(word as u32);
        Self {
            temperature: value(temperature),
            top_k: top_k as u32,
            top_p: value(top_p),
            min_p: value(min_p),
            seed: u64::from(high as u32) << 32 | u64::from(low as u32),
        }
    }

    /// The token at `position`, or [`NOT_FINITE`](Self::NOT_FINITE) when the first id is
    /// negative, or [`UNDECIDED`](Self::UNDECIDED).
    pub fn choose(&self, row: &BestOfRow<'_>, position: u64) -> i32 {
        let most = row.ids.len().min(row.logits.len()).min(Self::CANDIDATES);
        let (ids, logits) = (&row.ids[..most], &row.logits[..most]);
        let (Some(&best), Some(&max)) = (ids.first(), logits.first()) else {
            return Self::UNDECIDED;
        };
        if best < 0 {
            return Self::NOT_FINITE;
        }
        if self.temperature == 0.0 {
            return best;
        }
        let max = f64::from(max);
        let mut weights = [0.0; Self::CANDIDATES];
        for (weight, &logit) in weights.iter_mut().zip(logits) {
            *weight = exp(f64::from(logit) - max);
        }
        let Some(kept) = self.kept(row, max, &weights[..most]) else { return Self::UNDECIDED };

        // The rest in ascending order of ids, with their weights at the temperature.
        let (temperature, min_p) = (f64::from(self.temperature), f64::from(self.min_p));
        let mut drawn = [(0, 0.0); Self::CANDIDATES];
        let mut count = 0;
        for i in (0..kept).filter(|&i| open(weights[i], min_p)) {
            drawn[count] = (ids[i], exp((f64::from(logits[i]) - max) / temperature));
            count += 1;
        }
        let drawn = &mut drawn[..count];
        drawn.sort_unstable_by_key(|&(id, _)| id);
        let mut total = 0.0;
        for &(_, weight) in &*drawn {
            total += weight;
        }
        let target = uniform(self.seed, position) * total;
        let mut sum = 0.0;
        for &(id, weight) in &*drawn {
            sum += weight;
            if sum > target {
                return id;
            }
        }
        Self::UNDECIDED
    }

    /// How many of the candidates top-k and top-p leave, or `None` when that is not
    /// certain. Those that min-p drops may be counted or not. `weights` are
    /// `e^(logit - max)`.
    fn kept(&self, row: &BestOfRow<'_>, max: f64, weights: &[f64]) -> Option<usize> {
        let (top_k, top_p, min_p) = (self.top_k, f64::from(self.top_p), f64::from(self.min_p));
        let all = weights.len();
        let off = top_k == 0 || top_k as usize >= row.vocab;
        let wanted = if off { row.vocab } else { top_k as usize };
        if wanted <= all {
            // All that top-k leaves is here.
            let weights = &weights[..wanted];
            let cuts = top_p < 1.0;
            if !cuts {
                return Some(wanted);
            }
            let mut total = 0.0;
            for weight in weights {
                total += weight;
            }
            let target = top_p * total;
            let mut sum = 0.0;
            let reached = weights.iter().position(|weight| {
                sum += weight;
                sum >= target
            });
            return Some(reached.map_or(wanted, |i| i + 1));
        }

        // At least `least` are left, at most `most`, which may lie past those that are here.
        let (mut least, mut most) = (all, all + 1);
        if top_p < 1.0 {
            let log_sum_exp = f64::from(row.log_sum_exp);
            let error = 1.0 / 65_536.0 + log_sum_exp.abs() * (1.0 / 4_194_304.0);
            // The sum over the vocabulary is `1 / share`, give or take the error.
            let below = max - log_sum_exp;
            let share = exp(if below > 0.0 { 0.0 } else { below });
            let mut here = 0.0;
            for weight in weights {
                here += weight;
            }
            let mut sum = 0.0;
            for (i, weight) in weights.iter().enumerate() {
                sum += weight;
                if sum * share * (1.0 - error) >= top_p {
                    most = i + 1;
                    break;
                }
                // Top-k leaves no more than the vocabulary, and no less than is here.
                let short = if off { sum * share } else { sum / here };
                let short = short * (1.0 + error) < top_p;
                if !short && least == all {
                    least = i + 1;
                }
            }
            least = least.min(most);
        }
        // Past the last candidate min-p drops everything, whatever its exponentials round to.
        let closed = min_p > 0.0 && weights[all - 1] < min_p * (1.0 - 1.0 / 1_048_576.0);
        let open = |&weight: &f64| open(weight, min_p);
        if most > all && !closed || weights[least..most.min(all)].iter().any(open) {
            return None;
        }
        Some(least)
    }
}

/// Whether min-p leaves a candidate. It does when it is no number.
fn open(weight: f64, min_p: f64) -> bool {
    let drops = min_p > 0.0;
    weight >= min_p || !drops
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::filter::{best_keys, from_key};
    use super::super::{Sampler, log_sum_exp};
    use super::*;

    /// What a device would know of these logits, with a sum that is off by as much as it
    /// may be, times `slip`.
    fn draw(draw: &Draw, logits: &[f32], k: usize, position: u64, slip: f64) -> i32 {
        let mut keys = Vec::new();
        best_keys(logits, k, &mut keys);
        keys.sort_unstable();
        let best = || keys.iter().map(|&key| from_key(key));
        let ids: Vec<i32> = best().map(|c| c.id as i32).collect();
        let values: Vec<f32> = best().map(|c| c.logit).collect();
        let sum = log_sum_exp(logits).unwrap();
        let log_sum_exp = (sum + slip * (32.0 + sum.abs()) * f64::from(f32::EPSILON)) as f32;
        let row = BestOfRow { ids: &ids, logits: &values, log_sum_exp, vocab: logits.len() };
        draw.choose(&row, position)
    }

    fn params() -> impl Strategy<Value = SamplingParams> {
        (
            prop_oneof![Just(0.0f32), Just(1e-4), Just(0.7), Just(1.0), Just(100.0)],
            prop_oneof![Just(0u32), 1u32..70, Just(1000)],
            prop_oneof![Just(1.0f32), Just(0.0), Just(0.5), 0.0f32..1.0],
            prop_oneof![Just(0.0f32), Just(1.0), 0.0f32..0.3],
            any::<u64>(),
        )
            .prop_map(|(temperature, top_k, top_p, min_p, seed)| SamplingParams {
                temperature,
                top_k,
                top_p,
                min_p,
                seed,
                ..SamplingParams::greedy()
            })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]
        #[test]
        fn what_is_decided_is_the_sampler_s_choice(
            params in params(),
            spread in prop_oneof![Just(0.0f32), Just(0.1), Just(1.0), Just(4.0)],
            raw in prop_oneof![
                prop::collection::vec((-8i8..8).prop_map(|x| f32::from(x) * 0.5), 1..300),
                prop::collection::vec(-3.0f32..3.0, 1..300),
            ],
            k in prop_oneof![Just(1usize), Just(8), Just(64)],
            slip in -1.0f64..1.0,
            position in any::<u64>(),
        ) {
            let logits: Vec<f32> = raw.iter().map(|x| x * spread + 3.0).collect();
            let mut sampler = Sampler::new(params.clone(), logits.len() as u32).unwrap();
            let words = Draw {
                temperature: params.temperature,
                top_k: params.top_k,
                top_p: params.top_p,
                min_p: params.min_p,
                seed: params.seed,
            };
            prop_assert_eq!(Draw::from_words(words.words()), words);
            let got = draw(&words, &logits, k, position, slip);
            let wanted = if params.top_k == 0 { logits.len() } else { params.top_k as usize };
            if got == Draw::UNDECIDED {
                prop_assert!(wanted.min(logits.len()) > k && !params.is_greedy());
            } else {
                let want = sampler.choose_id(&logits, &[], position).unwrap();
                prop_assert_eq!(got as u32, want);
            }
        }
    }

    #[test]
    fn a_cut_too_close_to_call_is_not_called() {
        // Of 128 equal candidates, one half is exactly 64 of them.
        let logits = [1.0f32; 128];
        let with = |top_p, min_p| {
            let params = SamplingParams { top_p, min_p, temperature: 1.0, ..Default::default() };
            SamplingParams { top_k: 0, ..params }.draw(128).unwrap()
        };
        assert_eq!(draw(&with(0.5, 0.0), &logits, 64, 0, 0.0), Draw::UNDECIDED);
        assert_eq!(draw(&with(0.9, 0.0), &logits, 64, 0, 0.0), Draw::UNDECIDED);
        assert_eq!(draw(&with(1.0, 0.9), &logits, 64, 0, 0.0), Draw::UNDECIDED);
        assert!(draw(&with(0.499, 0.0), &logits, 64, 0, 0.0) >= 0);
        // Min-p drops what top-p can not tell.
        let mut steep = [-9.0f32; 128];
        steep[7] = 1.0;
        steep[90] = 0.5;
        assert!([7, 90].contains(&draw(&with(0.9999, 0.1), &steep, 64, 0, 0.0)));
        // Nonsense is nobody's choice.
        let none = Draw { temperature: f32::NAN, ..with(1.0, 0.5) };
        assert_eq!(draw(&none, &steep, 64, 0, 0.0), Draw::UNDECIDED);
    }

    #[test]
    fn requests_a_device_can_do() {
        let base = SamplingParams { temperature: 1.0, ..SamplingParams::greedy() };
        let can = |params: SamplingParams| params.draw(5000).is_some();
        assert!(can(SamplingParams::greedy()) && can(SamplingParams::default()));
        assert!(!can(base.clone()) && base.draw(64).is_some());
        assert!(can(SamplingParams { top_k: 64, ..base.clone() }));
        assert!(!can(SamplingParams { top_k: 65, ..base.clone() }));
        assert!(can(SamplingParams { top_k: 65, top_p: 0.9, ..base.clone() }));
        assert!(can(SamplingParams { min_p: 0.1, ..base.clone() }));
        let biased = SamplingParams { logit_bias: vec![(1, 1.0)], ..SamplingParams::default() };
        assert!(!can(biased));
        assert!(!can(SamplingParams { presence_penalty: 1.0, ..SamplingParams::default() }));
    }
}
