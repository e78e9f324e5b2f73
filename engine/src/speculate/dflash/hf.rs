//! Settings of a draft in a `config.json`. A value in `dflash_config` goes before one at
//! top level, except for those of the plain transformer, which lie at top level alone.

use serde_json::Value;

use super::config::{DflashConfig, draft_layers, even_layers};
use super::fault::{DflashFault, Flaw};
use crate::model::{
    AttentionConfig, HfSettings, MAX_CONTEXT, MAX_HEAD_DIM, MAX_HEADS, MAX_LAYERS, MAX_VOCAB,
    MAX_WIDTH, ModelFault, bad,
};

/// Settings that DFlash2 alone has, under the same names in both file formats.
pub(super) const DFLASH2: [&str; 4] =
    ["conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k"];

/// The two objects that settings are looked up in.
struct Settings<'a> {
    top: HfSettings<'a>,
    nested: Option<HfSettings<'a>>,
}

impl<'a> Settings<'a> {
    /// The object to read a setting from.
    fn of(&self, key: &str) -> HfSettings<'a> {
        self.nested.filter(|n| n.get(key).is_some()).unwrap_or(self.top)
    }

    fn get(&self, key: &str) -> Option<&'a Value> {
        self.of(key).get(key)
    }
}

/// Reads and checks the settings.
pub(super) fn read(config: &Value) -> Result<DflashConfig, Flaw> {
    let top = HfSettings(config);
    let s = Settings { top, nested: top.object("dflash_config") };
    recognise(&s)?;
    refuse_others(&s)?;
    let hidden = top.count("hidden_size", MAX_WIDTH)?;
    let heads = top.count("num_attention_heads", MAX_HEADS)?;
    let head_dim = top.count_or_none("head_dim", MAX_HEAD_DIM)?.unwrap_or(hidden / heads);
    let count = top.count("num_hidden_layers", MAX_LAYERS)?;
    let target_depth = s.of("num_target_layers").count_or_none("num_target_layers", MAX_LAYERS)?;
    let window = s.of("sliding_window").count_or_none("sliding_window", MAX_CONTEXT)?;
    let sliding = sliding(&s, count)?;
    let config = DflashConfig {
        hidden,
        ffn: top.count("intermediate_size", MAX_WIDTH)?,
        vocab: top.count_or_none("vocab_size", MAX_VOCAB)?,
        eps: top.float("rms_norm_eps")? as f32,
        attention: AttentionConfig {
            heads,
            kv_heads: top.count("num_key_value_heads", MAX_HEADS)?,
            head_dim,
            rotary_dims: head_dim,
            theta: top.rope_theta()?,
            gated: false,
        },
        layers: draft_layers(&sliding, window, "sliding_window", causal(&s)?)?,
        block: s.of("block_size").count("block_size", MAX_CONTEXT)?,
        mask_token: mask_token(&s)?,
        target_layers: target_layers(&s, count, target_depth)?,
        target_depth,
    };
    config.validated()
}

/// A draft says so in `architectures`, or has the object that only drafts have.
fn recognise(s: &Settings<'_>) -> Result<(), DflashFault> {
    let named = s.top.get("architectures").and_then(Value::as_array);
    let mut named = named.into_iter().flatten().filter_map(Value::as_str);
    if s.nested.is_some() || named.clone().any(|name| name.starts_with("DFlash")) {
        return Ok(());
    }
    let kind = s.top.get("model_type").and_then(Value::as_str);
    let found = named.next().or(kind).unwrap_or("unknown");
    Err(DflashFault::NotDflash { found: found.chars().take(80).collect() })
}

/// Settings under which a draft computes something else.
fn refuse_others(s: &Settings<'_>) -> Result<(), DflashFault> {
    if let Some(key) = DFLASH2.into_iter().find(|key| s.get(key).is_some()) {
        return Err(DflashFault::Dflash2 { found: key.to_owned() });
    }
    let refuse = |key: &str, value: &Value, rule| {
        let value = value.to_string().chars().take(80).collect();
        Err(DflashFault::Unsupported { key: key.to_owned(), value, rule })
    };
    for (key, rule) in [
        ("input_embedding_scale", "embeddings are taken as they are"),
        ("output_multiplier", "logits are taken as they are"),
    ] {
        if let Some(value) = s.get(key).filter(|v| v.as_f64() != Some(1.0)) {
            return refuse(key, value, rule);
        }
    }
    let key = "final_logit_softcapping";
    if let Some(value) = s.get(key) {
        return refuse(key, value, "logits are taken as they are");
    }
    let key = "partial_rotary_factor";
    if let Some(value) = s.top.get(key).filter(|v| v.as_f64() != Some(1.0)) {
        return refuse(key, value, "all of a head is rotated");
    }
    let key = "hidden_act";
    if let Some(value) = s.top.get(key).filter(|v| v.as_str() != Some("silu")) {
        return refuse(key, value, "the activation is silu");
    }
    for object in ["rope_parameters", "rope_scaling"] {
        let Some(rope) = s.top.object(object) else { continue };
        let kinds = ["rope_type", "type"].map(|key| rope.get(key));
        let plain = |v: &&Value| !matches!(v.as_str(), Some("default" | "mrope"));
        if let Some(value) = kinds.into_iter().flatten().find(plain) {
            return refuse(object, value, "positions are rotated without scaling");
        }
    }
    Ok(())
}

/// Which layers have a window. Without a list it is those from `max_window_layers` on;
/// `use_sliding_window: false` takes the windows away, whatever is listed.
fn sliding(s: &Settings<'_>, count: usize) -> Result<Vec<bool>, ModelFault> {
    let used = s.of("use_sliding_window").bool_or_none("use_sliding_window")?;
    let key = "layer_types";
    match (used, s.get(key)) {
        (Some(false), _) | (None, None) => Ok(vec![false; count]),
        (_, Some(types)) => {
            let rule = "must be a list with one entry per layer";
            let list = types.as_array().filter(|list| list.len() == count);
            let list = list.ok_or_else(|| HfSettings::bad(key, types, rule))?;
            let slides = |kind: &Value| match kind.as_str() {
                Some("sliding_attention") => Ok(true),
                Some("full_attention") => Ok(false),
                _ => Err(HfSettings::bad(key, kind, "must be full or sliding attention")),
            };
            list.iter().map(slides).collect()
        }
        (Some(true), None) => {
            let first = s.top.get("max_window_layers");
            let first = first.ok_or_else(|| ModelFault::MissingSetting(key.to_owned()))?;
            let rule = "must be a whole number";
            let bad = || HfSettings::bad("max_window_layers", first, rule);
            let first = first.as_u64().ok_or_else(bad)?;
            Ok((0..count).map(|i| i as u64 >= first).collect())
        }
    }
}

/// The override for all layers, in either spelling.
fn causal(s: &Settings<'_>) -> Result<Option<bool>, ModelFault> {
    let own = s.nested.map(|n| n.bool_or_none("causal")).transpose()?.flatten();
    match own {
        Some(causal) => Ok(Some(causal)),
        None => s.of("is_causal").bool_or_none("is_causal"),
    }
}

fn mask_token(s: &Settings<'_>) -> Result<u32, ModelFault> {
    let key = "mask_token_id";
    let value = s.get(key).ok_or_else(|| ModelFault::MissingSetting(key.to_owned()))?;
    let id = value.as_u64().filter(|&id| id < MAX_VOCAB).and_then(|id| u32::try_from(id).ok());
    id.ok_or_else(|| HfSettings::bad(key, value, "must be the id of a token"))
}

/// Layers from 0, as listed or, in configs of old, left to the rule.
fn target_layers(
    s: &Settings<'_>,
    count: usize,
    depth: Option<usize>,
) -> Result<Vec<usize>, ModelFault> {
    let key = "target_layer_ids";
    let Some(ids) = s.get(key) else {
        let depth = depth.ok_or_else(|| ModelFault::MissingSetting(key.to_owned()))?;
        return even_layers(count, depth);
    };
    let rule = "must be a list of layers of the target";
    let list = ids.as_array().ok_or_else(|| HfSettings::bad(key, ids, rule))?;
    if list.len() as u64 > MAX_LAYERS {
        let rule = "more layers than any target has";
        return Err(bad(key, format!("{} entries", list.len()), rule));
    }
    let layer = |id: &Value| {
        let n = id.as_u64().filter(|&n| n < MAX_LAYERS);
        n.map(|n| n as usize).ok_or_else(|| HfSettings::bad(key, id, rule))
    };
    list.iter().map(layer).collect()
}
