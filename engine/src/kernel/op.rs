//! The closed list.

use super::{
    Advance, Attention, ConvCommit, DeltaCommit, DraftBlock, DraftContext, Embed, FeatureCommit,
    FeatureLoad, FeatureStore, GatedDelta, GatedNorm, KvAppend, KvCommit, Linear, OutputGate,
    QkNormRope, RmsNorm, RopeAngles, Sample, ShortConv, Stamp, SwiGlu, TopK, TreeBuild, TreeWalk,
};

macro_rules! ops {
    ($($variant:ident => $name:literal,)*) => {
        /// One model-level operation with its operands.
        #[derive(Clone, Debug)]
        #[allow(missing_docs)]
        #[non_exhaustive]
        pub enum Op { $($variant($variant),)* }

        impl Op {
            /// The operation's name in logs and errors.
            pub fn name(&self) -> &'static str {
                match self { $(Self::$variant(_) => $name,)* }
            }
        }

        $(impl From<$variant> for Op {
            fn from(op: $variant) -> Self { Self::$variant(op) }
        })*
    };
}

ops! {
    Embed => "embed",
    RmsNorm => "rms_norm",
    Linear => "linear",
    RopeAngles => "rope_angles",
    QkNormRope => "qk_norm_rope",
    KvAppend => "kv_append",
    Attention => "attention",
    OutputGate => "output_gate",
    ShortConv => "short_conv",
    GatedDelta => "gated_delta",
    GatedNorm => "gated_norm",
    SwiGlu => "swiglu",
    TopK => "top_k",
    Sample => "sample",
    FeatureStore => "feature_store",
    FeatureCommit => "feature_commit",
    FeatureLoad => "feature_load",
    DraftContext => "draft_context",
    DraftBlock => "draft_block",
    TreeBuild => "tree_build",
    TreeWalk => "tree_walk",
    KvCommit => "kv_commit",
    ConvCommit => "conv_commit",
    DeltaCommit => "delta_commit",
    Advance => "advance",
    Stamp => "stamp",
}
