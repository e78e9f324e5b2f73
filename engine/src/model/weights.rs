//! The tensors a model needs, planned before and loaded in one pass.

use std::collections::HashMap;
use std::sync::Arc;

use super::provider::Provider;
use super::{LayerKind, ModelConfig, ModelFault};
use crate::device::{Activations, Device, Stream, Weight, WeightRole, WeightSpec};
use crate::error::{Error, Result};
use crate::tensor::{DType, Shape, Tensor};

/// How a tensor is taken in.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Form {
    /// A matrix in its stored type.
    Matrix(WeightRole),
    /// Small, decoded to F32.
    Vector,
}

/// One tensor the model needs.
#[derive(Clone, Debug)]
struct Need {
    name: String,
    dims: Vec<usize>,
    form: Form,
}

/// Everything that will be loaded, checked against the file, with its sizes.
pub struct WeightPlan {
    needs: Vec<(Need, Option<WeightSpec>)>,
    tied: bool,
    bytes: u64,
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
        let mut needs = Vec::new();
        let mut bytes = 0u64;
        for need in inventory(config) {
            let spec = match need.form {
                Form::Matrix(role) => {
                    let (rows, cols) = (need.dims[0], need.dims[1]);
                    let source = source_name(&need, tied);
                    let host = provider.matrix(source, rows, cols)?;
                    let spec = WeightSpec { dtype: host.dtype, rows, cols, role, activations };
                    let refused = |e| refuse(provider, source, e);
                    bytes = bytes.saturating_add(device.weight_bytes(&spec).map_err(refused)?);
                    Some(spec)
                }
                Form::Vector => {
                    provider.vector(&need.name, &need.dims)?;
                    let count: usize = need.dims.iter().product();
                    bytes = bytes.saturating_add(count as u64 * 4);
                    None
                }
            };
            needs.push((need, spec));
        }
        Ok(Self { needs, tied, bytes })
    }

    /// Bytes of device memory all weights will take.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether the head is the embedding table.
    pub fn tied(&self) -> bool {
        self.tied
    }

    /// Loads everything. `progress` is told done and total after each tensor.
    pub fn load(
        self,
        config: &ModelConfig,
        provider: &Provider,
        device: &Arc<dyn Device>,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<LoadedWeights> {
        let mut stream = device.stream()?;
        let mut loaded = Loaded { matrices: HashMap::new(), vectors: HashMap::new() };
        let total = self.needs.len();
        let mut bytes = 0;
        for (done, (need, spec)) in self.needs.into_iter().enumerate() {
            match spec {
                Some(spec) => {
                    let source = source_name(&need, self.tied);
                    let host = provider.matrix(source, spec.rows, spec.cols)?;
                    let weight = device.load_weight(&host, &spec);
                    let weight = weight.map_err(|e| refuse(provider, source, e))?;
                    bytes += weight.bytes();
                    loaded.matrices.insert(need.name, weight);
                }
                None => {
                    let values = provider.vector(&need.name, &need.dims)?;
                    let tensor = upload(&**device, &mut *stream, &need, &values)?;
                    bytes += tensor.bytes() as u64;
                    loaded.vectors.insert(need.name, tensor);
                }
            }
            progress(done + 1, total);
        }
        stream.synchronize()?;
        loaded.assemble(config, provider, bytes)
    }
}

fn source_name(need: &Need, tied: bool) -> &str {
    if tied && need.name == HEAD { EMBEDDING } else { &need.name }
}

fn refuse(provider: &Provider, tensor: &str, error: Error) -> Error {
    match error {
        Error::Device(fault) => {
            provider.fault(ModelFault::WeightRefused { tensor: tensor.to_owned(), fault })
        }
        other => other,
    }
}

fn upload(
    device: &dyn Device,
    stream: &mut dyn Stream,
    need: &Need,
    values: &[f32],
) -> Result<Tensor> {
    let bytes: &[u8] = bytemuck::cast_slice(values);
    let buffer = device.allocate(bytes.len(), &need.name)?;
    stream.write(&buffer, 0, bytes)?;
    let shape = Shape::new(&need.dims).unwrap_or(Shape::vector(values.len()));
    Ok(Tensor::new(&buffer, 0, DType::F32, shape)?)
}

/// All tensors of a model, in load order.
fn inventory(config: &ModelConfig) -> Vec<Need> {
    let mut out = Vec::new();
    let mut add = |name: String, dims: &[usize], form| {
        out.push(Need { name, dims: dims.to_vec(), form });
    };
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
            _ => {
                let a = &config.attention;
                let q = a.heads * a.head_dim * if a.gated { 2 } else { 1 };
                let kv = a.kv_heads * a.head_dim;
                add(name("attn_q.weight"), &[q, d], matrix());
                add(name("attn_k.weight"), &[kv, d], matrix());
                add(name("attn_v.weight"), &[kv, d], matrix());
                add(name("attn_q_norm.weight"), &[a.head_dim], Form::Vector);
                add(name("attn_k_norm.weight"), &[a.head_dim], Form::Vector);
                add(name("attn_output.weight"), &[d, a.heads * a.head_dim], matrix());
            }
        }
        add(name(ffn_norm_name(config)), &[d], Form::Vector);
        add(name("ffn_gate.weight"), &[f, d], matrix());
        add(name("ffn_up.weight"), &[f, d], matrix());
        add(name("ffn_down.weight"), &[d, f], matrix());
    }
    add(HEAD.into(), &[config.vocab, d], matrix());
    out
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

struct Loaded {
    matrices: HashMap<String, Weight>,
    vectors: HashMap<String, Tensor>,
}

impl Loaded {
    fn matrix(&mut self, provider: &Provider, name: &str) -> Result<Weight> {
        let missing = || provider.fault(ModelFault::MissingTensor(name.to_owned()));
        self.matrices.remove(name).ok_or_else(missing)
    }

    fn vector(&mut self, provider: &Provider, name: &str) -> Result<Tensor> {
        let missing = || provider.fault(ModelFault::MissingTensor(name.to_owned()));
        self.vectors.remove(name).ok_or_else(missing)
    }

    fn assemble(mut self, config: &ModelConfig, p: &Provider, bytes: u64) -> Result<LoadedWeights> {
        let mut layers = Vec::with_capacity(config.layers.len());
        for (i, kind) in config.layers.iter().enumerate() {
            let name = |part: &str| format!("blk.{i}.{part}");
            let mixer = match kind {
                LayerKind::Delta => Mixer::Delta {
                    qkv: self.matrix(p, &name("attn_qkv.weight"))?,
                    z: self.matrix(p, &name("attn_gate.weight"))?,
                    alpha: self.matrix(p, &name("ssm_alpha.weight"))?,
                    beta: self.matrix(p, &name("ssm_beta.weight"))?,
                    conv: self.vector(p, &name("ssm_conv1d.weight"))?,
                    a: self.vector(p, &name("ssm_a"))?,
                    dt_bias: self.vector(p, &name("ssm_dt.bias"))?,
                    norm: self.vector(p, &name("ssm_norm.weight"))?,
                    out: self.matrix(p, &name("ssm_out.weight"))?,
                },
                LayerKind::Attention => Mixer::Attention {
                    q: self.matrix(p, &name("attn_q.weight"))?,
                    k: self.matrix(p, &name("attn_k.weight"))?,
                    v: self.matrix(p, &name("attn_v.weight"))?,
                    q_norm: self.vector(p, &name("attn_q_norm.weight"))?,
                    k_norm: self.vector(p, &name("attn_k_norm.weight"))?,
                    out: self.matrix(p, &name("attn_output.weight"))?,
                },
            };
            layers.push(LayerWeights {
                attn_norm: self.vector(p, &name("attn_norm.weight"))?,
                mixer,
                ffn_norm: self.vector(p, &name(ffn_norm_name(config)))?,
                gate: self.matrix(p, &name("ffn_gate.weight"))?,
                up: self.matrix(p, &name("ffn_up.weight"))?,
                down: self.matrix(p, &name("ffn_down.weight"))?,
            });
        }
        Ok(LoadedWeights {
            embedding: self.matrix(p, EMBEDDING)?,
            layers,
            output_norm: self.vector(p, "output_norm.weight")?,
            head: self.matrix(p, HEAD)?,
            bytes,
        })
    }
}
