//! Settings of drafts in GGUF files, in both spellings, and what is wrong with them.

mod dflash_support;

use dflash_support::*;
use foretoken::Error;
use foretoken::format::{Array, FormatFault, Value};
use foretoken::speculate::dflash::{DflashFault, DraftLayer};

const FULL: DraftLayer = DraftLayer { window: None, causal: false };

fn u32_of(n: usize) -> Value {
    Value::U32(n as u32)
}

fn layers(list: &[u32]) -> Value {
    Value::Array(Array::u32s(list))
}

fn pattern(list: &[bool]) -> Value {
    Value::Array(Array::bools(list))
}

#[test]
fn both_spellings_say_the_same() {
    let upstream = Draft::upstream().open().unwrap().config;
    assert_eq!(upstream, Draft::older().open().unwrap().config);
    let c = upstream;
    assert_eq!((c.hidden, c.ffn, c.vocab, c.block), (HIDDEN, FFN, Some(VOCAB), BLOCK));
    assert_eq!((c.mask_token, c.target_layers.as_slice()), (MASK, &READ[..]));
    assert_eq!((c.features(), c.target_depth), (READ.len() * HIDDEN, None));
    let a = c.attention;
    assert_eq!((a.heads, a.kv_heads, a.head_dim), (HEADS, KV_HEADS, HEAD_DIM));
    assert_eq!((a.rotary_dims, a.theta, a.gated), (HEAD_DIM, 1e7, false));
    assert_eq!(c.layers, [FULL, FULL]);
}

#[test]
fn the_base_of_layer_numbers_goes_with_the_spelling() {
    let read = |d: Draft| d.open().unwrap().config.target_layers;
    // llama.cpp's key counts one more; that of `config.json` counts from 0 in any file.
    let base = Draft::upstream();
    assert_eq!(read(base.clone().with("dflash.target_layers", layers(&[8, 1]))), [7, 0]);
    let raw = base.without("dflash.target_layers");
    for prefix in ["dflash", "dflash.dflash"] {
        let key = format!("{prefix}.target_layer_ids");
        assert_eq!(read(raw.clone().with(&key, layers(&[8, 1]))), [8, 1]);
    }
    let older = Draft::older().without("dflash-draft.dflash.target_layer_ids");
    for key in ["dflash-draft.target_layers", "dflash.target_layers", "dflash.target_layer_ids"] {
        assert_eq!(read(older.clone().with(key, layers(&[8, 1]))), [8, 1], "{key}");
    }
    // Layer 0 of the upstream key would be the embedding.
    let none = Draft::upstream().with("dflash.target_layers", layers(&[0, 1]));
    assert_eq!(bad_key(none.open(), FILE), "dflash.target_layers");
}

#[test]
fn keys_are_found_under_mixed_prefixes() {
    let mut draft = Draft::older()
        .without("dflash-draft.dflash.block_size")
        .without("dflash-draft.dflash.mask_token_id")
        .with("dflash.block_size", u32_of(8))
        .with("dflash.mask_token_id", u32_of(3));
    draft.rename("dflash.fc.weight", "dflash_fc.weight");
    draft.rename("dflash.hidden_norm.weight", "dflash_hidden_norm.weight");
    draft.rename("blk.1.ffn_norm.weight", "blk.1.post_attention_norm.weight");
    let file = draft.open().unwrap();
    assert_eq!((file.config.block, file.config.mask_token), (8, 3));
    assert!(file.provider.has("fc.weight") && file.provider.has("blk.1.ffn_norm.weight"));
    // The draft's own key goes before the tokenizer's.
    let both = draft.with("tokenizer.ggml.mask_token_id", u32_of(4));
    assert_eq!(both.open().unwrap().config.mask_token, 3);
    let other = Draft::older().with("general.architecture", Value::string("qwen35-dflash-draft"));
    assert_eq!(missing_key(other.open(), FILE), "qwen35-dflash-draft.embedding_length");
}

#[test]
fn needed_settings_are_missed_by_name() {
    for key in [
        "dflash.block_count",
        "dflash.embedding_length",
        "dflash.feed_forward_length",
        "dflash.attention.head_count",
        "dflash.attention.head_count_kv",
        "dflash.attention.layer_norm_rms_epsilon",
        "dflash.rope.freq_base",
        "dflash.block_size",
        "dflash.target_layers",
        "tokenizer.ggml.mask_token_id",
        "general.architecture",
    ] {
        assert_eq!(missing_key(Draft::upstream().without(key).open(), FILE), key);
    }
    // These have a value to fall back on.
    let few = Draft::upstream().without("dflash.attention.key_length").without("dflash.vocab_size");
    let few = few.open().unwrap().config;
    assert_eq!((few.attention.head_dim, few.vocab), (HIDDEN / HEADS, None));
    let tokens = Draft::upstream()
        .without("dflash.vocab_size")
        .with("tokenizer.ggml.tokens", Value::Array(Array::strings(["a", "b"])));
    assert_eq!(tokens.open().unwrap().config.vocab, Some(2));
}

#[test]
fn windows_follow_the_pattern_and_blocks_the_windows() {
    let draft = Draft::upstream()
        .with("dflash.attention.sliding_window", u32_of(2048))
        .with("dflash.attention.sliding_window_pattern", pattern(&[true, false]));
    let slide = DraftLayer { window: Some(2048), causal: true };
    assert_eq!(draft.open().unwrap().config.layers, [slide, FULL]);
    // The override holds for all layers.
    for causal in [true, false] {
        let draft = draft.clone().with("dflash.attention.causal", Value::Bool(causal));
        let layers = draft.open().unwrap().config.layers;
        assert_eq!(layers.map_causal(), [causal; 2]);
    }
    // What older converters write for every draft is no override.
    let older = Draft::older()
        .with("dflash-draft.attention.sliding_window", u32_of(16))
        .with("dflash-draft.attention.sliding_window_pattern", pattern(&[false, true]));
    let slide = DraftLayer { window: Some(16), causal: true };
    assert_eq!(older.open().unwrap().config.layers, [FULL, slide]);

    let key = "dflash.attention.sliding_window_pattern";
    assert_eq!(missing_key(draft.clone().without(key).open(), FILE), key);
    assert_eq!(bad_key(draft.clone().with(key, pattern(&[true])).open(), FILE), key);
    let key = "dflash.attention.sliding_window";
    assert_eq!(missing_key(draft.clone().without(key).open(), FILE), key);
    // 0 stands for none.
    assert_eq!(missing_key(draft.clone().with(key, u32_of(0)).open(), FILE), key);
    assert_eq!(bad_key(draft.with(key, Value::U64(1 << 40)).open(), FILE), key);
}

trait Causal {
    fn map_causal(&self) -> Vec<bool>;
}

impl Causal for Vec<DraftLayer> {
    fn map_causal(&self) -> Vec<bool> {
        self.iter().map(|l| l.causal).collect()
    }
}

#[test]
fn other_kinds_of_drafts_are_refused() {
    for key in ["conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k"] {
        let key = format!("dflash.{key}");
        let fault = draft_fault(Draft::upstream().with(&key, u32_of(2)).open(), FILE);
        assert_eq!(fault, DflashFault::Dflash2 { found: key.clone() });
        assert!(Draft::upstream().with(&key, u32_of(0)).open().is_ok());
    }
    for (key, value, neutral) in [
        ("dflash.embedding_scale", Value::F32(4.0), Value::F32(1.0)),
        ("dflash.logit_scale", Value::F32(0.5), Value::F32(0.0)),
        ("dflash.logit_scale", Value::F32(f32::NAN), Value::F32(1.0)),
        ("dflash.final_logit_softcapping", Value::F32(30.0), Value::F32(0.0)),
        ("dflash.rope.scaling.type", Value::string("yarn"), Value::string("none")),
        ("dflash.sample_from_anchor", Value::Bool(true), Value::Bool(false)),
    ] {
        match draft_fault(Draft::upstream().with(key, value).open(), FILE) {
            DflashFault::Unsupported { key: found, .. } => assert_eq!(found, key),
            other => panic!("{key}: {other}"),
        }
        assert!(Draft::upstream().with(key, neutral).open().is_ok(), "{key}");
    }
    let other = Draft::upstream().with("general.architecture", Value::string("qwen3"));
    assert_eq!(draft_fault(other.open(), FILE), DflashFault::NotDflash { found: "qwen3".into() });
}

#[test]
fn hostile_values_are_bad_settings() {
    let huge = Value::U64(u64::MAX);
    for key in [
        "dflash.block_count",
        "dflash.embedding_length",
        "dflash.feed_forward_length",
        "dflash.attention.head_count",
        "dflash.attention.head_count_kv",
        "dflash.attention.key_length",
        "dflash.rope.dimension_count",
        "dflash.block_size",
        "dflash.vocab_size",
        "dflash.num_target_layers",
    ] {
        assert_eq!(bad_key(Draft::upstream().with(key, huge.clone()).open(), FILE), key);
        assert_eq!(bad_key(Draft::upstream().with(key, u32_of(0)).open(), FILE), key);
    }
    for (key, value, named) in [
        ("dflash.block_size", u32_of(1), "block_size"),
        ("dflash.block_size", u32_of(65), "block_size"),
        ("dflash.attention.head_count_kv", u32_of(3), "head_count_kv"),
        ("dflash.attention.head_count_kv", u32_of(8), "head_count_kv"),
        ("dflash.rope.dimension_count", u32_of(3), "rope.dimension_count"),
        ("dflash.rope.dimension_count", u32_of(10), "rope.dimension_count"),
        ("dflash.rope.freq_base", Value::F32(0.0), "rope.freq_base"),
        ("dflash.rope.freq_base", Value::F32(f32::NAN), "rope.freq_base"),
        ("dflash.rope.freq_base", Value::F32(f32::INFINITY), "rope.freq_base"),
        ("dflash.attention.layer_norm_rms_epsilon", Value::F32(-1.0), "layer_norm_rms_epsilon"),
        ("dflash.target_layers", layers(&[]), "target_layer_ids"),
        ("dflash.target_layers", layers(&[u32::MAX]), "dflash.target_layers"),
        ("dflash.target_layers", layers(&[1; 5000]), "dflash.target_layers"),
    ] {
        assert_eq!(bad_key(Draft::upstream().with(key, value).open(), FILE), named);
    }
    let odd = Draft::upstream()
        .with("dflash.attention.key_length", u32_of(9))
        .with("dflash.rope.dimension_count", u32_of(8));
    assert_eq!(bad_key(odd.open(), FILE), "head_dim");
    for block in [2, 64] {
        let draft = Draft::upstream().with("dflash.block_size", u32_of(block));
        assert_eq!(draft.open().unwrap().config.block, block);
    }
    let twice = Draft::upstream().with("dflash.target_layers", layers(&[2, 5, 2]));
    assert_eq!(draft_fault(twice.open(), FILE), DflashFault::RepeatedLayer(1));
}

#[test]
fn values_of_the_wrong_type_are_format_faults() {
    for (key, value) in [
        ("dflash.block_size", Value::F32(16.0)),
        ("dflash.target_layers", u32_of(5)),
        ("dflash.target_layers", Value::Array(Array::i32s(&[-1]))),
        ("dflash.attention.causal", u32_of(1)),
        ("dflash.rope.freq_base", u32_of(10_000)),
        ("tokenizer.ggml.mask_token_id", Value::I32(-1)),
        ("general.architecture", u32_of(1)),
    ] {
        match Draft::upstream().with(key, value).open().err() {
            Some(Error::Format { fault, .. }) => match fault {
                FormatFault::WrongType { key: found, .. }
                | FormatFault::OutOfRange { key: found, .. } => assert_eq!(found, key),
                other => panic!("{key}: {other}"),
            },
            other => panic!("{key}: {other:?}"),
        }
    }
}
