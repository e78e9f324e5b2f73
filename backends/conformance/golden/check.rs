//! What is compared, and how.

use std::sync::Arc;

use foretoken::generate::{Cancel, Engine, GenerateRequest, SessionOptions, WantLogits};
use serde_json::Value;

pub(crate) use crate::common::Bounds;

use super::data::{all_logits, floats, ids};

/// Natural log-probabilities of a row of logits.
fn log_softmax(logits: &[f32]) -> Vec<f64> {
    let max = logits.iter().fold(f64::NEG_INFINITY, |m, &x| m.max(f64::from(x)));
    let sum: f64 = logits.iter().map(|&x| (f64::from(x) - max).exp()).sum();
    logits.iter().map(|&x| f64::from(x) - max - sum.ln()).collect()
}

/// All positions' log-probabilities of a sequence.
pub(crate) fn all_logprobs(
    engine: &Arc<Engine>,
    tokens: &[u32],
    options: SessionOptions,
) -> Vec<Vec<f64>> {
    let vocab = engine.config().vocab;
    let mut session = all_logits(engine, options);
    let mut out = Vec::new();
    session
        .prefill(tokens, WantLogits::All, &Cancel::default(), &mut |s, _| {
            out.extend(s.read_logits()?.chunks_exact(vocab).map(log_softmax));
            Ok(())
        })
        .unwrap();
    out
}

/// Checks the log-probabilities of one recorded continuation, teacher-forced, and
/// the greedy choice at each of its steps. Returns the largest difference.
pub(crate) fn continuation(
    engine: &Arc<Engine>,
    prompt: &[u32],
    record: &Value,
    bounds: Bounds,
    options: SessionOptions,
) -> f64 {
    let greedy = ids(&record["greedy"]);
    let gaps = floats(&record["gap"]);
    let mut tokens = prompt.to_vec();
    tokens.extend(&greedy);
    let rows = all_logprobs(engine, &tokens, options);
    let first = record["first_row"].as_u64().unwrap() as usize;
    let mut worst = 0f64;
    let top_ids = record["top_ids"].as_array().unwrap();
    let top_logprobs = record["top_logprob"].as_array().unwrap();
    assert!(top_ids.len() >= greedy.len());
    for (g, (want_ids, want)) in top_ids.iter().zip(top_logprobs).enumerate() {
        let row = &rows[first + g];
        for (id, want) in ids(want_ids).into_iter().zip(floats(want)) {
            worst = worst.max((row[id as usize] - want).abs());
        }
    }
    for (i, (&want, &gap)) in greedy.iter().zip(&gaps).enumerate() {
        let row = &rows[prompt.len() - 1 + i];
        let best = row.iter().enumerate().fold(0, |b, (j, x)| if *x > row[b] { j } else { b });
        assert!(gap <= bounds.gap || best as u32 == want, "step {i}: {best}, expected {want}");
    }
    assert!(worst <= bounds.logprob, "a log-probability is off by {worst}");
    worst
}

/// Generates and compares ids up to the first step whose gap allows a flip.
pub(crate) fn free_running(
    engine: &Arc<Engine>,
    prompt: &[u32],
    record: &Value,
    bounds: Bounds,
    options: SessionOptions,
) {
    let greedy = ids(&record["greedy"]);
    let gaps = floats(&record["gap"]);
    let mut session = engine.session(options).unwrap();
    let request = GenerateRequest {
        max_tokens: Some(greedy.len()),
        ignore_eos: true,
        ..GenerateRequest::greedy(prompt.to_vec())
    };
    let out = engine.generate(&mut session, &request, &Cancel::default(), &mut |_| {}).unwrap();
    assert_eq!(out.ids.len(), greedy.len());
    for (i, ((got, want), gap)) in out.ids.iter().zip(&greedy).zip(&gaps).enumerate() {
        if got != want {
            assert!(*gap <= bounds.gap, "step {i}: {got}, expected {want}, gap {gap}");
            return;
        }
    }
}

/// Checks norms and first values of the hidden states at the prompt's last position:
/// after the embedding, after each layer, and in place of the last layer's the one
/// after the final norm (as transformers reports them).
pub(crate) fn hidden(engine: &Arc<Engine>, prompt: &[u32], record: &Value, tolerance: f64) {
    let norms = floats(&record["hidden_last_norm"]);
    let heads: Vec<_> = record["hidden_last_head"].as_array().unwrap().iter().map(floats).collect();
    let mut options = SessionOptions::new(4096.max(prompt.len() + 1));
    options.kv_type = foretoken::cache::KvType::F32;
    let mut session = engine.session(options).unwrap();
    let (last, before) = prompt.split_last().unwrap();
    if !before.is_empty() {
        session.prefill(before, WantLogits::None, &Cancel::default(), &mut |_, _| Ok(())).unwrap();
    }
    let mut seen = 0;
    session
        .step_traced(&[*last], &mut |layer, x| {
            // The last layer's own is not in the record.
            let layer = match layer {
                l if l + 1 == norms.len() => return,
                l => l.min(norms.len() - 1),
            };
            seen += 1;
            let norm = x.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>().sqrt();
            let error = (norm - norms[layer]).abs() / norms[layer];
            assert!(error <= tolerance, "layer {layer}: norm {norm}, expected {}", norms[layer]);
            for (got, want) in x.iter().zip(&heads[layer]) {
                let error = (f64::from(*got) - want).abs() / norms[layer];
                assert!(error <= tolerance, "layer {layer}: value {got}, expected {want}");
            }
        })
        .unwrap();
    assert_eq!(seen, norms.len());
}
