//! Qwen3.5 and 3.6: gated delta layers with a gated attention layer every few.

use serde_json::Value;

use super::config::{MAX_CONTEXT, MAX_HEAD_DIM, MAX_HEADS, MAX_LAYERS, MAX_VOCAB, MAX_WIDTH};
use super::provider::{Change, TensorNaming};
use super::qwen3::{gguf_vocab, hf_attention_part, hf_prefix, split_block};
use super::registry::Architecture;
use super::settings::{GgufSettings, HfSettings};
use super::{AttentionConfig, DeltaConfig, LayerKind, ModelConfig, ModelFault};
use crate::error::Result;
use crate::format::GgufFile;
use crate::kernel::HeadMap;

pub(super) struct Qwen35;

fn interval_layers(count: usize, interval: usize) -> Vec<LayerKind> {
    let kind = |i: usize| match (i + 1).is_multiple_of(interval) {
        true => LayerKind::Attention,
        false => LayerKind::Delta,
    };
    (0..count).map(kind).collect()
}

impl Architecture for Qwen35 {
    fn name(&self) -> &'static str {
        "qwen35"
    }

    fn hf_names(&self) -> &'static [&'static str] {
        &["qwen3_5", "qwen3_5_text"]
    }

    fn config_from_gguf(&self, file: &GgufFile) -> Result<ModelConfig> {
        let s = GgufSettings::new(file, self.name());
        let blocks = s.count("block_count", MAX_LAYERS)?;
        // The draft head for multi-token prediction follows the layers proper.
        let extra = file.metadata().u64(&s.key("nextn_predict_layers"))?.unwrap_or(0);
        let count = usize::try_from(extra).ok().and_then(|e| blocks.checked_sub(e));
        let Some(count) = count.filter(|&n| n > 0) else {
            let key = s.key("nextn_predict_layers");
            let rule = "must be less than block_count";
            return Err(s.fault(ModelFault::BadSetting { key, value: extra.to_string(), rule }));
        };
        let layers = match file.metadata().bool_array(&s.key("attention.recurrent_layers"))? {
            Some(list) if list.len() >= count => {
                let kind =
                    |&delta: &bool| if delta { LayerKind::Delta } else { LayerKind::Attention };
                list.iter().take(count).map(kind).collect()
            }
            Some(list) => {
                let key = s.key("attention.recurrent_layers");
                let value = format!("{} entries", list.len());
                let rule = "must have one entry per layer";
                return Err(s.fault(ModelFault::BadSetting { key, value, rule }));
            }
            None => interval_layers(
                count,
                s.count_or_none("full_attention_interval", MAX_LAYERS)?.unwrap_or(4),
            ),
        };
        let value_heads = s.count("ssm.time_step_rank", MAX_HEADS)?;
        let inner = s.count("ssm.inner_size", MAX_WIDTH)?;
        if !inner.is_multiple_of(value_heads) {
            let key = s.key("ssm.inner_size");
            let rule = "must be a multiple of ssm.time_step_rank";
            return Err(s.fault(ModelFault::BadSetting { key, value: inner.to_string(), rule }));
        }
        let head_dim = s.count("attention.key_length", MAX_HEAD_DIM)?;
        let config = ModelConfig {
            architecture: self.name(),
            hidden: s.count("embedding_length", MAX_WIDTH)?,
            ffn: s.count("feed_forward_length", MAX_WIDTH)?,
            vocab: gguf_vocab(file, &s)?,
            context_length: s.count("context_length", MAX_CONTEXT)?,
            eps: s.float("attention.layer_norm_rms_epsilon")? as f32,
            layers,
            attention: AttentionConfig {
                heads: s.count("attention.head_count", MAX_HEADS)?,
                kv_heads: s.count("attention.head_count_kv", MAX_HEADS)?,
                head_dim,
                rotary_dims: s.count("rope.dimension_count", MAX_HEAD_DIM)?,
                theta: s.float("rope.freq_base")?,
                gated: true,
            },
            delta: Some(DeltaConfig {
                key_heads: s.count("ssm.group_count", MAX_HEADS)?,
                value_heads,
                key_dim: s.count("ssm.state_size", MAX_HEAD_DIM)?,
                value_dim: inner / value_heads,
                conv_width: s.count("ssm.conv_kernel", 64)?,
                head_map: HeadMap::Tiled,
            }),
        };
        config.validate().map_err(|f| s.fault(f))?;
        Ok(config)
    }

    fn config_from_hf(&self, config: &Value) -> Result<ModelConfig, ModelFault> {
        let outer = HfSettings(config);
        let s = outer.object("text_config").unwrap_or(HfSettings(config));
        let head_dim = s.count("head_dim", MAX_HEAD_DIM)?;
        let rope = s.object("rope_parameters");
        let partial = match rope.map(|r| r.float_or_none("partial_rotary_factor")).transpose()? {
            Some(Some(p)) => p,
            _ => s.float_or_none("partial_rotary_factor")?.unwrap_or(0.25),
        };
        if !(partial > 0.0 && partial <= 1.0) {
            let (key, value) = ("partial_rotary_factor".to_owned(), partial.to_string());
            return Err(ModelFault::BadSetting { key, value, rule: "must lie in (0, 1]" });
        }
        let config = ModelConfig {
            architecture: self.name(),
            hidden: s.count("hidden_size", MAX_WIDTH)?,
            ffn: s.count("intermediate_size", MAX_WIDTH)?,
            vocab: s.count("vocab_size", MAX_VOCAB)?,
            context_length: s.count("max_position_embeddings", MAX_CONTEXT)?,
            eps: s.float("rms_norm_eps")? as f32,
            layers: hf_layers(&s)?,
            attention: AttentionConfig {
                heads: s.count("num_attention_heads", MAX_HEADS)?,
                kv_heads: s.count("num_key_value_heads", MAX_HEADS)?,
                head_dim,
                rotary_dims: (head_dim as f64 * partial) as usize,
                theta: s.rope_theta()?,
                gated: true,
            },
            delta: Some(DeltaConfig {
                key_heads: s.count("linear_num_key_heads", MAX_HEADS)?,
                value_heads: s.count("linear_num_value_heads", MAX_HEADS)?,
                key_dim: s.count("linear_key_head_dim", MAX_HEAD_DIM)?,
                value_dim: s.count("linear_value_head_dim", MAX_HEAD_DIM)?,
                conv_width: s.count("linear_conv_kernel_dim", 64)?,
                head_map: HeadMap::Grouped,
            }),
        };
        config.validate()?;
        Ok(config)
    }

    fn hf_naming(&self, has: &dyn Fn(&str) -> bool) -> Box<dyn TensorNaming> {
        Box::new(Qwen35Naming { prefix: hf_prefix(has) })
    }
}

fn hf_layers(s: &HfSettings<'_>) -> Result<Vec<LayerKind>, ModelFault> {
    let count = s.count("num_hidden_layers", MAX_LAYERS)?;
    let Some(types) = s.0.get("layer_types").and_then(Value::as_array) else {
        let interval = s.count_or_none("full_attention_interval", MAX_LAYERS)?.unwrap_or(4);
        return Ok(interval_layers(count, interval));
    };
    let bad =
        |value: String, rule| ModelFault::BadSetting { key: "layer_types".to_owned(), value, rule };
    if types.len() != count {
        let value = format!("{} entries", types.len());
        return Err(bad(value, "must have one entry per layer"));
    }
    let kind = |t: &Value| match t.as_str() {
        Some("full_attention") => Ok(LayerKind::Attention),
        Some("linear_attention") => Ok(LayerKind::Delta),
        _ => Err(bad(t.to_string(), "entries are full_attention or linear_attention")),
    };
    types.iter().map(kind).collect()
}

struct Qwen35Naming {
    prefix: &'static str,
}

impl TensorNaming for Qwen35Naming {
    /// All norms but the delta layers' own are stored around zero (`1 + w`).
    fn resolve(&self, canonical: &str) -> Option<(String, Change)> {
        let p = self.prefix;
        match canonical {
            "token_embd.weight" => return Some((format!("{p}embed_tokens.weight"), Change::None)),
            "output_norm.weight" => return Some((format!("{p}norm.weight"), Change::AddOne)),
            "output.weight" => return Some(("lm_head.weight".to_owned(), Change::None)),
            _ => {}
        }
        let (layer, part) = split_block(canonical)?;
        let (inner, change) = match part {
            "post_attention_norm.weight" => ("post_attention_layernorm.weight", Change::AddOne),
            "attn_qkv.weight" => ("linear_attn.in_proj_qkv.weight", Change::None),
            "attn_gate.weight" => ("linear_attn.in_proj_z.weight", Change::None),
            "ssm_alpha.weight" => ("linear_attn.in_proj_a.weight", Change::None),
            "ssm_beta.weight" => ("linear_attn.in_proj_b.weight", Change::None),
            "ssm_conv1d.weight" => ("linear_attn.conv1d.weight", Change::None),
            "ssm_dt.bias" => ("linear_attn.dt_bias", Change::None),
            "ssm_a" => ("linear_attn.A_log", Change::NegExp),
            "ssm_norm.weight" => ("linear_attn.norm.weight", Change::None),
            "ssm_out.weight" => ("linear_attn.out_proj.weight", Change::None),
            _ => {
                let inner = hf_attention_part(part)?;
                let norm = part.ends_with("norm.weight");
                (inner, if norm { Change::AddOne } else { Change::None })
            }
        };
        Some((format!("{p}layers.{layer}.{inner}"), change))
    }
}
