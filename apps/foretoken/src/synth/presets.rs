//! The shapes that have a name.

use super::quant::Quant;
use super::shape::{Family, Shape};

/// A shape with a name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Preset {
    /// The name.
    pub(crate) name: &'static str,
    /// The quantisation it is mostly used in.
    pub(crate) quant: Quant,
    /// The shape.
    pub(crate) shape: Shape,
}

/// Vocabulary of the Qwen3.5 models.
const VOCAB: usize = 248_320;

/// What the Qwen3.5 models have in common.
const HYBRID: Shape = Shape {
    family: Family::Hybrid { key_heads: 16, value_heads: 16 },
    hidden: 1024,
    ffn: 3584,
    layers: 24,
    heads: 8,
    kv_heads: 2,
    head_dim: 256,
    theta: 1e7,
    vocab: VOCAB,
    tied: true,
    context: 262_144,
};

/// What the drafts have in common.
const DRAFT: Shape = Shape {
    family: Family::Draft { target: 64, reads: 5, window: None },
    hidden: 5120,
    ffn: 17_408,
    layers: 5,
    heads: 32,
    kv_heads: 8,
    head_dim: 128,
    ..HYBRID
};

const fn hybrid(value_heads: usize) -> Family {
    Family::Hybrid { key_heads: 16, value_heads }
}

const fn draft(target: usize, window: Option<usize>) -> Family {
    Family::Draft { target, reads: 5, window }
}

/// All of them. `dflash-0.8b` has no published model: it is cut to its target's width.
/// `nano` and `dflash-nano` are the models that come with Foretoken.
pub(crate) const PRESETS: [Preset; 12] = [
    Preset {
        name: "qwen3.5-27b",
        quant: Quant::Q4_K_M,
        shape: Shape {
            family: hybrid(48),
            hidden: 5120,
            ffn: 17_408,
            layers: 64,
            heads: 24,
            kv_heads: 4,
            tied: false,
            ..HYBRID
        },
    },
    Preset {
        name: "qwen3.5-9b",
        quant: Quant::Q4_K_M,
        shape: Shape { hidden: 4096, ffn: 12_288, tied: false, ..MIDDLE },
    },
    Preset { name: "qwen3.5-4b", quant: Quant::Q4_K_M, shape: MIDDLE },
    Preset {
        name: "qwen3.5-2b",
        quant: Quant::BF16,
        shape: Shape { hidden: 2048, ffn: 6144, ..HYBRID },
    },
    Preset { name: "qwen3.5-0.8b", quant: Quant::BF16, shape: HYBRID },
    Preset { name: "dflash-27b", quant: Quant::Q8_0, shape: DRAFT },
    Preset {
        name: "dflash-27b-swa",
        quant: Quant::Q8_0,
        shape: Shape { family: draft(64, Some(2048)), ..DRAFT },
    },
    Preset {
        name: "dflash-4b",
        quant: Quant::Q8_0,
        shape: Shape { family: draft(32, None), hidden: 2560, ffn: 9728, ..DRAFT },
    },
    Preset {
        name: "dflash-0.8b",
        quant: Quant::Q8_0,
        shape: Shape {
            family: draft(24, None),
            hidden: 1024,
            ffn: 3584,
            heads: 16,
            kv_heads: 4,
            ..DRAFT
        },
    },
    Preset {
        name: "scorer-0.6b",
        quant: Quant::BF16,
        shape: Shape {
            family: Family::Dense,
            hidden: 1024,
            ffn: 3072,
            layers: 28,
            heads: 16,
            kv_heads: 8,
            head_dim: 128,
            theta: 1e6,
            vocab: 151_936,
            tied: true,
            context: 40_960,
        },
    },
    Preset { name: "nano", quant: Quant::Q4_K_M, shape: NANO },
    Preset {
        name: "dflash-nano",
        quant: Quant::Q8_0,
        shape: Shape {
            family: Family::Draft { target: 8, reads: 3, window: None },
            layers: 2,
            heads: 4,
            kv_heads: 2,
            head_dim: 128,
            ..NANO
        },
    },
];

/// The 4B model, whose delta layers the 9B model has as well.
const MIDDLE: Shape = Shape {
    family: hybrid(32),
    hidden: 2560,
    ffn: 9216,
    layers: 32,
    heads: 16,
    kv_heads: 4,
    ..HYBRID
};

const NANO: Shape = Shape {
    family: Family::Hybrid { key_heads: 2, value_heads: 4 },
    hidden: 512,
    ffn: 1536,
    layers: 8,
    heads: 4,
    kv_heads: 1,
    vocab: 8192,
    context: 32_768,
    ..HYBRID
};

/// The preset of that name.
pub(crate) fn preset(name: &str) -> Option<Preset> {
    PRESETS.into_iter().find(|preset| preset.name == name)
}
