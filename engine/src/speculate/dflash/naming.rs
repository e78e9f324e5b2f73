//! What the tensors of a draft are called.
//!
//! Canonical are llama.cpp's names: `fc`, `enc.output_norm` (the norm after `fc`),
//! `output_norm`, and those of `qwen3` in the layers. Norms multiply as they are in all
//! files, also where the target's are stored around zero.

use std::collections::HashSet;

use crate::format::TensorSource;
use crate::model::{Change, TensorNaming, hf_attention_part, split_block};

/// Prefixes of tensor names in checkpoints.
const PREFIXES: [&str; 2] = ["", "model."];

/// Names by what the file holds.
pub(super) struct DflashNaming {
    present: HashSet<String>,
    candidates: fn(&str) -> Vec<String>,
}

impl DflashNaming {
    pub(super) fn gguf(source: &dyn TensorSource) -> Self {
        Self::new(source, gguf_names)
    }

    pub(super) fn safetensors(source: &dyn TensorSource) -> Self {
        Self::new(source, hf_names)
    }

    fn new(source: &dyn TensorSource, candidates: fn(&str) -> Vec<String>) -> Self {
        let present = source.tensors().iter().map(|t| t.name().to_owned()).collect();
        Self { present, candidates }
    }
}

impl TensorNaming for DflashNaming {
    fn resolve(&self, canonical: &str) -> Option<(String, Change)> {
        let mut names = (self.candidates)(canonical).into_iter();
        names.find(|name| self.present.contains(name)).map(|name| (name, Change::None))
    }
}

fn gguf_names(canonical: &str) -> Vec<String> {
    let mut names = vec![canonical.to_owned()];
    if let Some(rest) = canonical.strip_prefix("fc.") {
        names.extend([format!("dflash.fc.{rest}"), format!("dflash_fc.{rest}")]);
    }
    if let Some(rest) = canonical.strip_prefix("enc.output_norm.") {
        let norms = ["dflash.hidden_norm", "dflash_hidden_norm"];
        names.extend(norms.map(|norm| format!("{norm}.{rest}")));
    }
    if let Some((layer, "ffn_norm.weight")) = split_block(canonical) {
        names.push(format!("blk.{layer}.post_attention_norm.weight"));
    }
    names
}

fn hf_names(canonical: &str) -> Vec<String> {
    let inner = match canonical {
        "fc.weight" => "fc.weight".to_owned(),
        "enc.output_norm.weight" => "hidden_norm.weight".to_owned(),
        "output_norm.weight" => "norm.weight".to_owned(),
        "token_embd.weight" => "embed_tokens.weight".to_owned(),
        "output.weight" => return vec!["lm_head.weight".to_owned()],
        _ => {
            let Some((layer, part)) = split_block(canonical) else { return Vec::new() };
            let part = match part {
                "ffn_norm.weight" => Some("post_attention_layernorm.weight"),
                part => hf_attention_part(part),
            };
            let Some(part) = part else { return Vec::new() };
            format!("layers.{layer}.{part}")
        }
    };
    PREFIXES.iter().map(|prefix| format!("{prefix}{inner}")).collect()
}
