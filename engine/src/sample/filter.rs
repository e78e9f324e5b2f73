//! The filters that narrow the candidates: top-k, top-p and min-p.
//!
//! Each keeps a prefix of one fixed order (higher logit first, lower id among equals), found
//! in time linear in the vocabulary: nothing sorts more than one bucket. Candidates stay in
//! ascending id order between the steps.

use super::Draw;
use super::math::exp;

/// A token that may still be chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Candidate {
    pub(super) id: u32,
    /// After bias and penalties, before temperature.
    pub(super) logit: f32,
}

/// Buckets of the top-p histogram, and how many of them cover one nat below the best.
const BUCKETS: usize = 2048;
const BUCKETS_PER_NAT: f64 = 32.0;

/// Buffers that live as long as the sampler, so that a token allocates nothing.
#[derive(Debug, Clone, Default)]
pub(super) struct Scratch {
    keys: Vec<u64>,
    weights: Vec<f64>,
    buckets: Vec<f64>,
}

/// The place in the fixed order as a number: smaller is better.
pub(super) fn to_key(Candidate { id, logit }: Candidate) -> u64 {
    // Adding zero turns -0 into 0, which must tie with it.
    let bits = (logit + 0.0).to_bits();
    let ascending = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
    u64::from(!ascending) << 32 | u64::from(id)
}

/// The candidate a key was made from.
pub(super) fn from_key(key: u64) -> Candidate {
    let ascending = !((key >> 32) as u32);
    let bits = if ascending >> 31 == 1 { ascending & !(1 << 31) } else { !ascending };
    Candidate { id: key as u32, logit: f32::from_bits(bits) }
}

/// Keys of the `n` best unmasked tokens, in no particular order.
///
/// A buffer of twice that size is cut back whenever it is full, and from then on only
/// logits above the worst one kept get in: linear in the vocabulary for any order of logits.
pub(super) fn best_keys(logits: &[f32], n: usize, keys: &mut Vec<u64>) {
    keys.clear();
    let n = n.min(logits.len());
    if n == 0 {
        return;
    }
    let room = (n + 64).max(2 * n).min(logits.len());
    keys.reserve(room);
    let mut floor = f32::NEG_INFINITY;
    for (id, &logit) in (0u32..).zip(logits) {
        // Ids ascend, so a logit equal to the worst one kept comes after it: `>` is exact.
        if logit > floor {
            keys.push(to_key(Candidate { id, logit }));
            if keys.len() == room && n < room {
                let (_, worst, _) = keys.select_nth_unstable(n - 1);
                floor = from_key(*worst).logit;
                keys.truncate(n);
            }
        }
    }
    if keys.len() > n {
        keys.select_nth_unstable(n - 1);
        keys.truncate(n);
    }
}

/// All unmasked tokens, or the `k` best when `k` is not 0, in ascending id order.
pub(super) fn top_k(logits: &[f32], k: u32, scratch: &mut Scratch, out: &mut Vec<Candidate>) {
    out.clear();
    if k == 0 || k as usize >= logits.len() {
        let all = (0u32..).zip(logits).map(|(id, &logit)| Candidate { id, logit });
        out.reserve(logits.len());
        out.extend(all.filter(|c| c.logit > f32::NEG_INFINITY));
    } else {
        best_keys(logits, k as usize, &mut scratch.keys);
        out.extend(scratch.keys.iter().map(|&key| from_key(key)));
        out.sort_unstable_by_key(|c| c.id);
    }
}

/// Keeps the shortest prefix whose probabilities, among the candidates and at temperature 1,
/// sum to at least `p`: always at least one. `max` is the highest logit.
///
/// Up to [`Draw::CANDIDATES`] are summed one after the other, best first, which a device can
/// repeat; more by buckets.
pub(super) fn top_p(candidates: &mut Vec<Candidate>, p: f32, max: f32, scratch: &mut Scratch) {
    let Scratch { keys, weights, buckets } = scratch;
    let max = f64::from(max);
    if candidates.len() <= Draw::CANDIDATES {
        keys.clear();
        keys.extend(candidates.iter().map(|&c| to_key(c)));
        keys.sort_unstable();
        let weight = |&key: &u64| exp(f64::from(from_key(key).logit) - max);
        let target = f64::from(p) * keys.iter().map(weight).sum::<f64>();
        let mut sum = 0.0;
        let last = keys.iter().find(|key| {
            sum += weight(key);
            sum >= target
        });
        if let Some(&last) = last {
            candidates.retain(|&c| to_key(c) <= last);
        }
        return;
    }
    let bucket_of = |c: &Candidate| {
        let below = (max - f64::from(c.logit)) * BUCKETS_PER_NAT;
        (below as usize).min(BUCKETS - 1)
    };
    weights.clear();
    weights.extend(candidates.iter().map(|c| exp(f64::from(c.logit) - max)));
    buckets.clear();
    buckets.resize(BUCKETS, 0.0);
    for (candidate, weight) in candidates.iter().zip(weights.iter()) {
        if let Some(bucket) = buckets.get_mut(bucket_of(candidate)) {
            *bucket += weight;
        }
    }
    let target = f64::from(p) * buckets.iter().sum::<f64>();

    // The bucket in which the running sum reaches the target, and the sum before it.
    let mut sum = 0.0;
    let mut cut = None;
    for (index, &mass) in buckets.iter().enumerate() {
        if mass > 0.0 && sum + mass >= target {
            cut = Some(index);
            break;
        }
        sum += mass;
    }
    let Some(cut) = cut else { return };
    keys.clear();
    keys.extend(candidates.iter().filter(|c| bucket_of(c) == cut).map(|&c| to_key(c)));
    keys.sort_unstable();
    let mut last = u64::MAX;
    for &key in keys.iter() {
        last = key;
        sum += exp(f64::from(from_key(key).logit) - max);
        if sum >= target {
            break;
        }
    }
    candidates.retain(|&c| to_key(c) <= last);
}

/// Keeps candidates at least `p` times as likely as the best, whose logit is `max`.
pub(super) fn min_p(candidates: &mut Vec<Candidate>, p: f32, max: f32) {
    let (p, max) = (f64::from(p), f64::from(max));
    candidates.retain(|c| exp(f64::from(c.logit) - max) >= p);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn logit() -> impl Strategy<Value = f32> {
        // Few distinct values, so that ties are common, and the awkward ones.
        prop_oneof![
            (-6i8..6).prop_map(|x| f32::from(x) * 0.5),
            -30.0f32..30.0,
            Just(-0.0),
            Just(f32::NEG_INFINITY),
            Just(f32::MIN),
            Just(f32::MAX),
            Just(f32::MIN_POSITIVE),
        ]
    }

    fn sorted(logits: &[f32]) -> Vec<Candidate> {
        let all = logits.iter().enumerate().map(|(id, &logit)| Candidate { id: id as u32, logit });
        let mut all: Vec<_> = all.filter(|c| c.logit != f32::NEG_INFINITY).collect();
        all.sort_by(|a, b| b.logit.partial_cmp(&a.logit).unwrap().then(a.id.cmp(&b.id)));
        all
    }

    proptest! {
        #[test]
        fn keys_keep_order_and_value(a in logit(), b in logit(), i in 0u32..3, j in 0u32..3) {
            let (x, y) = (Candidate { id: i, logit: a }, Candidate { id: j, logit: b });
            let expected = b.partial_cmp(&a).unwrap().then(i.cmp(&j));
            prop_assert_eq!(to_key(x).cmp(&to_key(y)), expected);
            prop_assert_eq!(from_key(to_key(x)), x);
        }

        #[test]
        fn best_keys_are_the_sorted_prefix(
            logits in prop::collection::vec(logit(), 1..400),
            n in 0usize..420,
            ascending: bool,
        ) {
            let mut logits = logits;
            if ascending {
                logits.sort_by(f32::total_cmp);
            }
            let mut keys = Vec::new();
            best_keys(&logits, n, &mut keys);
            keys.sort_unstable();
            let got: Vec<_> = keys.into_iter().map(from_key).collect();
            let mut expected = sorted(&logits);
            expected.truncate(n);
            prop_assert_eq!(got, expected);
        }

        #[test]
        fn top_p_keeps_the_shortest_prefix(
            logits in prop::collection::vec((-60i8..20).prop_map(|x| f32::from(x) * 0.3), 1..300),
            p in 0.0f32..1.0,
        ) {
            let order = sorted(&logits);
            let max = order[0].logit;
            let weight = |c: &Candidate| f64::from(c.logit - max).exp();
            let target = order.iter().map(weight).sum::<f64>() * f64::from(p);
            let mut sum = 0.0;
            let mut expected = Vec::new();
            for c in &order {
                expected.push(c.id);
                sum += weight(c);
                // A sum this close to the target may fall either way.
                prop_assume!((sum - target).abs() > 1e-9);
                if sum >= target {
                    break;
                }
            }
            expected.sort_unstable();
            let mut scratch = Scratch::default();
            let mut got = Vec::new();
            top_k(&logits, 0, &mut scratch, &mut got);
            top_p(&mut got, p, max, &mut scratch);
            prop_assert_eq!(got.iter().map(|c| c.id).collect::<Vec<_>>(), expected);
        }
    }
}
