//! Model-level operations: the closed list a driver implements.
//!
//! Each operation is a struct of typed tensors with its semantics in prose. They
//! are few and coarse on purpose: a driver may fuse them, it never splits what one
//! of them means. The list is extended here, in one place, when a model needs more.
//!
//! May depend on `tensor`, on the handle types of `device` and, for what sampling means, on
//! `sample`.

mod attention;
mod control;
mod delta;
mod feature;
mod key;
mod op;
mod pointwise;
mod sample;
mod tree;

pub use attention::{
    Attention, AttentionMask, HeadPart, KvAppend, KvPair, OutputGate, QkNormRope, RopeAngles,
};
pub use control::{Control, Regime, RowSet};
pub use delta::{GatedDelta, GatedNorm, HeadMap, ShortConv};
pub use feature::{FeatureCommit, FeatureLoad, FeatureStore, Stamp};
pub use key::KernelKey;
pub use op::Op;
pub use pointwise::{Embed, Linear, LinearPart, RmsNorm, SwiGlu, TopK};
pub use sample::{Sample, SampleParams};
pub use tree::{
    Advance, ConvCommit, Cursor, DeltaCommit, DraftBlock, DraftContext, KvCommit, Path, TreeBuild,
    TreeLimits, TreeRows, TreeWalk,
};
