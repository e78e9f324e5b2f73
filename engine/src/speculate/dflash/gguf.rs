//! Settings of a draft in GGUF metadata.
//!
//! Two spellings are in use. llama.cpp's has the architecture `dflash`, the mask token
//! among the tokenizer's and `target_layers` with the number of the layer that *follows*
//! each one read. The older one has the architecture `dflash-draft`, keys with another
//! `dflash.` in their prefix, and `target_layer_ids` as in `config.json`, from 0. Keys
//! are taken from any of the prefixes, since converters mix them.

use super::config::{DflashConfig, draft_layers};
use super::fault::{DflashFault, Flaw};
use crate::error::{Error, Result};
use crate::format::{GgufFile, TensorSource, Value};
use crate::model::{
    AttentionConfig, GgufSettings, MAX_CONTEXT, MAX_HEAD_DIM, MAX_HEADS, MAX_LAYERS, MAX_VOCAB,
    MAX_WIDTH, ModelFault, bad, bounded,
};

const ARCHITECTURE: &str = "dflash";
const OLDER: [&str; 2] = ["dflash-draft", "qwen35-dflash-draft"];

const ARCHITECTURE_KEY: &str = "general.architecture";
const MASK_KEY: &str = "tokenizer.ggml.mask_token_id";
const TOKENS_KEY: &str = "tokenizer.ggml.tokens";
/// Read under this very name alone: converters of the older spelling write `false` for
/// every draft under their own prefix, and nothing reads it.
const CAUSAL_KEY: &str = "dflash.attention.causal";

/// Reads and checks the settings.
pub(super) fn read(file: &GgufFile) -> Result<DflashConfig> {
    let metadata = file.metadata();
    let at = |flaw: Flaw| flaw.at(file.path());
    let name = metadata.str(ARCHITECTURE_KEY)?;
    let name =
        name.ok_or_else(|| at(ModelFault::MissingSetting(ARCHITECTURE_KEY.to_owned()).into()))?;
    if name != ARCHITECTURE && !OLDER.contains(&name) {
        return Err(at(DflashFault::NotDflash { found: name.chars().take(80).collect() }.into()));
    }
    let mut prefixes = vec![name.to_owned(), format!("{name}.{ARCHITECTURE}")];
    if name != ARCHITECTURE {
        prefixes.push(ARCHITECTURE.to_owned());
    }
    let s = GgufSettings::with_prefixes(file, prefixes);
    refuse_others(file, &s)?;

    let hidden = s.count("embedding_length", MAX_WIDTH)?;
    let heads = s.count("attention.head_count", MAX_HEADS)?;
    let head_dim = s.count_or_none("attention.key_length", MAX_HEAD_DIM)?.unwrap_or(hidden / heads);
    let count = s.count("block_count", MAX_LAYERS)?;
    let window = metadata.u64(&s.key("attention.sliding_window"))?.filter(|&n| n > 0);
    let window_key = s.key("attention.sliding_window");
    let window = window.map(|n| bounded(&window_key, n, MAX_CONTEXT)).transpose();
    let window = window.map_err(|f| s.fault(f))?;
    let sliding = sliding(file, &s, count, window.is_some())?;
    let causal = metadata.bool(CAUSAL_KEY)?;
    let config = DflashConfig {
        hidden,
        ffn: s.count("feed_forward_length", MAX_WIDTH)?,
        vocab: vocab(file, &s)?,
        eps: s.float("attention.layer_norm_rms_epsilon")? as f32,
        attention: AttentionConfig {
            heads,
            kv_heads: s.count("attention.head_count_kv", MAX_HEADS)?,
            head_dim,
            rotary_dims: s.count_or_none("rope.dimension_count", MAX_HEAD_DIM)?.unwrap_or(head_dim),
            theta: s.float("rope.freq_base")?,
            gated: false,
        },
        layers: draft_layers(&sliding, window, &window_key, causal).map_err(|f| s.fault(f))?,
        block: s.count("block_size", MAX_CONTEXT)?,
        mask_token: mask_token(file, &s)?,
        target_layers: target_layers(file, &s, name == ARCHITECTURE)?,
        target_depth: s.count_or_none("num_target_layers", MAX_LAYERS)?,
    };
    config.validated().map_err(at)
}

/// Settings under which a draft computes something else.
fn refuse_others(file: &GgufFile, s: &GgufSettings<'_>) -> Result<()> {
    let metadata = file.metadata();
    let refuse = |fault: DflashFault| Err(Error::draft(file.path(), fault));
    for key in super::hf::DFLASH2 {
        let key = s.key(key);
        if metadata.u64(&key)?.is_some_and(|n| n > 0) {
            return refuse(DflashFault::Dflash2 { found: key });
        }
    }
    // In these files 0 stands for "not set".
    for (key, allowed, rule) in [
        ("embedding_scale", [0.0, 1.0], "embeddings are taken as they are"),
        ("logit_scale", [0.0, 1.0], "logits are taken as they are"),
        ("final_logit_softcapping", [0.0, 0.0], "logits are taken as they are"),
    ] {
        let key = s.key(key);
        if let Some(value) = metadata.f64(&key)?.filter(|v| !allowed.contains(v)) {
            let value = value.to_string();
            return refuse(DflashFault::Unsupported { key, value, rule });
        }
    }
    let key = s.key("rope.scaling.type");
    if let Some(kind) = metadata.str(&key)?.filter(|&kind| kind != "none") {
        let (value, rule) = (format!("{kind:?}"), "positions are rotated without scaling");
        return refuse(DflashFault::Unsupported { key, value, rule });
    }
    let key = s.key("sample_from_anchor");
    if metadata.bool(&key)? == Some(true) {
        let rule = "a row predicts the token at its own position";
        return refuse(DflashFault::Unsupported { key, value: "true".to_owned(), rule });
    }
    Ok(())
}

/// Which layers have a window.
fn sliding(file: &GgufFile, s: &GgufSettings<'_>, count: usize, window: bool) -> Result<Vec<bool>> {
    let key = s.key("attention.sliding_window_pattern");
    match file.metadata().bool_array(&key)? {
        Some(pattern) if pattern.len() == count => Ok(pattern),
        Some(pattern) => {
            let value = format!("{} entries", pattern.len());
            Err(s.fault(bad(&key, value, "must have one entry per layer")))
        }
        None if window => Err(s.fault(ModelFault::MissingSetting(key))),
        None => Ok(vec![false; count]),
    }
}

fn vocab(file: &GgufFile, s: &GgufSettings<'_>) -> Result<Option<usize>> {
    let metadata = file.metadata();
    match s.count_or_none("vocab_size", MAX_VOCAB)? {
        Some(n) => Ok(Some(n)),
        None => Ok(metadata.str_array(TOKENS_KEY)?.map(|tokens| tokens.len())),
    }
}

/// The draft's own key says more than the tokenizer's, which may come from elsewhere.
fn mask_token(file: &GgufFile, s: &GgufSettings<'_>) -> Result<u32> {
    let metadata = file.metadata();
    let own = metadata.u32(&s.key("mask_token_id"))?;
    let token = own.map_or_else(|| metadata.u32(MASK_KEY), |token| Ok(Some(token)))?;
    token.ok_or_else(|| s.fault(ModelFault::MissingSetting(MASK_KEY.to_owned())))
}

/// Layers from 0. `target_layers` of the architecture `dflash` counts the layer that is
/// fed with the output in question, one more than the layer itself.
fn target_layers(file: &GgufFile, s: &GgufSettings<'_>, upstream: bool) -> Result<Vec<usize>> {
    let metadata = file.metadata();
    let (following, ids) = (s.key("target_layers"), s.key("target_layer_ids"));
    let (key, base) = match metadata.get(&following) {
        Some(_) => (following, u32::from(upstream)),
        None if metadata.get(&ids).is_some() => (ids, 0),
        None => return Err(s.fault(ModelFault::MissingSetting(following))),
    };
    if let Some(Value::Array(list)) = metadata.get(&key)
        && list.len() as u64 > MAX_LAYERS
    {
        let value = format!("{} entries", list.len());
        return Err(s.fault(bad(&key, value, "more layers than any target has")));
    }
    let mut layers = Vec::new();
    for number in metadata.require_u32_array(&key)? {
        let Some(layer) = number.checked_sub(base).filter(|&n| u64::from(n) < MAX_LAYERS) else {
            let rule = "no layer of any target";
            return Err(s.fault(bad(&key, number.to_string(), rule)));
        };
        layers.push(layer as usize);
    }
    Ok(layers)
}
