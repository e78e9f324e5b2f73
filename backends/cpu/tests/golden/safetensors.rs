//! The same model through a Hugging Face checkpoint: other value-head order, other
//! norms, other decay, same answers.

use std::path::Path;

use foretoken::cache::KvType;
use foretoken::device::Activations;
use foretoken::format::{GgufFile, OpenOptions};
use foretoken::generate::SessionOptions;
use serde_json::{Value, json};

use super::convert::{Heads, read_gguf, to_gguf, to_hf, write_checkpoint};
use super::recorded::check::{Bounds, continuation, free_running};
use super::recorded::data::{engine, ids, json as read_json, nano, test_data};

/// The nano target's heads.
const HEADS: Heads = Heads { key: 2, value: 4, key_dim: 128, value_dim: 128 };

fn config() -> Value {
    json!({"model_type": "qwen3_5", "text_config": {
        "model_type": "qwen3_5_text", "vocab_size": 8192, "hidden_size": 512,
        "intermediate_size": 1536, "num_hidden_layers": 8, "num_attention_heads": 4,
        "num_key_value_heads": 1, "head_dim": 256, "rms_norm_eps": 1e-6,
        "max_position_embeddings": 32768, "tie_word_embeddings": true,
        "rope_parameters": {"rope_theta": 1e7, "partial_rotary_factor": 0.25},
        "layer_types": (1..=8).map(|i| if i % 4 == 0 { "full_attention" } else {
            "linear_attention" }).collect::<Vec<_>>(),
        "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
    }})
}

/// A `tokenizer.json` with the vocabulary of a GGUF file.
fn tokenizer(gguf: &Path) -> Value {
    let file = GgufFile::open(gguf, &OpenOptions::default()).unwrap();
    let list = |key: &str| -> Vec<String> {
        let array = file.metadata().str_array(key).unwrap().unwrap();
        array.iter().map(|s| String::from_utf8(s.to_vec()).unwrap()).collect()
    };
    let types = file.metadata().i32_array("tokenizer.ggml.token_type").unwrap().unwrap();
    let tokens = list("tokenizer.ggml.tokens");
    let added = tokens.iter().zip(&types).enumerate().filter(|(_, (_, t))| **t == 3);
    let added: Vec<_> = added
        .map(|(id, (text, _))| {
            json!({"id": id, "content": text,
        "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
        "special": true})
        })
        .collect();
    let vocab: serde_json::Map<_, _> =
        tokens.iter().enumerate().map(|(id, t)| (t.clone(), json!(id))).collect();
    json!({"version": "1.0", "added_tokens": added, "normalizer": null,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": QWEN35_PATTERN}, "behavior": "Isolated",
             "invert": false},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false,
             "use_regex": false}]},
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": vocab, "merges": list("tokenizer.ggml.merges")}})
}

const QWEN35_PATTERN: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

fn through_checkpoint(gguf: &Path, golden: &Path, bounds: Bounds) {
    let dir = tempfile::tempdir().unwrap();
    let tensors = read_gguf(gguf);
    let hf = to_hf(&tensors, HEADS);
    write_checkpoint(dir.path(), &hf, &config(), &tokenizer(gguf));
    // The checkpoint is in F32, so the fast path is the f32 one.
    let engine = engine(dir.path(), Activations::Fast).unwrap();
    let golden = read_json(golden);
    for prompt in golden["prompts"].as_array().unwrap() {
        let tokens = ids(&prompt["ids"]);
        let options = SessionOptions { kv_type: KvType::default(), ..SessionOptions::new(4096) };
        continuation(&engine, &tokens, &prompt["target"], bounds, options);
        free_running(&engine, &tokens, &prompt["target"], bounds, options);
        let text = prompt["text"].as_str().unwrap();
        assert_eq!(engine.tokenizer().encode(text, foretoken::tokenizer::Special::Parse), tokens);
    }
}

#[test]
fn shipped_weights_through_a_checkpoint() {
    let dir = nano();
    let bounds = Bounds { logprob: 2e-3, gap: 0.1 };
    let golden = dir.join("golden/nano-q4.json");
    through_checkpoint(&dir.join("nano-code-Q4_K_M.gguf"), &golden, bounds);
}

#[test]
fn bf16_weights_through_a_checkpoint() {
    let Some(data) = test_data("bf16_weights_through_a_checkpoint") else { return };
    let bounds = Bounds { logprob: 2e-3, gap: 0.01 };
    let model = data.join("models/nano/nano-code-BF16.gguf");
    through_checkpoint(&model, &data.join("golden/nano.json"), bounds);
}

#[test]
fn conversion_there_and_back_is_the_identity() {
    let tensors = read_gguf(&nano().join("nano-code-Q4_K_M.gguf"));
    let back = to_gguf(&to_hf(&tensors, HEADS), tensors.keys().cloned(), HEADS);
    for (name, (dims, values)) in &tensors {
        let (back_dims, back) = &back[name];
        assert_eq!(dims, back_dims, "{name}");
        // Norms go through minus one and plus one, the decay through ln and exp: one
        // rounding each way. Everything else is moved, not computed.
        let tolerance =
            if name.ends_with("norm.weight") || name.ends_with("ssm_a") { 1e-6 } else { 0.0 };
        for (a, b) in values.iter().zip(back) {
            assert!((a - b).abs() <= tolerance * a.abs().max(1.0), "{name}: {a} {b}");
        }
    }
    // The order matters: a conversion that leaves the heads alone is another tensor.
    let name = "blk.0.attn_gate.weight";
    let hf = to_hf(&tensors, HEADS);
    let moved = &hf["model.language_model.layers.0.linear_attn.in_proj_z.weight"].1;
    assert_ne!(&tensors[name].1, moved);
}
