//! The weights of a decoder.

use std::sync::Arc;

use super::provider::Provider;
use super::tensors::{Form, Loaded, Need, TensorPlan};
use super::{AttentionConfig, LayerKind, ModelConfig};
use crate::device::{Activations, Device, Rehearsal, Weight, WeightRole};
use crate::error::Result;
use crate::tensor::Tensor;

/// Everything that will be loaded, checked against the file, with its sizes.
pub struct WeightPlan {
    tensors: TensorPlan,
    tied: bool,
}

const EMBEDDING: &str = "token_embd.weight";
const HEAD: &str = "output.weight";

impl WeightPlan {
    /// Checks every tensor's presence, shape and type, and asks the device what each
    /// will take. Nothing is loaded.
    ///
    /// # Errors
    /// `MissingTensor`, `WrongShape`, `WeightRefused`.
    pub fn new(
        config: &ModelConfig,
        provider: &Provider,
        device: &dyn Device,
        activations: Activations,
    ) -> Result<Self> {
        let tied = !provider.has(HEAD);
        let mut needs = inventory(config);
        if let Some(head) = needs.last_mut().filter(|_| tied) {
            head.source = EMBEDDING.to_owned();
        }
        let tensors = TensorPlan::new(needs, provider, device, activations)?;
        Ok(Self { tensors, tied })
    }

    /// Bytes of device memory all weights will take.
    pub fn bytes(&self) -> u64 {
        self.tensors.bytes()
    }

    /// Whether the head is the embedding table.
    pub fn tied(&self) -> bool {
        self.tied
    }

    /// The weights, without memory: on a stand-in for the device that this was made for.
    ///
    /// # Errors
    /// Sizes that overflow.
    pub fn rehearse(
        &self,
        config: &ModelConfig,
        provider: &Provider,
        device: &Rehearsal,
    ) -> Result<LoadedWeights> {
        assemble(self.tensors.rehearse(device)?, config, provider)
    }

    /// Loads everything. `progress` is told done and total after each tensor.
    pub fn load(
        self,
        config: &ModelConfig,
        provider: &Provider,
        device: &Arc<dyn Device>,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<LoadedWeights> {
        assemble(self.tensors.load(provider, device, progress)?, config, provider)
    }
}

/// What a draft shares with its target: the embedding table and the head, in load order.
pub(crate) fn shared_needs(config: &ModelConfig, provider: &Provider) -> [Need; 2] {
    let dims = [config.vocab, config.hidden];
    let need = |name: &str, role| Need::new(name.to_owned(), &dims, Form::Matrix(role));
    let mut head = need(HEAD, WeightRole::Linear);
    if !provider.has(HEAD) {
        head.source = EMBEDDING.to_owned();
    }
    [need(EMBEDDING, WeightRole::Embedding), head]
}

/// All tensors of a model, in load order.
fn inventory(config: &ModelConfig) -> Vec<Need> {
    let mut out = Vec::new();
    let mut add = |name: String, dims: &[usize], form| out.push(Need::new(name, dims, form));
    let (d, f) = (config.hidden, config.ffn);
    let matrix = || Form::Matrix(WeightRole::Linear);
    add(EMBEDDING.into(), &[config.vocab, d], Form::Matrix(WeightRole::Embedding));
    add("output_norm.weight".into(), &[d], Form::Vector);
    for (i, kind) in config.layers.iter().enumerate() {
        let name = |part: &str| format!("blk.{i}.{part}");
        add(name("attn_norm.weight"), &[d], Form::Vector);
        match (kind, &config.delta) {
            (LayerKind::Delta, Some(c)) => {
                let (channels, value) = (c.channels(), c.value_width());
                add(name("attn_qkv.weight"), &[channels, d], matrix());
                add(name("attn_gate.weight"), &[value, d], matrix());
                add(name("ssm_alpha.weight"), &[c.value_heads, d], matrix());
                add(name("ssm_beta.weight"), &[c.value_heads, d], matrix());
                add(name("ssm_conv1d.weight"), &[channels, c.conv_width], Form::Vector);
                add(name("ssm_a"), &[c.value_heads], Form::Vector);
                add(name("ssm_dt.bias"), &[c.value_heads], Form::Vector);
                add(name("ssm_norm.weight"), &[c.value_dim], Form::Vector);
                add(name("ssm_out.weight"), &[d, value], matrix());
            }
            _ => attention_needs(i, d, &config.attention, &mut add),
        }
        add(name(ffn_norm_name(config)), &[d], Form::Vector);
        add(name("ffn_gate.weight"), &[f, d], matrix());
        add(name("ffn_up.weight"), &[f, d], matrix());
        add(name("ffn_down.weight"), &[d, f], matrix());
    }
    add(HEAD.into(), &[config.vocab, d], matrix());
    out
}

/// The tensors of layer `i`'s attention over a residual stream of `d` values.
pub(crate) fn attention_needs(
    i: usize,
    d: usize,
    a: &AttentionConfig,
    add: &mut impl FnMut(String, &[usize], Form),
) {
    let name = |part: &str| format!("blk.{i}.{part}");
    let matrix = || Form::Matrix(WeightRole::Linear);
    let q = a.heads * a.head_dim * if a.gated { 2 } else { 1 };
    let kv = a.kv_heads * a.head_dim;
    add(name("attn_q.weight"), &[q, d], matrix());
    add(name("attn_k.weight"), &[kv, d], matrix());
    add(name("attn_v.weight"), &[kv, d], matrix());
    add(name("attn_q_norm.weight"), &[a.head_dim], Form::Vector);
    add(name("attn_k_norm.weight"), &[a.head_dim], Form::Vector);
    add(name("attn_output.weight"), &[d, a.heads * a.head_dim], matrix());
}

/// GGUF names the second norm of a layer by architecture.
fn ffn_norm_name(config: &ModelConfig) -> &'static str {
    if config.delta.is_some() { "post_attention_norm.weight" } else { "ffn_norm.weight" }
}

/// What mixes tokens in a loaded layer. There are a few dozen in a model, so the
/// difference in size between the two costs nothing.
#[allow(clippy::large_enum_variant)]
pub enum Mixer {
    /// Softmax attention.
    Attention {
        /// Query projection (with gates, when the model has them).
        q: Weight,
        /// Key projection.
        k: Weight,
        /// Value projection.
        v: Weight,
        /// `[head_dim]`.
        q_norm: Tensor,
        /// `[head_dim]`.
        k_norm: Tensor,
        /// Output projection.
        out: Weight,
    },
    /// Gated delta rule.
    Delta {
        /// Query, key and value projection.
        qkv: Weight,
        /// Output gate projection.
        z: Weight,
        /// Decay projection.
        alpha: Weight,
        /// Write-strength projection.
        beta: Weight,
        /// `[channels, taps]`.
        conv: Tensor,
        /// `[Hv]`: `-exp(A_log)`.
        a: Tensor,
        /// `[Hv]`.
        dt_bias: Tensor,
        /// `[dv]`.
        norm: Tensor,
        /// Output projection.
        out: Weight,
    },
}

/// A loaded layer.
pub struct LayerWeights {
    /// `[D]`, before the mixer.
    pub attn_norm: Tensor,
    /// The mixer.
    pub mixer: Mixer,
    /// `[D]`, before the feed-forward part.
    pub ffn_norm: Tensor,
    /// `[F, D]`.
    pub gate: Weight,
    /// `[F, D]`.
    pub up: Weight,
    /// `[D, F]`.
    pub down: Weight,
}

/// A loaded model.
pub struct LoadedWeights {
    /// `[V, D]`.
    pub embedding: Weight,
    /// Layers, bottom up.
    pub layers: Vec<LayerWeights>,
    /// `[D]`.
    pub output_norm: Tensor,
    /// `[V, D]`.
    pub head: Weight,
    /// Bytes of device memory taken.
    pub bytes: u64,
}

fn assemble(mut from: Loaded, config: &ModelConfig, p: &Provider) -> Result<LoadedWeights> {
    let mut layers = Vec::with_capacity(config.layers.len());
    for (i, kind) in config.layers.iter().enumerate() {
        let name = |part: &str| format!("blk.{i}.{part}");
        let mixer = match kind {
            LayerKind::Delta => Mixer::Delta {
                qkv: from.matrix(p, &name("attn_qkv.weight"))?,
                z: from.matrix(p, &name("attn_gate.weight"))?,
                alpha: from.matrix(p, &name("ssm_alpha.weight"))?,
                beta: from.matrix(p, &name("ssm_beta.weight"))?,
                conv: from.vector(p, &name("ssm_conv1d.weight"))?,
                a: from.vector(p, &name("ssm_a"))?,
                dt_bias: from.vector(p, &name("ssm_dt.bias"))?,
                norm: from.vector(p, &name("ssm_norm.weight"))?,
                out: from.matrix(p, &name("ssm_out.weight"))?,
            },
            LayerKind::Attention => Mixer::Attention {
                q: from.matrix(p, &name("attn_q.weight"))?,
                k: from.matrix(p, &name("attn_k.weight"))?,
                v: from.matrix(p, &name("attn_v.weight"))?,
                q_norm: from.vector(p, &name("attn_q_norm.weight"))?,
                k_norm: from.vector(p, &name("attn_k_norm.weight"))?,
                out: from.matrix(p, &name("attn_output.weight"))?,
            },
        };
        layers.push(LayerWeights {
            attn_norm: from.vector(p, &name("attn_norm.weight"))?,
            mixer,
            ffn_norm: from.vector(p, &name(ffn_norm_name(config)))?,
            gate: from.matrix(p, &name("ffn_gate.weight"))?,
            up: from.matrix(p, &name("ffn_up.weight"))?,
            down: from.matrix(p, &name("ffn_down.weight"))?,
        });
    }
    Ok(LoadedWeights {
        embedding: from.matrix(p, EMBEDDING)?,
        layers,
        output_norm: from.vector(p, "output_norm.weight")?,
        head: from.matrix(p, HEAD)?,
        bytes: from.bytes(),
    })
}
