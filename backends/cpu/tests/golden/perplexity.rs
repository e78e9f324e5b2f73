//! Perplexity on the validation text, against llama.cpp's figures.

use std::path::Path;

use foretoken::device::Activations;
use foretoken::generate::SessionOptions;
use foretoken::tokenizer::Special;

use super::recorded::check::all_logprobs;
use super::recorded::data::{engine, test_data};

/// As llama-perplexity: special tokens are not recognised, chunks of `context`, the
/// second half of each scored.
fn perplexity(model: &Path, text: &Path) -> f64 {
    let context = 512;
    let engine = engine(model, Activations::Fast).unwrap();
    let text = std::fs::read_to_string(text).unwrap();
    let tokens = engine.tokenizer().encode(&text, Special::Ignore);
    let (mut sum, mut count) = (0.0, 0usize);
    for chunk in tokens.chunks_exact(context) {
        let rows = all_logprobs(&engine, chunk, SessionOptions::new(context));
        for i in context / 2..context - 1 {
            sum -= rows[i][chunk[i + 1] as usize];
            count += 1;
        }
    }
    (sum / count as f64).exp()
}

fn check(model: &str, want: f64, tolerance: f64) {
    let Some(data) = test_data("perplexity") else { return };
    let got = perplexity(&data.join("models/nano").join(model), &data.join("golden/val.txt"));
    eprintln!("{model}: perplexity {got:.4}, expected {want}");
    assert!((got / want - 1.0).abs() <= tolerance, "{model}: {got}, expected {want}");
}

#[test]
fn q4_k_m_within_half_a_percent() {
    check("nano-code-Q4_K_M.gguf", 3.4588, 5e-3);
}

#[test]
fn bf16_within_a_tenth_of_a_percent() {
    check("nano-code-BF16.gguf", 3.4308, 1e-3);
}

#[test]
fn scorer_within_a_fifth_of_a_percent() {
    check("nano-scorer-Q8_0.gguf", 7.4351, 2e-3);
}
