//! Properties of the sampler: ties, purity, masks, faults, extremes.

use foretoken::Error;
use foretoken::sample::{
    RequestFault, Sampler, SamplingParams, TopLogprobs, log_softmax, log_sum_exp, logprob_of,
};
use proptest::prelude::*;

fn sampler(params: SamplingParams, vocab: usize) -> Sampler {
    Sampler::new(params, vocab as u32).unwrap()
}

fn fault<T: std::fmt::Debug>(result: Result<T, Error>) -> RequestFault {
    match result {
        Err(Error::Request(fault)) => fault,
        other => panic!("expected a request fault, got {other:?}"),
    }
}

fn wild() -> SamplingParams {
    SamplingParams { temperature: 1.0, ..SamplingParams::greedy() }
}

#[test]
fn greedy_takes_the_lowest_id_of_the_highest() {
    let mut greedy = sampler(SamplingParams::greedy(), 7);
    let id = |s: &mut Sampler, l: &[f32]| s.choose_id(l, &[], 0).unwrap();
    assert_eq!(id(&mut greedy, &[0.0, 3.0, 1.0, 3.0, 3.0, -1.0, 2.0]), 1);
    assert_eq!(id(&mut greedy, &[-5.0; 7]), 0);
    assert_eq!(id(&mut greedy, &[-1.0, -0.0, 0.0, -0.0, -2.0, -2.0, -2.0]), 1);
    let masked = f32::NEG_INFINITY;
    assert_eq!(id(&mut greedy, &[masked, masked, f32::MIN, masked, masked, masked, masked]), 2);
}

#[test]
fn one_token_filters_agree_with_greedy() {
    let logits = [0.5, 2.0, 1.0, 2.0, -3.0];
    for params in [
        SamplingParams { top_k: 1, ..wild() },
        SamplingParams { top_p: 0.0, ..wild() },
        SamplingParams { top_p: 1e-30, ..wild() },
        SamplingParams { top_p: f32::MIN_POSITIVE, top_k: 4, ..wild() },
    ] {
        let distribution = sampler(params, 5).distribution(&logits, &[]).unwrap();
        assert_eq!(distribution, [(1, 1.0)]);
    }
    // min-p 1 keeps both of the tied best.
    let params = SamplingParams { min_p: 1.0, ..wild() };
    assert_eq!(sampler(params, 5).distribution(&logits, &[]).unwrap(), [(1, 0.5), (3, 0.5)]);
}

#[test]
fn equal_logits_are_cut_by_id() {
    let logits = [0.25f32; 100];
    let ids = |params| {
        let distribution = sampler(params, 100).distribution(&logits, &[]).unwrap();
        distribution.into_iter().map(|(id, _)| id).collect::<Vec<_>>()
    };
    assert_eq!(ids(wild()), (0..100).collect::<Vec<_>>());
    assert_eq!(ids(SamplingParams { top_k: 7, ..wild() }), (0..7).collect::<Vec<_>>());
    assert_eq!(ids(SamplingParams { top_p: 0.295, ..wild() }), (0..30).collect::<Vec<_>>());
    assert_eq!(ids(SamplingParams { top_k: 100, ..wild() }).len(), 100);
    assert_eq!(ids(SamplingParams { top_k: 99, ..wild() }).len(), 99);
    assert_eq!(ids(SamplingParams { top_k: u32::MAX, ..wild() }).len(), 100);
}

#[test]
fn bias_forces_and_bans() {
    let logits = [5.0f32, 1.0, 0.0, -20.0];
    for temperature in [0.0, 1.0] {
        let with = |logit_bias| SamplingParams { temperature, logit_bias, ..wild() };
        let mut forced = sampler(with(vec![(3, 100.0)]), 4);
        let mut banned = sampler(with(vec![(0, f32::NEG_INFINITY)]), 4);
        let mut nearly = sampler(with(vec![(0, -100.0)]), 4);
        for position in 0..500 {
            assert_eq!(forced.choose_id(&logits, &[], position).unwrap(), 3);
            assert_ne!(banned.choose_id(&logits, &[], position).unwrap(), 0);
            assert_ne!(nearly.choose_id(&logits, &[], position).unwrap(), 0);
        }
    }
    // A bias does not lift a mask.
    let masked = [f32::NEG_INFINITY, 0.0];
    let params = SamplingParams { logit_bias: vec![(0, 10_000.0)], ..SamplingParams::greedy() };
    assert_eq!(sampler(params, 2).choose_id(&masked, &[], 0).unwrap(), 1);
}

#[test]
fn penalties_move_greedy_choices() {
    let logits = [2.0f32, 1.9, -1.0, -1.1];
    let choose = |params: SamplingParams, logits: &[f32], history: &[u32]| {
        sampler(params, 4).choose_id(logits, history, 0).unwrap()
    };
    let greedy = SamplingParams::greedy();
    let repetition = SamplingParams { repetition_penalty: 1.1, ..greedy.clone() };
    assert_eq!(choose(repetition.clone(), &logits, &[0]), 1);
    assert_eq!(choose(repetition.clone(), &logits, &[3]), 0);
    // A negative logit is made more negative, not less.
    let negative = [f32::NEG_INFINITY, f32::NEG_INFINITY, -1.0, -1.05];
    assert_eq!(choose(repetition, &negative, &[2]), 3);
    let frequency = SamplingParams { frequency_penalty: 0.06, ..greedy.clone() };
    assert_eq!(choose(frequency.clone(), &logits, &[0]), 0);
    assert_eq!(choose(frequency, &logits, &[0, 0]), 1);
    let presence = SamplingParams { presence_penalty: 0.06, ..greedy.clone() };
    assert_eq!(choose(presence, &logits, &[0, 0, 0]), 0);
    let presence = SamplingParams { presence_penalty: 0.11, ..greedy.clone() };
    assert_eq!(choose(presence, &logits, &[0]), 1);
    // The window: the offence is forgotten after penalty_last_n tokens.
    let window = |penalty_last_n| SamplingParams {
        presence_penalty: 1.0,
        penalty_last_n,
        ..SamplingParams::greedy()
    };
    assert_eq!(choose(window(2), &logits, &[0, 3]), 1);
    assert_eq!(choose(window(2), &logits, &[0, 3, 3]), 0);
    assert_eq!(choose(window(-1), &logits, &[0, 3, 3]), 1);
    assert_eq!(choose(window(0), &logits, &[0]), 0);
}

#[test]
fn logprobs_are_the_model_s_own() {
    let logits = [1.0f32, 2.0, 3.0, f32::NEG_INFINITY];
    let norm = (1.0f64.exp() + 2.0f64.exp() + 3.0f64.exp()).ln();
    let close = |a: f64, b: f64| (a - b).abs() < 1e-12;
    assert!(close(log_sum_exp(&logits).unwrap(), norm));
    let params = SamplingParams { logit_bias: vec![(0, 50.0)], temperature: 0.3, ..wild() };
    let choice = sampler(params, 4).choose(&logits, &[], 0).unwrap();
    assert_eq!(choice.id, 0);
    assert!(close(choice.logprob, 1.0 - norm));
    let mut all = vec![0.0; 9];
    log_softmax(&logits, &mut all).unwrap();
    assert_eq!(all.len(), 4);
    assert!(close(all.iter().map(|x| x.exp()).sum(), 1.0));
    assert_eq!(all[3], f64::NEG_INFINITY);
    assert!(close(logprob_of(&logits, 1).unwrap(), 2.0 - norm));
    // Large logits neither overflow nor lose the difference.
    assert!(close(logprob_of(&[1e30, 1e30], 0).unwrap(), -(2.0f64.ln())));
    assert_eq!(fault(logprob_of(&logits, 4)), RequestFault::LogprobId { id: 4, vocab: 4 });
}

#[test]
fn top_logprobs_are_ordered_and_cut() {
    let logits = [0.0f32, 2.0, f32::NEG_INFINITY, 2.0, -1.0, 0.0];
    let ids = |n| {
        let top = TopLogprobs::new(&logits, 4, n).unwrap();
        assert_eq!((top.chosen.id, top.chosen.logprob), (4, logprob_of(&logits, 4).unwrap()));
        for entry in &top.top {
            assert_eq!(entry.logprob, logprob_of(&logits, entry.id).unwrap());
        }
        top.top.iter().map(|entry| entry.id).collect::<Vec<_>>()
    };
    assert!(ids(0).is_empty());
    assert_eq!(ids(1), [1]);
    assert_eq!(ids(3), [1, 3, 0]);
    assert_eq!(ids(6), [1, 3, 0, 5, 4]);
    assert_eq!(ids(usize::MAX), [1, 3, 0, 5, 4]);
    assert!(matches!(fault(TopLogprobs::new(&logits, 6, 1)), RequestFault::LogprobId { .. }));
    assert_eq!(fault(TopLogprobs::new(&[], 0, 1)), RequestFault::NoCandidates);
    assert!(matches!(
        fault(TopLogprobs::new(&[0.0, f32::NAN], 0, 1)),
        RequestFault::NonFiniteLogit { id: 1, .. }
    ));
}

#[test]
fn unusable_logits_are_faults() {
    let masked = f32::NEG_INFINITY;
    for params in [SamplingParams::greedy(), wild(), SamplingParams::default()] {
        let mut sampler = sampler(params, 3);
        for bad in [f32::NAN, f32::INFINITY] {
            let found = fault(sampler.choose(&[0.0, 1.0, bad], &[], 0));
            let RequestFault::NonFiniteLogit { id: 2, value } = found else { panic!("{found}") };
            assert_eq!(value.is_nan(), bad.is_nan());
        }
        assert_eq!(fault(sampler.choose(&[masked; 3], &[], 0)), RequestFault::NoCandidates);
        let short = fault(sampler.choose(&[0.0; 2], &[], 0));
        assert_eq!(short, RequestFault::LogitCount { got: 2, vocab: 3 });
        // The sampler is as good as new afterwards.
        assert_eq!(sampler.choose_id(&[masked, masked, 0.0], &[], 0).unwrap(), 2);
    }
    let ban = |id| (id, masked);
    let params = SamplingParams { logit_bias: vec![ban(0), ban(1)], ..wild() };
    assert_eq!(fault(sampler(params, 2).choose(&[0.0; 2], &[], 0)), RequestFault::NoCandidates);
    // Penalties that overflow a logit.
    let params = SamplingParams { repetition_penalty: 0.01, ..wild() };
    let found = fault(sampler(params, 2).choose(&[0.0, 3e38], &[1], 0));
    assert_eq!(found, RequestFault::NonFiniteLogit { id: 1, value: f32::INFINITY });
    let params = SamplingParams { presence_penalty: 1.0, ..wild() };
    let found = fault(sampler(params, 2).choose(&[0.0; 2], &[1, 2], 0));
    assert_eq!(found, RequestFault::HistoryId { index: 1, id: 2, vocab: 2 });
    assert_eq!(fault(sampler(wild(), 0).choose(&[], &[], 0)), RequestFault::NoCandidates);
}

#[test]
fn parameters_out_of_range_are_named() {
    let base = SamplingParams::default;
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    type Set = fn(&mut SamplingParams, f32);
    let fields: [(&str, Set, &[f32], &[f32]); 6] = [
        (
            "temperature",
            |p, v| p.temperature = v,
            &[-0.1, 100.1, nan, inf, -inf],
            &[0.0, 1e-9, 100.0],
        ),
        ("top_p", |p, v| p.top_p = v, &[-0.1, 1.01, nan, inf, -inf], &[0.0, 1e-9, 1.0]),
        ("min_p", |p, v| p.min_p = v, &[-0.1, 1.01, nan, inf, -inf], &[0.0, 1.0]),
        (
            "repetition_penalty",
            |p, v| p.repetition_penalty = v,
            &[0.0, -1.0, 0.009, 100.1, nan, inf, -inf],
            &[0.01, 1.3, 100.0],
        ),
        (
            "frequency_penalty",
            |p, v| p.frequency_penalty = v,
            &[-2.1, 2.1, nan, inf, -inf],
            &[-2.0, 2.0],
        ),
        (
            "presence_penalty",
            |p, v| p.presence_penalty = v,
            &[-2.1, 2.1, nan, inf, -inf],
            &[-2.0, 2.0],
        ),
    ];
    for (name, set, bad, good) in fields {
        for &value in bad {
            let mut params = base();
            set(&mut params, value);
            let message = fault(Sampler::new(params, 10)).to_string();
            assert!(message.starts_with(&format!("{name} is {value}; ")), "{message}");
        }
        for &value in good {
            let mut params = base();
            set(&mut params, value);
            assert_eq!(params.validate(10), Ok(()), "{name} {value}");
        }
    }
    let last_n = |penalty_last_n| SamplingParams { penalty_last_n, ..base() }.validate(10);
    assert_eq!(last_n(-2), Err(RequestFault::PenaltyLastN { value: -2 }));
    assert_eq!([last_n(-1), last_n(0), last_n(i32::MAX)], [Ok(()), Ok(()), Ok(())]);
    let bias = |logit_bias| SamplingParams { logit_bias, ..base() }.validate(10);
    assert_eq!(bias(vec![(9, -1e4), (0, 1e4), (3, -inf)]), Ok(()));
    assert_eq!(bias(vec![(10, 0.0)]), Err(RequestFault::LogitBiasId { id: 10, vocab: 10 }));
    assert_eq!(bias(vec![(1, inf)]), Err(RequestFault::LogitBias { id: 1, value: inf }));
    assert!(matches!(bias(vec![(1, nan)]), Err(RequestFault::LogitBias { id: 1, .. })));
    assert!(matches!(bias(vec![(1, 10_001.0)]), Err(RequestFault::LogitBias { id: 1, .. })));
    let twice = bias(vec![(1, 0.5), (2, 0.5), (1, 0.5)]);
    assert_eq!(twice, Err(RequestFault::LogitBiasTwice { id: 1 }));
    for params in [base(), SamplingParams::greedy()] {
        assert_eq!(params.validate(10), Ok(()));
    }
}

fn any_params() -> impl Strategy<Value = SamplingParams> {
    let filters = (
        prop_oneof![Just(0.0f32), 0.01f32..5.0, Just(100.0)],
        prop_oneof![Just(0u32), 1u32..60],
        prop_oneof![Just(1.0f32), Just(0.0), 0.0f32..1.0],
        prop_oneof![Just(0.0f32), Just(1.0), 0.0f32..1.0],
    );
    let penalties = (0.5f32..2.0, -2.0f32..2.0, -2.0f32..2.0, -1i32..40);
    let bias = prop::collection::btree_map(
        0u32..40,
        prop_oneof![-5.0f32..5.0, Just(f32::NEG_INFINITY)],
        0..4,
    );
    (filters, penalties, bias, any::<u64>()).prop_map(|(f, p, bias, seed)| SamplingParams {
        temperature: f.0,
        top_k: f.1,
        top_p: f.2,
        min_p: f.3,
        repetition_penalty: p.0,
        frequency_penalty: p.1,
        presence_penalty: p.2,
        penalty_last_n: p.3,
        logit_bias: bias.into_iter().collect(),
        seed,
    })
}

fn any_logits() -> impl Strategy<Value = Vec<f32>> {
    let masked = Just(f32::NEG_INFINITY);
    let logit = prop_oneof![8 => -20.0f32..20.0, 4 => Just(1.5f32), 1 => masked, 1 => Just(-1e30)];
    prop::collection::vec(logit, 50)
}

proptest! {
    /// A sampler that has seen other calls answers as a fresh one does, masks hold, and no
    /// combination of filters empties the set.
    #[test]
    fn choices_are_pure(
        params in any_params(),
        calls in prop::collection::vec(
            (any_logits(), prop::collection::vec(0u32..50, 0..60), any::<u64>()), 1..8),
    ) {
        let mut used = sampler(params.clone(), 50);
        for (logits, history, position) in &calls {
            let mut fresh = sampler(params.clone(), 50);
            let choice = used.choose(logits, history, *position);
            let again = used.choose(logits, history, *position);
            let anew = fresh.choose(logits, history, *position);
            match choice {
                Ok(choice) => {
                    prop_assert_eq!(choice, again.unwrap());
                    prop_assert_eq!(choice, anew.unwrap());
                    prop_assert!(logits[choice.id as usize] > f32::NEG_INFINITY);
                    let banned = |&(id, b): &(u32, f32)| id == choice.id && b == f32::NEG_INFINITY;
                    prop_assert!(!params.logit_bias.iter().any(banned));
                    prop_assert_eq!(choice.logprob, logprob_of(logits, choice.id).unwrap());
                    let all = fresh.distribution(logits, history).unwrap();
                    prop_assert!(all.iter().any(|&(id, p)| id == choice.id && p > 0.0));
                    let sum: f64 = all.iter().map(|&(_, p)| p).sum();
                    prop_assert!((sum - 1.0).abs() < 1e-9);
                }
                Err(error) => {
                    prop_assert_eq!(fault::<()>(Err(error)), RequestFault::NoCandidates);
                    prop_assert!((0u32..).zip(logits).all(|(id, &l)| l == f32::NEG_INFINITY
                        || params.logit_bias.contains(&(id, f32::NEG_INFINITY))));
                }
            }
        }
    }

    /// Without penalties the history does not matter, and never what lies before the window.
    #[test]
    fn only_the_window_of_the_history_matters(
        params in any_params(),
        logits in any_logits(),
        (a, b) in (prop::collection::vec(0u32..50, 0..50), prop::collection::vec(0u32..50, 0..50)),
        tail in prop::collection::vec(0u32..50, 40),
        position: u64,
    ) {
        let penalty_last_n = params.penalty_last_n.max(0);
        let params = SamplingParams { penalty_last_n, ..params };
        let mut sampler = sampler(params, 50);
        let mut choose = |start: Vec<u32>| {
            let history = [start, tail.clone()].concat();
            sampler.choose_id(&logits, &history, position).map_err(|e| e.to_string())
        };
        prop_assert_eq!(choose(a), choose(b));
    }
}

#[test]
fn seeds_and_positions_matter() {
    let logits: Vec<f32> = (0..64).map(|i| (i % 7) as f32 * 0.1).collect();
    let run = |seed| {
        let mut sampler = sampler(SamplingParams { seed, ..wild() }, 64);
        (0..64).map(|p| sampler.choose_id(&logits, &[], p).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
    assert!(run(5).windows(2).any(|pair| pair[0] != pair[1]));
    // Worked out apart from this code; the same seed must give this for good.
    assert_eq!(run(5)[..8], [48, 22, 61, 42, 44, 33, 63, 40]);
}
