//! What a model is made of, independent of the file it came from.

use super::ModelFault;
use crate::kernel::HeadMap;

/// Largest values this engine accepts, far past any model, so that products of two
/// settings fit in a `usize`.
pub(crate) const MAX_WIDTH: u64 = 1 << 20;
pub(crate) const MAX_LAYERS: u64 = 1 << 12;
pub(crate) const MAX_VOCAB: u64 = 1 << 24;
pub(crate) const MAX_CONTEXT: u64 = 1 << 28;
pub(crate) const MAX_HEADS: u64 = 1 << 12;
pub(crate) const MAX_HEAD_DIM: u64 = 1 << 12;

/// Softmax attention of a model; the same in all its attention layers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionConfig {
    /// Query heads.
    pub heads: usize,
    /// Key-value heads; divides `heads`.
    pub kv_heads: usize,
    /// Values per head.
    pub head_dim: usize,
    /// Leading values of a head that are rotated; even.
    pub rotary_dims: usize,
    /// Base of the rotary frequencies.
    pub theta: f64,
    /// The query projection carries a sigmoid gate for the output.
    pub gated: bool,
}

impl AttentionConfig {
    /// Checks the relations between the settings.
    ///
    /// # Errors
    /// `BadSetting` naming the first setting that breaks a rule.
    pub fn validate(&self) -> Result<(), ModelFault> {
        if self.kv_heads == 0 || !self.heads.is_multiple_of(self.kv_heads) {
            let rule = "must divide head_count";
            return Err(bad("head_count_kv", self.kv_heads.to_string(), rule));
        }
        let rotary = self.rotary_dims;
        if !rotary.is_multiple_of(2) || rotary > self.head_dim || rotary == 0 {
            let rule = "must be even, positive and at most the head size";
            return Err(bad("rope.dimension_count", rotary.to_string(), rule));
        }
        if !(self.theta.is_finite() && self.theta > 1.0) {
            let rule = "must be a number above 1";
            return Err(bad("rope.freq_base", self.theta.to_string(), rule));
        }
        Ok(())
    }
}

/// Gated delta layers of a hybrid model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaConfig {
    /// Query and key heads.
    pub key_heads: usize,
    /// Value heads; a multiple of `key_heads`.
    pub value_heads: usize,
    /// Values per key head.
    pub key_dim: usize,
    /// Values per value head.
    pub value_dim: usize,
    /// Taps of the short convolution.
    pub conv_width: usize,
    /// Order of the value heads in the file.
    pub head_map: HeadMap,
}

impl DeltaConfig {
    /// Channels of the convolution: queries, keys and values.
    pub fn channels(&self) -> usize {
        2 * self.key_heads * self.key_dim + self.value_width()
    }

    /// Values of all value heads.
    pub fn value_width(&self) -> usize {
        self.value_heads * self.value_dim
    }
}

/// What mixes tokens in a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerKind {
    /// Softmax attention over the KV cache.
    Attention,
    /// Gated delta rule over a recurrent state.
    Delta,
}

/// A decoder's shape.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// Architecture, by its GGUF name.
    pub architecture: &'static str,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Width of the feed-forward layer.
    pub ffn: usize,
    /// Vocabulary size.
    pub vocab: usize,
    /// Longest context the model was made for, in tokens.
    pub context_length: usize,
    /// Added under the root of every RMS norm.
    pub eps: f32,
    /// Layers, bottom up.
    pub layers: Vec<LayerKind>,
    /// Softmax attention.
    pub attention: AttentionConfig,
    /// Delta layers, if there are any.
    pub delta: Option<DeltaConfig>,
}

/// A setting that breaks a rule.
pub(crate) fn bad(key: &str, value: String, rule: &'static str) -> ModelFault {
    ModelFault::BadSetting { key: key.to_owned(), value, rule }
}

/// What is added under the root of the norms must be a small positive number.
pub(crate) fn valid_eps(eps: f32) -> Result<(), ModelFault> {
    if eps.is_finite() && eps > 0.0 && eps < 1.0 {
        return Ok(());
    }
    Err(bad("layer_norm_rms_epsilon", eps.to_string(), "must lie in (0, 1)"))
}

/// Bounds a count read from a file, so that no product of two overflows.
pub(crate) fn bounded(key: &str, value: u64, max: u64) -> Result<usize, ModelFault> {
    if value == 0 || value > max {
        let rule = "out of the range of any model this engine can run";
        return Err(bad(key, value.to_string(), rule));
    }
    Ok(value as usize)
}

impl ModelConfig {
    /// Checks the relations between the settings.
    ///
    /// # Errors
    /// `BadSetting` naming the first setting that breaks a rule.
    pub fn validate(&self) -> Result<(), ModelFault> {
        self.attention.validate()?;
        valid_eps(self.eps)?;
        if let Some(d) = &self.delta {
            if d.key_heads == 0 || !d.value_heads.is_multiple_of(d.key_heads) {
                let rule = "must be a multiple of the key heads";
                return Err(bad("ssm.time_step_rank", d.value_heads.to_string(), rule));
            }
            if d.conv_width < 2 {
                let rule = "must be at least 2";
                return Err(bad("ssm.conv_kernel", d.conv_width.to_string(), rule));
            }
        } else if self.layers.contains(&LayerKind::Delta) {
            let rule = "needs the ssm settings";
            return Err(bad("full_attention_interval", "set".into(), rule));
        }
        Ok(())
    }

    /// Layers of one kind.
    pub fn count(&self, kind: LayerKind) -> usize {
        self.layers.iter().filter(|&&k| k == kind).count()
    }
}
