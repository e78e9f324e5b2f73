//! Undoes what a converter does to a Hugging Face checkpoint: from GGUF names,
//! norms and value-head order back to a folder of safetensors, and forth again.

use std::collections::BTreeMap;
use std::path::Path;

use foretoken::format::{GgufFile, OpenOptions, TensorSource};
use foretoken::quant;
use serde_json::{Value, json};

/// Tensors in F32 by name, with their shapes (outermost first).
pub(crate) type Tensors = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

/// Heads of the delta layers, as the converter sees them.
#[derive(Clone, Copy)]
pub(crate) struct Heads {
    pub(crate) key: usize,
    pub(crate) value: usize,
    pub(crate) key_dim: usize,
    pub(crate) value_dim: usize,
}

impl Heads {
    /// Where value head `h` of the grouped order lies in the tiled one.
    fn tiled(&self, h: usize) -> usize {
        let per_key = self.value / self.key;
        (h % per_key) * self.key + h / per_key
    }
}

pub(crate) fn read_gguf(path: &Path) -> Tensors {
    let file = GgufFile::open(path, &OpenOptions::default()).unwrap();
    let read = |info: &foretoken::format::TensorInfo| {
        let mut values = vec![0.0; info.shape().elements()];
        quant::decode(info.dtype(), &file.data(info), &mut values).unwrap();
        (info.name().to_owned(), (info.shape().dims().to_vec(), values))
    };
    file.tensors().iter().map(read).collect()
}

/// Moves blocks of `block` values: block `to(h)` of the result is block `h`.
fn permute(values: &[f32], block: usize, count: usize, to: impl Fn(usize) -> usize) -> Vec<f32> {
    let mut out = values.to_vec();
    for h in 0..count {
        let (from, to) = (h * block, to(h) * block);
        out[to..to + block].copy_from_slice(&values[from..from + block]);
    }
    out
}

/// Reorders the value heads of one tensor; `to_tiled` false goes back to grouped.
fn reorder(part: &str, dims: &[usize], values: &[f32], heads: Heads, to_tiled: bool) -> Vec<f32> {
    let mut inverse = vec![0; heads.value];
    (0..heads.value).for_each(|h| inverse[heads.tiled(h)] = h);
    let to = |h: usize| if to_tiled { heads.tiled(h) } else { inverse[h] };
    let cols = dims.get(1).copied().unwrap_or(1);
    match part {
        "attn_gate.weight" => permute(values, heads.value_dim * cols, heads.value, to),
        "ssm_alpha.weight" | "ssm_beta.weight" | "ssm_a" | "ssm_dt.bias" => {
            permute(values, cols, heads.value, to)
        }
        "attn_qkv.weight" | "ssm_conv1d.weight" => {
            let split = 2 * heads.key * heads.key_dim * cols;
            let mut out = values[..split].to_vec();
            out.extend(permute(&values[split..], heads.value_dim * cols, heads.value, to));
            out
        }
        "ssm_out.weight" => values
            .chunks_exact(cols)
            .flat_map(|r| permute(r, heads.value_dim, heads.value, to))
            .collect(),
        _ => values.to_vec(),
    }
}

const NAMES: &[(&str, &str)] = &[
    ("attn_norm.weight", "input_layernorm.weight"),
    ("post_attention_norm.weight", "post_attention_layernorm.weight"),
    ("attn_q.weight", "self_attn.q_proj.weight"),
    ("attn_k.weight", "self_attn.k_proj.weight"),
    ("attn_v.weight", "self_attn.v_proj.weight"),
    ("attn_output.weight", "self_attn.o_proj.weight"),
    ("attn_q_norm.weight", "self_attn.q_norm.weight"),
    ("attn_k_norm.weight", "self_attn.k_norm.weight"),
    ("attn_qkv.weight", "linear_attn.in_proj_qkv.weight"),
    ("attn_gate.weight", "linear_attn.in_proj_z.weight"),
    ("ssm_alpha.weight", "linear_attn.in_proj_a.weight"),
    ("ssm_beta.weight", "linear_attn.in_proj_b.weight"),
    ("ssm_conv1d.weight", "linear_attn.conv1d.weight"),
    ("ssm_dt.bias", "linear_attn.dt_bias"),
    ("ssm_a", "linear_attn.A_log"),
    ("ssm_norm.weight", "linear_attn.norm.weight"),
    ("ssm_out.weight", "linear_attn.out_proj.weight"),
    ("ffn_gate.weight", "mlp.gate_proj.weight"),
    ("ffn_up.weight", "mlp.up_proj.weight"),
    ("ffn_down.weight", "mlp.down_proj.weight"),
];

fn hf_name(name: &str) -> (String, &str) {
    match name {
        "token_embd.weight" => ("model.language_model.embed_tokens.weight".into(), name),
        "output_norm.weight" => ("model.language_model.norm.weight".into(), name),
        _ => {
            let (layer, part) = name.strip_prefix("blk.").unwrap().split_once('.').unwrap();
            let hf = NAMES.iter().find(|(g, _)| *g == part).unwrap().1;
            (format!("model.language_model.layers.{layer}.{hf}"), part)
        }
    }
}

fn around_zero(part: &str) -> bool {
    part.ends_with("norm.weight") && part != "ssm_norm.weight"
}

/// GGUF conventions to a checkpoint's.
pub(crate) fn to_hf(gguf: &Tensors, heads: Heads) -> Tensors {
    let mut out = Tensors::new();
    for (name, (dims, values)) in gguf {
        let (hf, part) = hf_name(name);
        let mut values = reorder(part, dims, values, heads, false);
        let mut dims = dims.clone();
        if around_zero(part) {
            values.iter_mut().for_each(|v| *v -= 1.0);
        }
        if part == "ssm_a" {
            values.iter_mut().for_each(|v| *v = (-*v).ln());
        }
        if part == "ssm_conv1d.weight" {
            dims.insert(1, 1);
        }
        out.insert(hf, (dims, values));
    }
    out
}

/// And forth again: what a converter writes.
pub(crate) fn to_gguf(hf: &Tensors, names: impl Iterator<Item = String>, heads: Heads) -> Tensors {
    let mut out = Tensors::new();
    for name in names {
        let (from, part) = hf_name(&name);
        let (dims, values) = &hf[&from];
        let mut dims = dims.clone();
        if part == "ssm_conv1d.weight" {
            dims.remove(1);
        }
        let mut values = reorder(part, &dims, values, heads, true);
        if around_zero(part) {
            values.iter_mut().for_each(|v| *v += 1.0);
        }
        if part == "ssm_a" {
            values.iter_mut().for_each(|v| *v = -v.exp());
        }
        out.insert(name, (dims, values));
    }
    out
}

/// Writes a checkpoint folder: two shards with an index, settings, vocabulary.
pub(crate) fn write_checkpoint(dir: &Path, tensors: &Tensors, config: &Value, tokenizer: &Value) {
    let half = tensors.len() / 2;
    let mut index = serde_json::Map::new();
    for (number, shard) in [1, 2].into_iter().zip([0..half, half..tensors.len()]) {
        let file = format!("model-{number:05}-of-00002.safetensors");
        let entries: Vec<_> = tensors.iter().skip(shard.start).take(shard.len()).collect();
        let mut header = serde_json::Map::new();
        let mut data = Vec::new();
        for (name, (dims, values)) in entries {
            let start = data.len();
            data.extend(values.iter().flat_map(|v| v.to_le_bytes()));
            let entry = json!({"dtype": "F32", "shape": dims, "data_offsets": [start, data.len()]});
            header.insert(name.clone(), entry);
            index.insert(name.clone(), json!(file));
        }
        let mut text = Value::Object(header).to_string().into_bytes();
        text.resize(text.len().next_multiple_of(8), b' ');
        let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
        bytes.extend(text);
        bytes.extend(data);
        std::fs::write(dir.join(file), bytes).unwrap();
    }
    let write = |name: &str, value: &Value| {
        std::fs::write(dir.join(name), value.to_string()).unwrap();
    };
    write("model.safetensors.index.json", &json!({"metadata": {}, "weight_map": index}));
    write("config.json", config);
    write("tokenizer.json", tokenizer);
}
