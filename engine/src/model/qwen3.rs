//! Dense Qwen3: attention in every layer, plain norms, no gate.

use serde_json::Value;

use super::config::{
    MAX_CONTEXT, MAX_HEAD_DIM, MAX_HEADS, MAX_LAYERS, MAX_VOCAB, MAX_WIDTH, bounded,
};
use super::provider::{Change, TensorNaming};
use super::registry::Architecture;
use super::settings::{GgufSettings, HfSettings};
use super::{AttentionConfig, LayerKind, ModelConfig, ModelFault};
use crate::error::Result;
use crate::format::GgufFile;

pub(super) struct Qwen3;

impl Architecture for Qwen3 {
    fn name(&self) -> &'static str {
        "qwen3"
    }

    fn hf_names(&self) -> &'static [&'static str] {
        &["qwen3"]
    }

    fn config_from_gguf(&self, file: &GgufFile) -> Result<ModelConfig> {
        let s = GgufSettings::new(file, self.name());
        let hidden = s.count("embedding_length", MAX_WIDTH)?;
        let heads = s.count("attention.head_count", MAX_HEADS)?;
        let head_dim = match s.count_or_none("attention.key_length", MAX_HEAD_DIM)? {
            Some(n) => n,
            None => hidden / heads,
        };
        let config = ModelConfig {
            architecture: self.name(),
            hidden,
            ffn: s.count("feed_forward_length", MAX_WIDTH)?,
            vocab: gguf_vocab(file, &s)?,
            context_length: s.count("context_length", MAX_CONTEXT)?,
            eps: s.float("attention.layer_norm_rms_epsilon")? as f32,
            layers: vec![LayerKind::Attention; s.count("block_count", MAX_LAYERS)?],
            attention: AttentionConfig {
                heads,
                kv_heads: s.count("attention.head_count_kv", MAX_HEADS)?,
                head_dim,
                rotary_dims: s
                    .count_or_none("rope.dimension_count", MAX_HEAD_DIM)?
                    .unwrap_or(head_dim),
                theta: s.float("rope.freq_base")?,
                gated: false,
            },
            delta: None,
        };
        config.validate().map_err(|f| s.fault(f))?;
        Ok(config)
    }

    fn config_from_hf(&self, config: &Value) -> Result<ModelConfig, ModelFault> {
        let s = HfSettings(config);
        let hidden = s.count("hidden_size", MAX_WIDTH)?;
        let heads = s.count("num_attention_heads", MAX_HEADS)?;
        let head_dim = s.count_or_none("head_dim", MAX_HEAD_DIM)?.unwrap_or(hidden / heads);
        let config = ModelConfig {
            architecture: self.name(),
            hidden,
            ffn: s.count("intermediate_size", MAX_WIDTH)?,
            vocab: s.count("vocab_size", MAX_VOCAB)?,
            context_length: s.count("max_position_embeddings", MAX_CONTEXT)?,
            eps: s.float("rms_norm_eps")? as f32,
            layers: vec![LayerKind::Attention; s.count("num_hidden_layers", MAX_LAYERS)?],
            attention: AttentionConfig {
                heads,
                kv_heads: s.count("num_key_value_heads", MAX_HEADS)?,
                head_dim,
                rotary_dims: head_dim,
                theta: s.rope_theta()?,
                gated: false,
            },
            delta: None,
        };
        config.validate()?;
        Ok(config)
    }

    fn hf_naming(&self, has: &dyn Fn(&str) -> bool) -> Box<dyn TensorNaming> {
        Box::new(Qwen3Naming { prefix: hf_prefix(has) })
    }
}

/// Vocabulary size: the embedding table's rows, since files may omit the setting.
pub(super) fn gguf_vocab(file: &GgufFile, s: &GgufSettings<'_>) -> Result<usize> {
    use crate::format::TensorSource;
    let name = "token_embd.weight";
    let info = file.tensor(name).ok_or_else(|| s.fault(ModelFault::MissingTensor(name.into())))?;
    bounded("vocab_size", info.shape().rows() as u64, MAX_VOCAB).map_err(|f| s.fault(f))
}

/// Checkpoints of multimodal models nest the language model one level deeper.
pub(super) fn hf_prefix(has: &dyn Fn(&str) -> bool) -> &'static str {
    let prefixes = ["model.language_model.", "language_model.model.", "model.", ""];
    let found = prefixes.into_iter().find(|p| has(&format!("{p}embed_tokens.weight")));
    found.unwrap_or("model.")
}

struct Qwen3Naming {
    prefix: &'static str,
}

impl TensorNaming for Qwen3Naming {
    fn resolve(&self, canonical: &str) -> Option<(String, Change)> {
        let p = self.prefix;
        let name = match canonical {
            "token_embd.weight" => format!("{p}embed_tokens.weight"),
            "output_norm.weight" => format!("{p}norm.weight"),
            "output.weight" => "lm_head.weight".to_owned(),
            _ => {
                let (layer, part) = split_block(canonical)?;
                let inner = hf_attention_part(part).or(match part {
                    "ffn_norm.weight" => Some("post_attention_layernorm.weight"),
                    _ => None,
                })?;
                format!("{p}layers.{layer}.{inner}")
            }
        };
        Some((name, Change::None))
    }
}

/// Splits `blk.N.part`.
pub(crate) fn split_block(canonical: &str) -> Option<(usize, &str)> {
    let (layer, part) = canonical.strip_prefix("blk.")?.split_once('.')?;
    Some((layer.parse().ok()?, part))
}

/// Names that `qwen3` and `qwen35` checkpoints share.
pub(crate) fn hf_attention_part(part: &str) -> Option<&'static str> {
    Some(match part {
        "attn_norm.weight" => "input_layernorm.weight",
        "attn_q.weight" => "self_attn.q_proj.weight",
        "attn_k.weight" => "self_attn.k_proj.weight",
        "attn_v.weight" => "self_attn.v_proj.weight",
        "attn_output.weight" => "self_attn.o_proj.weight",
        "attn_q_norm.weight" => "self_attn.q_norm.weight",
        "attn_k_norm.weight" => "self_attn.k_norm.weight",
        "ffn_gate.weight" => "mlp.gate_proj.weight",
        "ffn_up.weight" => "mlp.up_proj.weight",
        "ffn_down.weight" => "mlp.down_proj.weight",
        _ => return None,
    })
}
