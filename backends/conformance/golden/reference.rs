//! The recorded prompts.

use std::path::Path;

use foretoken::cache::KvType;
use foretoken::device::Activations;
use foretoken::generate::SessionOptions;

use crate::driver;

use super::check::{Bounds, continuation, free_running, hidden};
use super::data::{engine, ids, json, nano, test_data};

/// Runs every prompt of a golden file through a model.
fn all_prompts(
    golden: &Path,
    key: &str,
    model: &Path,
    activations: Activations,
    kv_type: KvType,
    bounds: Bounds,
) {
    let golden = json(golden);
    let Some(engine) = engine(model, activations) else { return };
    let mut worst = 0f64;
    for prompt in golden["prompts"].as_array().unwrap() {
        let tokens = ids(&prompt["ids"]);
        let options = SessionOptions { kv_type, ..SessionOptions::new(4096) };
        let record = &prompt[key];
        worst = worst.max(continuation(&engine, &tokens, record, bounds, options));
        free_running(&engine, &tokens, record, bounds, options);
    }
    eprintln!("{key} {activations:?} {kv_type}: largest difference {worst:.2e}");
}

fn shipped(activations: Activations, bounds: Bounds) {
    let dir = nano();
    let golden = dir.join("golden/nano-q4.json");
    let files = [("target", "nano-code-Q4_K_M.gguf"), ("scorer", "nano-scorer-Q8_0.gguf")];
    for (key, file) in files {
        all_prompts(&golden, key, &dir.join(file), activations, KvType::default(), bounds);
    }
}

#[test]
fn shipped_models_with_f32_activations() {
    shipped(Activations::F32, Bounds { logprob: 2e-3, gap: 0.1 });
}

#[test]
fn shipped_models_with_fast_kernels() {
    shipped(Activations::Fast, driver::FAST);
}

#[test]
fn bf16_target_matches_the_float32_reference() {
    let Some(data) = test_data("bf16_target_matches_the_float32_reference") else { return };
    all_prompts(
        &data.join("golden/nano.json"),
        "target",
        &data.join("models/nano/nano-code-BF16.gguf"),
        Activations::Fast,
        KvType::default(),
        Bounds { logprob: 2e-3, gap: 0.01 },
    );
}

#[test]
fn hidden_states_match_layer_by_layer() {
    let dir = nano();
    let golden = json(&dir.join("golden/nano-q4.json"));
    let model = dir.join("nano-code-Q4_K_M.gguf");
    let Some(engine) = engine(&model, Activations::F32) else { return };
    for prompt in golden["prompts"].as_array().unwrap() {
        hidden(&engine, &ids(&prompt["ids"]), prompt, 1e-3);
    }
}

#[test]
fn bf16_hidden_states_match_layer_by_layer() {
    let Some(data) = test_data("bf16_hidden_states_match_layer_by_layer") else { return };
    let golden = json(&data.join("golden/nano.json"));
    let model = data.join("models/nano/nano-code-BF16.gguf");
    let Some(engine) = engine(&model, Activations::Fast) else { return };
    for prompt in golden["prompts"].as_array().unwrap() {
        hidden(&engine, &ids(&prompt["ids"]), prompt, 1e-3);
    }
}
