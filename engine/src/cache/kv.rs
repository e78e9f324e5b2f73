//! Key and value cache.

use std::fmt;
use std::str::FromStr;

use crate::device::{Device, DeviceFault};
use crate::error::Result;
use crate::kernel::KvPair;
use crate::model::{AttentionConfig, LayerKind, ModelConfig};
use crate::tensor::{DType, Shape, Tensor};

/// Storage type of keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum KvType {
    /// 32-bit floats: the default, since F16 moves log-probabilities of small models
    /// by up to 3e-3.
    #[default]
    F32,
    /// Half precision.
    F16,
    /// bfloat16.
    Bf16,
}

impl KvType {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::F32, Self::F16, Self::Bf16];

    /// The tensor type.
    pub fn dtype(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::F16 => DType::F16,
            Self::Bf16 => DType::BF16,
        }
    }

    /// Lower-case name, as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
        }
    }
}

impl fmt::Display for KvType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for KvType {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|t| t.name() == s);
        found.ok_or_else(|| format!("'{s}' is not a cache type; use f32, f16 or bf16"))
    }
}

/// Keys and values of all attention layers, in one buffer.
pub struct KvCache {
    layers: Vec<KvPair>,
}

impl KvCache {
    /// Bytes for `context` tokens; `None` past what fits in a `usize`.
    pub fn bytes(config: &ModelConfig, context: usize, kind: KvType) -> Option<usize> {
        Self::bytes_of(&config.attention, config.count(LayerKind::Attention), context, kind)
    }

    /// Bytes for `layers` layers of `slots` tokens each.
    pub(crate) fn bytes_of(
        a: &AttentionConfig,
        layers: usize,
        slots: usize,
        kind: KvType,
    ) -> Option<usize> {
        let row = kind.dtype().bytes_for(a.kv_heads * a.head_dim)?;
        row.checked_mul(slots)?.checked_mul(2 * layers)
    }

    /// Reserves the cache.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn reserve(
        config: &ModelConfig,
        device: &dyn Device,
        context: usize,
        kind: KvType,
    ) -> Result<Self> {
        let layers = config.count(LayerKind::Attention);
        Self::reserve_for(&config.attention, layers, device, context, kind)
    }

    /// Reserves `layers` layers of `slots` tokens each.
    pub(crate) fn reserve_for(
        a: &AttentionConfig,
        layers: usize,
        device: &dyn Device,
        slots: usize,
        kind: KvType,
    ) -> Result<Self> {
        let too_large = DeviceFault::BadOperands { op: "kv_cache", detail: "the size overflows" };
        let total = Self::bytes_of(a, layers, slots, kind).ok_or(too_large.clone())?;
        let buffer = device.allocate(total, "KV cache")?;
        let shape = Shape::new(&[slots, a.kv_heads, a.head_dim]).ok_or(too_large)?;
        let mut pairs = Vec::with_capacity(layers);
        let mut offset = 0;
        for _ in 0..layers {
            let k = Tensor::new(&buffer, offset, kind.dtype(), shape)?;
            let v = Tensor::new(&buffer, offset + k.bytes(), kind.dtype(), shape)?;
            offset += k.bytes() + v.bytes();
            pairs.push(KvPair { k, v });
        }
        Ok(Self { layers: pairs })
    }

    /// The attention layers' caches, bottom up.
    pub fn layers(&self) -> &[KvPair] {
        &self.layers
    }
}
