//! Model-level operations: the closed list a driver implements.
//!
//! Each operation is a struct of typed tensors with its semantics in prose. They
//! are few and coarse on purpose: a driver may fuse them, it never splits what one
//! of them means. The list is extended here, in one place, when a model needs more.
//!
//! May depend on `tensor` and on the handle types of `device`.

mod attention;
mod control;
mod delta;
mod key;
mod op;
mod pointwise;

pub use attention::{Attention, KvAppend, KvPair, OutputGate, QkNormRope, RopeAngles};
pub use control::{Control, Regime, RowSet};
pub use delta::{GatedDelta, GatedNorm, HeadMap, ShortConv};
pub use key::KernelKey;
pub use op::Op;
pub use pointwise::{Embed, Linear, LinearPart, RmsNorm, SwiGlu, TopK};
