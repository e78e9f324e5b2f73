//! Every sampler draws from the distribution it should: chi-square against probabilities
//! worked out here by sorting, in plain f64.

use foretoken::sample::{Sampler, SamplingParams, uniform};

/// What plain sampling must draw from, written as the definitions read.
fn exact(logits: &[f32], history: &[u32], p: &SamplingParams) -> Vec<f64> {
    let mut l: Vec<f64> = logits.iter().map(|&x| f64::from(x)).collect();
    for &(id, bias) in &p.logit_bias {
        l[id as usize] += f64::from(bias);
    }
    let n = if p.penalty_last_n < 0 { history.len() } else { p.penalty_last_n as usize };
    let window = &history[history.len().saturating_sub(n)..];
    for (id, x) in l.iter_mut().enumerate() {
        let count = window.iter().filter(|&&h| h as usize == id).count();
        if count > 0 {
            let r = f64::from(p.repetition_penalty);
            *x = if *x > 0.0 { *x / r } else { *x * r };
            *x -= count as f64 * f64::from(p.frequency_penalty) + f64::from(p.presence_penalty);
        }
    }
    let mut order: Vec<usize> = (0..l.len()).filter(|&i| l[i] > f64::NEG_INFINITY).collect();
    order.sort_by(|&a, &b| l[b].total_cmp(&l[a]).then(a.cmp(&b)));
    if p.top_k > 0 {
        order.truncate(p.top_k as usize);
    }
    let best = l[order[0]];
    let mass: f64 = order.iter().map(|&i| (l[i] - best).exp()).sum();
    let mut sum = 0.0;
    let mut kept = 0;
    while kept < order.len() && (kept == 0 || sum < f64::from(p.top_p) * mass || p.top_p == 1.0) {
        sum += (l[order[kept]] - best).exp();
        kept += 1;
    }
    order.truncate(kept);
    order.retain(|&i| (l[i] - best).exp() >= f64::from(p.min_p));
    let weight = |i: usize| ((l[i] - best) / f64::from(p.temperature)).exp();
    let total: f64 = order.iter().map(|&i| weight(i)).sum();
    let mut out = vec![0.0; l.len()];
    order.iter().for_each(|&i| out[i] = weight(i) / total);
    out
}

/// Chi-square of draws against probabilities, and the value exceeded with probability 1e-4
/// (Wilson and Hilferty 1931). Infinite when something impossible was drawn. Cells expected
/// fewer than five times are pooled.
fn chi_square(counts: &[u64], probabilities: &[f64]) -> (f64, f64) {
    let draws: u64 = counts.iter().sum();
    let (mut value, mut cells) = (0.0, 0.0);
    let (mut pooled_seen, mut pooled_expected) = (0.0, 0.0);
    for (&seen, &p) in counts.iter().zip(probabilities) {
        let (seen, expected) = (seen as f64, p * draws as f64);
        if p == 0.0 && seen > 0.0 {
            return (f64::INFINITY, 0.0);
        } else if expected < 5.0 {
            pooled_seen += seen;
            pooled_expected += expected;
        } else {
            value += (seen - expected).powi(2) / expected;
            cells += 1.0;
        }
    }
    if pooled_expected > 0.5 {
        value += (pooled_seen - pooled_expected).powi(2) / pooled_expected;
        cells += 1.0;
    }
    let freedom: f64 = cells - 1.0;
    if freedom < 1.0 {
        return (0.0, 0.0);
    }
    let spread = 2.0 / (9.0 * freedom);
    (value, freedom * (1.0 - spread + 3.719 * spread.sqrt()).powi(3))
}

const DRAWS: u64 = 40_000;

fn draw(logits: &[f32], history: &[u32], params: &SamplingParams) -> Vec<u64> {
    let mut sampler = Sampler::new(params.clone(), logits.len() as u32).unwrap();
    let mut counts = vec![0; logits.len()];
    for position in 0..DRAWS {
        counts[sampler.choose_id(logits, history, position).unwrap() as usize] += 1;
    }
    counts
}

fn off() -> SamplingParams {
    SamplingParams { temperature: 1.0, seed: 42, ..SamplingParams::greedy() }
}

/// Twelve tokens, two of them tied and one masked.
const LOGITS: [f32; 12] =
    [1.2, -0.7, 2.5, 0.3, 2.5, -3.0, f32::NEG_INFINITY, 1.9, 0.0, -1.1, 0.8, 1.5];
const HISTORY: [u32; 9] = [2, 2, 9, 4, 2, 7, 0, 9, 5];

fn cases() -> Vec<(&'static str, SamplingParams)> {
    vec![
        ("plain", off()),
        ("cold", SamplingParams { temperature: 0.5, ..off() }),
        ("hot", SamplingParams { temperature: 2.5, ..off() }),
        ("top-k 1", SamplingParams { top_k: 1, ..off() }),
        ("top-k 3", SamplingParams { top_k: 3, ..off() }),
        ("top-k 11", SamplingParams { top_k: 11, ..off() }),
        ("top-k past the vocabulary", SamplingParams { top_k: 1000, ..off() }),
        ("top-p 0.2", SamplingParams { top_p: 0.2, ..off() }),
        ("top-p 0.7", SamplingParams { top_p: 0.7, ..off() }),
        ("top-p 0.99", SamplingParams { top_p: 0.99, ..off() }),
        ("min-p 0.1", SamplingParams { min_p: 0.1, ..off() }),
        ("min-p 0.5", SamplingParams { min_p: 0.5, ..off() }),
        ("min-p 1", SamplingParams { min_p: 1.0, ..off() }),
        ("repetition", SamplingParams { repetition_penalty: 1.8, ..off() }),
        ("repetition wanted", SamplingParams { repetition_penalty: 0.6, ..off() }),
        ("frequency", SamplingParams { frequency_penalty: 0.6, ..off() }),
        ("presence", SamplingParams { presence_penalty: 1.5, ..off() }),
        ("presence wanted", SamplingParams { presence_penalty: -1.0, ..off() }),
        ("short window", SamplingParams { frequency_penalty: 1.0, penalty_last_n: 3, ..off() }),
        ("whole history", SamplingParams { frequency_penalty: 0.5, penalty_last_n: -1, ..off() }),
        ("no window", SamplingParams { frequency_penalty: 1.0, penalty_last_n: 0, ..off() }),
        (
            "bias",
            SamplingParams {
                logit_bias: vec![(0, 2.0), (2, f32::NEG_INFINITY), (11, -1.5)],
                ..off()
            },
        ),
        ("default", SamplingParams { seed: 7, ..SamplingParams::default() }),
        ("top-k then top-p", SamplingParams { top_k: 5, top_p: 0.8, ..off() }),
        (
            "everything",
            SamplingParams {
                temperature: 1.3,
                top_k: 8,
                top_p: 0.97,
                min_p: 0.06,
                repetition_penalty: 1.2,
                frequency_penalty: 0.2,
                presence_penalty: 0.3,
                penalty_last_n: 5,
                logit_bias: vec![(4, -0.5), (8, 1.0)],
                seed: 99,
            },
        ),
    ]
}

#[test]
fn draws_follow_the_exact_distribution() {
    for (name, params) in cases() {
        let expected = exact(&LOGITS, &HISTORY, &params);
        let (value, bound) = chi_square(&draw(&LOGITS, &HISTORY, &params), &expected);
        assert!(value <= bound, "{name}: chi-square {value} is above {bound}");
    }
}

#[test]
fn the_distribution_told_is_the_exact_one() {
    for (name, params) in cases() {
        let mut sampler = Sampler::new(params.clone(), LOGITS.len() as u32).unwrap();
        let mut told = vec![0.0; LOGITS.len()];
        for (id, p) in sampler.distribution(&LOGITS, &HISTORY).unwrap() {
            told[id as usize] = p;
        }
        for (id, (a, b)) in told.iter().zip(exact(&LOGITS, &HISTORY, &params)).enumerate() {
            // Logits are edited in f32, which is good for 1e-6 here.
            assert!((a - b).abs() < 1e-6, "{name}: token {id} has {a}, not {b}");
        }
    }
}

/// The test must see the classic mistakes, or it shows nothing.
#[test]
fn chi_square_catches_broken_samplers() {
    let caught = |broken: &SamplingParams, truth: &SamplingParams| {
        let expected = exact(&LOGITS, &HISTORY, truth);
        let (value, bound) = chi_square(&draw(&LOGITS, &HISTORY, broken), &expected);
        value > bound
    };
    // Top-p off by one, either way: a threshold that keeps one token more or fewer.
    let kept =
        |p: &SamplingParams| exact(&LOGITS, &HISTORY, p).iter().filter(|&&x| x > 0.0).count();
    let truth = SamplingParams { top_p: 0.7, ..off() };
    let find = |n: usize| {
        let all = (1..100).map(|i| SamplingParams { top_p: i as f32 / 100.0, ..off() });
        all.clone().find(|p| kept(p) == n).unwrap()
    };
    let (fewer, same, more) = (find(kept(&truth) - 1), find(kept(&truth)), find(kept(&truth) + 1));
    assert!(caught(&fewer, &truth));
    assert!(!caught(&same, &truth));
    assert!(caught(&more, &truth));
    // Top-k off by one, a penalty never passed on, a slightly wrong temperature.
    let top_k = |k| SamplingParams { top_k: k, ..off() };
    assert!(caught(&top_k(4), &top_k(3)) && caught(&top_k(2), &top_k(3)));
    assert!(caught(&off(), &SamplingParams { presence_penalty: 0.3, ..off() }));
    assert!(caught(&off(), &SamplingParams { temperature: 1.1, ..off() }));
}

#[test]
fn uniform_is_uniform_over_positions_and_seeds() {
    type Draw = fn(u64) -> f64;
    let sets: [(&str, Draw); 4] = [
        ("positions", |i| uniform(1, i)),
        ("seeds", |i| uniform(i, 17)),
        ("far positions", |i| uniform(3, u64::MAX - i * 4096)),
        ("far seeds", |i| uniform(i << 40, 0)),
    ];
    let n = 100_000u64;
    for (name, draw) in sets {
        let mut all: Vec<f64> = (0..n).map(draw).collect();
        let mut counts = vec![0u64; 256];
        all.iter().for_each(|u| counts[(u * 256.0) as usize] += 1);
        let (value, bound) = chi_square(&counts, &[1.0 / 256.0; 256]);
        assert!(value <= bound, "{name}: chi-square {value} is above {bound}");
        // Neighbours are independent: pairs fill a 16 x 16 grid evenly.
        let mut pairs = vec![0u64; 256];
        for pair in all.windows(2) {
            pairs[(pair[0] * 16.0) as usize * 16 + (pair[1] * 16.0) as usize] += 1;
        }
        let (value, bound) = chi_square(&pairs, &[1.0 / 256.0; 256]);
        assert!(value <= bound, "{name}: chi-square of pairs {value} is above {bound}");
        // Kolmogorov and Smirnov; 2.2252 / sqrt(n) is exceeded with probability 1e-4.
        all.sort_by(f64::total_cmp);
        let gap = |(i, &u): (usize, &f64)| {
            let (low, high) = (i as f64 / n as f64, (i + 1) as f64 / n as f64);
            (u - low).abs().max((high - u).abs())
        };
        let worst = all.iter().enumerate().map(gap).fold(0.0, f64::max);
        assert!(worst < 2.2252 / (n as f64).sqrt(), "{name}: gap {worst}");
    }
}
