//! The metadata of a file, under the keys that llama.cpp writes.

use foretoken::format::{Array, Metadata, Value};

use super::shape::{Family, Shape};
use super::vocab::{self, Places};
use super::{Recipe, SynthFault};

/// All entries but the tokenizer's and those of the file type.
pub(crate) fn model(recipe: &Recipe) -> Vec<(String, Value)> {
    let shape = recipe.shape;
    let architecture = shape.architecture();
    let mut out = Vec::new();
    let mut add = |key: &str, value| out.push((key.to_owned(), value));
    add("general.architecture", Value::string(architecture));
    add("general.name", Value::string(&format!("synth-{}", recipe.name)));
    let what = "Random weights of the right shape, to measure speed and memory with";
    add("general.description", Value::string(what));
    let mut set = |key: &str, value| out.push((format!("{architecture}.{key}"), value));
    set("block_count", number(shape.layers));
    set("context_length", number(shape.context));
    set("embedding_length", number(shape.hidden));
    set("feed_forward_length", number(shape.ffn));
    set("attention.head_count", number(shape.heads));
    set("attention.head_count_kv", number(shape.kv_heads));
    set("attention.key_length", number(shape.head_dim));
    set("attention.value_length", number(shape.head_dim));
    set("attention.layer_norm_rms_epsilon", Value::F32(1e-6));
    set("vocab_size", number(shape.vocab));
    set("rope.freq_base", Value::F32(shape.theta));
    set("rope.dimension_count", number(shape.rotary()));
    match shape.family {
        Family::Hybrid { key_heads, value_heads } => {
            set("rope.dimension_sections", Value::Array(Array::i32s(&[11, 11, 10, 0])));
            set("ssm.conv_kernel", number(Shape::TAPS));
            set("ssm.state_size", number(Shape::STATE));
            set("ssm.group_count", number(key_heads));
            set("ssm.time_step_rank", number(value_heads));
            set("ssm.inner_size", number(value_heads * Shape::STATE));
            set("full_attention_interval", number(Shape::INTERVAL));
        }
        Family::Dense => {}
        Family::Draft { window, .. } => {
            set("block_size", number(Shape::BLOCK));
            // Each layer read is named by the one that follows it.
            let follow = |layer: usize| i32::try_from(layer + 1).unwrap_or(i32::MAX);
            let layers: Vec<i32> = shape.target_layers().into_iter().map(follow).collect();
            set("target_layers", Value::Array(Array::i32s(&layers)));
            if let Some(window) = window {
                let slides: Vec<bool> = (1..=shape.layers).map(|i| i < shape.layers).collect();
                set("attention.sliding_window", number(window));
                set("attention.sliding_window_pattern", Value::Array(Array::bools(&slides)));
            }
        }
    }
    out.push(("general.quantization_version".to_owned(), Value::U32(2)));
    out.push(("general.file_type".to_owned(), Value::U32(recipe.quant.file_type())));
    out
}

/// The tokenizer's entries: a vocabulary made from nothing, or that of another file.
///
/// # Errors
/// `NoVocabulary`, `VocabularyTooLarge`, or a format fault for a value of wrong type.
pub(crate) fn tokenizer(
    shape: &Shape,
    from: Option<&Metadata>,
) -> anyhow::Result<Vec<(String, Value)>> {
    const MASK: &str = "tokenizer.ggml.mask_token_id";
    let Some(from) = from else { return Ok(vocab::settings(shape.vocab)) };
    let tokens = from.str_array("tokenizer.ggml.tokens")?.ok_or(SynthFault::NoVocabulary)?.len();
    if tokens > shape.vocab {
        return Err(SynthFault::VocabularyTooLarge { tokens, rows: shape.vocab }.into());
    }
    let ours = from.iter().filter(|(key, _)| key.starts_with("tokenizer."));
    let mut out: Vec<_> = ours.map(|(key, value)| (key.to_owned(), value.clone())).collect();
    if out.iter().all(|(key, _)| key != MASK) {
        out.push((MASK.to_owned(), Value::U32(Places::new(shape.vocab).mask())));
    }
    Ok(out)
}

fn number(n: usize) -> Value {
    Value::U32(u32::try_from(n).unwrap_or(u32::MAX))
}
