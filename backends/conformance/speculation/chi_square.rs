//! Sampled speculative output against exact probabilities.

use std::collections::HashMap;

use foretoken::generate::{Cancel, GenerateRequest, WantLogits};
use foretoken::sample::{Sampler, SamplingParams};
use foretoken::speculate::{SpecLimits, SpecMode};

use super::support::{Rig, Target, alone, rig, start};

/// Tokens of a sample.
const LENGTH: usize = 3;
/// Candidates the filter leaves at each position.
const VOCABULARY: u32 = 5;
const SAMPLES: u64 = 4000;

/// Exact probabilities of all sequences of `LENGTH` tokens.
fn exact(rig: &Rig, prompt: &[u32], sampling: &SamplingParams) -> HashMap<Vec<u32>, f64> {
    let mut session = rig.plain(128);
    let mut sampler = Sampler::new(sampling.clone(), 8192).unwrap();
    let mut all = vec![(Vec::new(), 1.0)];
    for _ in 0..LENGTH {
        let mut longer = Vec::new();
        for (path, p) in all {
            start(&mut session, prompt);
            for &token in &path {
                session.step(&[token], WantLogits::Last).unwrap();
            }
            let history = [prompt, &path[..]].concat();
            let next = sampler.distribution(session.read_logits().unwrap(), &history).unwrap();
            for (token, q) in next {
                longer.push(([&path[..], &[token]].concat(), p * q));
            }
        }
        all = longer;
    }
    all.into_iter().collect()
}

/// Pearson's statistic over cells expected at least five times (the rest is one cell),
/// and its degrees of freedom.
fn statistic(counts: &HashMap<Vec<u32>, u64>, exact: &HashMap<Vec<u32>, f64>) -> (f64, f64) {
    let n: u64 = counts.values().sum();
    let (mut sum, mut cells) = (0.0, 0.0);
    let (mut rest_seen, mut rest_expected) = (0.0, 0.0);
    for (path, p) in exact {
        let (seen, expected) = (counts.get(path).copied().unwrap_or(0) as f64, p * n as f64);
        if expected >= 5.0 {
            sum += (seen - expected).powi(2) / expected;
            cells += 1.0;
        } else {
            rest_seen += seen;
            rest_expected += expected;
        }
    }
    if rest_expected > 0.0 {
        sum += (rest_seen - rest_expected).powi(2) / rest_expected;
        cells += 1.0;
    }
    (sum, cells - 1.0)
}

/// The statistic's 99.99 % point (Wilson and Hilferty's approximation): seeds are fixed,
/// so a pass stays a pass.
fn bound(freedom: f64) -> f64 {
    let v = 2.0 / (9.0 * freedom);
    freedom * (1.0 - v + 3.719 * v.sqrt()).powi(3)
}

#[test]
fn sampled_trees_follow_the_target_distribution() {
    let _alone = alone();
    let Some(rig) = rig(Target::Q4) else { return };
    let prompt = rig.encode("def add(a, b):\n    return a");
    let sampling = SamplingParams {
        temperature: 1.1,
        top_k: VOCABULARY,
        repetition_penalty: 1.2,
        ..SamplingParams::greedy()
    };
    let exact = exact(rig, &prompt, &sampling);
    assert!((exact.values().sum::<f64>() - 1.0).abs() < 1e-9);
    let mut session = rig.speculative(128, rig.dflash());
    let mut counts: HashMap<Vec<u32>, u64> = HashMap::new();
    let mut gained = 0;
    for seed in 0..SAMPLES {
        let mut request = GenerateRequest {
            max_tokens: Some(LENGTH),
            ignore_eos: true,
            sampling: SamplingParams { seed, ..sampling.clone() },
            ..GenerateRequest::greedy(prompt.clone())
        };
        request.speculation.mode = SpecMode::Tree;
        request.speculation.limits = SpecLimits::new(1, 8).unwrap();
        let cancel = Cancel::default();
        let out = rig.engine.generate(&mut session, &request, &cancel, &mut |_| {}).unwrap();
        gained += LENGTH - 1 - out.stats.steps.min(LENGTH - 1);
        *counts.entry(out.ids).or_default() += 1;
    }
    assert!(counts.keys().all(|path| exact.contains_key(path)));
    let (sum, freedom) = statistic(&counts, &exact);
    assert!(freedom > 20.0 && gained > 500, "{freedom} cells, {gained} gained");
    assert!(sum < bound(freedom), "{sum} over {freedom} degrees of freedom");
    // The test can fail: a temperature 15 % off is seen.
    let off = SamplingParams { temperature: 1.27, ..sampling };
    let (sum, freedom) = statistic(&counts, &self::exact(rig, &prompt, &off));
    assert!(sum > bound(freedom), "{sum} over {freedom} degrees of freedom");
}
