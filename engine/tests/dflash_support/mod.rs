//! Draft files put together setting by setting, a target for them, and a device that
//! computes nothing.

// Each test binary uses its own part of this.
#![allow(dead_code)]

pub(crate) mod device;

use std::path::Path;

use foretoken::Error;
use foretoken::format::{Array, GgufFile, GgufWriter, Value};
use foretoken::kernel::HeadMap;
use foretoken::model::{AttentionConfig, DeltaConfig, LayerKind, ModelConfig, ModelFault};
use foretoken::speculate::dflash::{DflashFault, DflashFile};
use foretoken::tensor::{DType, Shape};
use serde_json::json;

pub(crate) const HIDDEN: usize = 32;
pub(crate) const FFN: usize = 48;
pub(crate) const VOCAB: usize = 50;
pub(crate) const HEADS: usize = 4;
pub(crate) const KV_HEADS: usize = 2;
pub(crate) const HEAD_DIM: usize = 8;
pub(crate) const BLOCK: usize = 6;
pub(crate) const MASK: u32 = 49;
/// Layers of the target that are read, from 0.
pub(crate) const READ: [usize; 3] = [1, 4, 7];
pub(crate) const FILE: &str = "draft.gguf";

/// A hybrid model of 9 layers.
pub(crate) fn target() -> ModelConfig {
    let mut layers = vec![LayerKind::Delta; 9];
    layers[3] = LayerKind::Attention;
    ModelConfig {
        architecture: "qwen35",
        hidden: HIDDEN,
        ffn: 64,
        vocab: VOCAB,
        context_length: 1024,
        eps: 1e-6,
        layers,
        attention: AttentionConfig {
            heads: 2,
            kv_heads: 1,
            head_dim: 16,
            rotary_dims: 4,
            theta: 1e7,
            gated: true,
        },
        delta: Some(DeltaConfig {
            key_heads: 1,
            value_heads: 2,
            key_dim: 8,
            value_dim: 8,
            conv_width: 4,
            head_map: HeadMap::Grouped,
        }),
    }
}

/// Tensors of a draft of two layers with llama.cpp's names, outermost dimension first.
pub(crate) fn gguf_tensors() -> Vec<(String, Vec<usize>)> {
    let (q, kv) = (HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM);
    let mut out = vec![
        ("fc.weight".to_owned(), vec![HIDDEN, READ.len() * HIDDEN]),
        ("enc.output_norm.weight".to_owned(), vec![HIDDEN]),
        ("output_norm.weight".to_owned(), vec![HIDDEN]),
    ];
    for i in 0..2 {
        for (part, dims) in [
            ("attn_norm", vec![HIDDEN]),
            ("attn_q", vec![q, HIDDEN]),
            ("attn_k", vec![kv, HIDDEN]),
            ("attn_v", vec![kv, HIDDEN]),
            ("attn_output", vec![HIDDEN, q]),
            ("attn_q_norm", vec![HEAD_DIM]),
            ("attn_k_norm", vec![HEAD_DIM]),
            ("ffn_norm", vec![HIDDEN]),
            ("ffn_gate", vec![FFN, HIDDEN]),
            ("ffn_up", vec![FFN, HIDDEN]),
            ("ffn_down", vec![HIDDEN, FFN]),
        ] {
            out.push((format!("blk.{i}.{part}.weight"), dims));
        }
    }
    out
}

/// A GGUF draft in the making.
#[derive(Clone)]
pub(crate) struct Draft {
    pub(crate) metadata: Vec<(String, Value)>,
    pub(crate) tensors: Vec<(String, Vec<usize>)>,
}

impl Draft {
    /// As llama.cpp's converter writes it.
    pub(crate) fn upstream() -> Self {
        Self { metadata: Vec::new(), tensors: gguf_tensors() }
            .with("general.architecture", Value::string("dflash"))
            .common("dflash")
            .with("dflash.block_size", Value::U32(BLOCK as u32))
            .with("dflash.target_layers", Value::Array(Array::i32s(&[2, 5, 8])))
            .with("tokenizer.ggml.mask_token_id", Value::U32(MASK))
    }

    /// As the older converters write it.
    pub(crate) fn older() -> Self {
        let mut draft = Self { metadata: Vec::new(), tensors: gguf_tensors() }
            .with("general.architecture", Value::string("dflash-draft"))
            .common("dflash-draft")
            .with("dflash-draft.dflash.block_size", Value::U32(BLOCK as u32))
            .with("dflash-draft.dflash.mask_token_id", Value::U32(MASK))
            .with("dflash-draft.dflash.target_layer_ids", Value::Array(Array::u32s(&[1, 4, 7])))
            .with("dflash-draft.attention.causal", Value::Bool(false));
        draft.rename("fc.weight", "dflash.fc.weight");
        draft.rename("enc.output_norm.weight", "dflash.hidden_norm.weight");
        draft
    }

    fn common(self, p: &str) -> Self {
        let key = |k: &str| format!("{p}.{k}");
        self.with(&key("block_count"), Value::U32(2))
            .with(&key("embedding_length"), Value::U32(HIDDEN as u32))
            .with(&key("feed_forward_length"), Value::U32(FFN as u32))
            .with(&key("attention.head_count"), Value::U32(HEADS as u32))
            .with(&key("attention.head_count_kv"), Value::U32(KV_HEADS as u32))
            .with(&key("attention.key_length"), Value::U32(HEAD_DIM as u32))
            .with(&key("attention.layer_norm_rms_epsilon"), Value::F32(1e-6))
            .with(&key("rope.freq_base"), Value::F32(1e7))
            .with(&key("vocab_size"), Value::U32(VOCAB as u32))
    }

    /// Sets or replaces a setting.
    pub(crate) fn with(mut self, key: &str, value: Value) -> Self {
        self = self.without(key);
        self.metadata.push((key.to_owned(), value));
        self
    }

    /// Leaves a setting out.
    pub(crate) fn without(mut self, key: &str) -> Self {
        self.metadata.retain(|(k, _)| k != key);
        self
    }

    pub(crate) fn rename(&mut self, from: &str, to: &str) {
        for (name, _) in self.tensors.iter_mut().filter(|(name, _)| name == from) {
            *name = to.to_owned();
        }
    }

    /// Adds a tensor, or gives one another shape.
    pub(crate) fn tensor(mut self, name: &str, dims: &[usize]) -> Self {
        self.tensors.retain(|(n, _)| n != name);
        self.tensors.push((name.to_owned(), dims.to_vec()));
        self
    }

    pub(crate) fn file(&self) -> GgufFile {
        let mut writer = GgufWriter::new(Path::new(FILE));
        for (key, value) in &self.metadata {
            writer.metadata(key, value.clone()).unwrap();
        }
        for (name, dims) in &self.tensors {
            writer.tensor(name, DType::F32, Shape::new(dims).unwrap()).unwrap();
        }
        let mut body = writer.begin(Vec::new()).unwrap();
        for (_, dims) in &self.tensors {
            let count: usize = dims.iter().product();
            let ones: Vec<u8> = std::iter::repeat_n(1f32.to_le_bytes(), count).flatten().collect();
            body.data(&ones).unwrap();
        }
        GgufFile::from_bytes(Path::new(FILE), body.finish().unwrap().into()).unwrap()
    }

    pub(crate) fn open(&self) -> Result<DflashFile, Error> {
        DflashFile::from_gguf(self.file())
    }
}

/// A `config.json` for the same draft.
pub(crate) fn hf_config() -> serde_json::Value {
    json!({
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "hidden_size": HIDDEN,
        "intermediate_size": FFN,
        "vocab_size": VOCAB,
        "num_hidden_layers": 2,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e7,
        "num_target_layers": 9,
        "block_size": BLOCK,
        "dflash_config": { "target_layer_ids": READ, "mask_token_id": MASK },
    })
}

/// What an error must look like: one short line that begins with the file.
fn line_of(error: &Error, file: &str) {
    let line = error.to_string();
    assert!(line.chars().all(|c| !c.is_control()), "{line:?}");
    assert!(line.contains(&format!("{file}: ")) && line.len() < 400, "{line:?}");
}

/// The draft's fault in an error.
pub(crate) fn draft_fault<T>(result: Result<T, Error>, file: &str) -> DflashFault {
    let error = result.err().expect("a bad draft was accepted");
    line_of(&error, file);
    match error {
        Error::Draft { fault, .. } => *fault,
        other => panic!("not a fault of the draft: {other}"),
    }
}

/// The model's fault in an error.
pub(crate) fn model_fault<T>(result: Result<T, Error>, file: &str) -> ModelFault {
    let error = result.err().expect("a bad draft was accepted");
    line_of(&error, file);
    match error {
        Error::Model { fault, .. } => *fault,
        other => panic!("not a fault of a model: {other}"),
    }
}

/// The key a `BadSetting` names.
pub(crate) fn bad_key<T>(result: Result<T, Error>, file: &str) -> String {
    match model_fault(result, file) {
        ModelFault::BadSetting { key, .. } => key,
        other => panic!("not a bad setting: {other}"),
    }
}

/// The key a `MissingSetting` names.
pub(crate) fn missing_key<T>(result: Result<T, Error>, file: &str) -> String {
    match model_fault(result, file) {
        ModelFault::MissingSetting(key) => key,
        other => panic!("not a missing setting: {other}"),
    }
}
