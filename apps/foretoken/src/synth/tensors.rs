//! The tensors of a shape: names, dimensions, types, and how they are filled.
//!
//! Matrices are scaled so that a normalised input gives values near 1: the deviation of an
//! element is 1 / sqrt(inputs). The residual stream then grows as the root of the layers
//! below, and what the embedding put there is soon the smallest part: were it not, a head
//! tied to it would say every token again. Embedding and head are larger, so that logits
//! differ by several units, as those of trained models do.

use foretoken::tensor::DType;

use super::fill::Rule;
use super::quant::{Part, Quant};
use super::shape::{Family, Shape};

/// Deviation of the logits.
const SPREAD: f64 = 3.0;

/// A tensor to be made.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Made {
    /// Name in the file.
    pub(crate) name: String,
    /// Dimensions, outermost first.
    pub(crate) dims: Vec<usize>,
    /// Type.
    pub(crate) dtype: DType,
    /// Values.
    pub(crate) rule: Rule,
}

struct List {
    shape: Shape,
    quant: Quant,
    made: Vec<Made>,
}

/// All tensors, in the order of the file.
pub(crate) fn tensors(shape: Shape, quant: Quant) -> Vec<Made> {
    let mut list = List { shape, quant, made: Vec::new() };
    let draft = matches!(shape.family, Family::Draft { .. });
    if draft {
        let read = shape.target_layers().len() * shape.hidden;
        list.matrix("fc.weight", Part::Other, 0, [shape.hidden, read], 1.0);
        list.norm("enc.output_norm.weight", shape.hidden);
    } else {
        let (part, rows) = (Part::Embedding { tied: shape.tied }, shape.vocab);
        list.matrix("token_embd.weight", part, 0, [rows, shape.hidden], SPREAD);
    }
    (0..shape.layers).for_each(|i| list.layer(i));
    list.norm("output_norm.weight", shape.hidden);
    if !draft && !shape.tied {
        list.matrix("output.weight", Part::Head, 0, [shape.vocab, shape.hidden], SPREAD);
    }
    list.made
}

impl List {
    /// A matrix whose elements have the deviation `gain` / sqrt(inputs).
    fn matrix(&mut self, name: &str, part: Part, i: usize, dims: [usize; 2], gain: f64) {
        let dtype = self.quant.dtype(part, i, self.shape.layers);
        let rule = Rule::Matrix { deviation: (gain / (dims[1] as f64).sqrt()) as f32 };
        self.made.push(Made { name: name.to_owned(), dims: dims.to_vec(), dtype, rule });
    }

    fn small(&mut self, name: &str, dims: &[usize], rule: Rule) {
        let (name, dims) = (name.to_owned(), dims.to_vec());
        self.made.push(Made { name, dims, dtype: DType::F32, rule });
    }

    fn norm(&mut self, name: &str, width: usize) {
        self.small(name, &[width], Rule::Norm);
    }

    fn layer(&mut self, i: usize) {
        let Shape { hidden, ffn, .. } = self.shape;
        let name = |part: &str| format!("blk.{i}.{part}");
        self.norm(&name("attn_norm.weight"), hidden);
        match self.shape.family {
            Family::Hybrid { key_heads, value_heads } if !self.shape.attends(i) => {
                self.delta(i, key_heads, value_heads);
            }
            _ => self.attention(i),
        }
        let ffn_norm = match self.shape.family {
            Family::Hybrid { .. } => "post_attention_norm.weight",
            Family::Dense | Family::Draft { .. } => "ffn_norm.weight",
        };
        self.norm(&name(ffn_norm), hidden);
        self.matrix(&name("ffn_gate.weight"), Part::Other, i, [ffn, hidden], 1.0);
        self.matrix(&name("ffn_up.weight"), Part::Other, i, [ffn, hidden], 1.0);
        self.matrix(&name("ffn_down.weight"), Part::Down, i, [hidden, ffn], 1.0);
    }

    fn attention(&mut self, i: usize) {
        let Shape { hidden, heads, kv_heads, head_dim, .. } = self.shape;
        let name = |part: &str| format!("blk.{i}.{part}");
        let gated = matches!(self.shape.family, Family::Hybrid { .. });
        let (out, kv) = (heads * head_dim, kv_heads * head_dim);
        let q = if gated { 2 * out } else { out };
        self.matrix(&name("attn_q.weight"), Part::Other, i, [q, hidden], 1.0);
        self.matrix(&name("attn_k.weight"), Part::Other, i, [kv, hidden], 1.0);
        self.matrix(&name("attn_v.weight"), Part::Values, i, [kv, hidden], 1.0);
        self.norm(&name("attn_q_norm.weight"), head_dim);
        self.norm(&name("attn_k_norm.weight"), head_dim);
        self.matrix(&name("attn_output.weight"), Part::Other, i, [hidden, out], 1.0);
    }

    fn delta(&mut self, i: usize, key_heads: usize, value_heads: usize) {
        let hidden = self.shape.hidden;
        let name = |part: &str| format!("blk.{i}.{part}");
        let (keys, values) = (key_heads * Shape::STATE, value_heads * Shape::STATE);
        let channels = 2 * keys + values;
        self.matrix(&name("attn_qkv.weight"), Part::Qkv, i, [channels, hidden], 1.0);
        self.matrix(&name("attn_gate.weight"), Part::Other, i, [values, hidden], 1.0);
        self.matrix(&name("ssm_alpha.weight"), Part::Other, i, [value_heads, hidden], 1.0);
        self.matrix(&name("ssm_beta.weight"), Part::Other, i, [value_heads, hidden], 1.0);
        self.small(&name("ssm_conv1d.weight"), &[channels, Shape::TAPS], Rule::Taps);
        self.small(&name("ssm_a"), &[value_heads], Rule::Decay);
        self.small(&name("ssm_dt.bias"), &[value_heads], Rule::StepBias);
        self.norm(&name("ssm_norm.weight"), Shape::STATE);
        self.matrix(&name("ssm_out.weight"), Part::Other, i, [hidden, values], 1.0);
    }
}
