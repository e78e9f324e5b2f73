//! The closed list.

use super::{
    Attention, Embed, GatedDelta, GatedNorm, KvAppend, Linear, OutputGate, QkNormRope, RmsNorm,
    RopeAngles, ShortConv, SwiGlu, TopK,
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
}
