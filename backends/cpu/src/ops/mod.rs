//! One kernel for each operation of the seam (linear operations live in `linear`).
//!
//! `prepare` checks shapes, types, ownership and overlap once; the kernels then
//! only bounds-check. Kernels share work by rows, heads or columns, each worker
//! writing ranges of its own, and no choice made from the row count, the thread
//! count or the instruction set changes the order of any sum.

mod ancestry;
mod attention;
mod bind;
mod columns;
mod conv_commit;
mod delta_commit;
mod delta_rule;
mod delta_slab;
mod delta_walk;
mod embed;
mod feature;
mod gated_delta;
mod gated_norm;
mod kv_append;
mod kv_commit;
mod output_gate;
mod rms_norm;
mod rope;
mod sample;
mod short_conv;
mod stamp;
mod swiglu;
mod top_k;
mod top_k_piece;
mod tree;

use std::sync::Arc;

use foretoken::Result;
use foretoken::kernel::Op;
use foretoken::tensor::DType;

pub(crate) use bind::{Bind, Controls};

use crate::device::Core;
use crate::pool::CpuKernel;

/// Finds and binds the kernel for an operation.
pub(crate) fn prepare(core: &Core, op: &Op) -> Result<Arc<dyn CpuKernel>> {
    let bind = Bind::new(core, op.name());
    Ok(match op {
        Op::Embed(op) => Arc::new(embed::Kernel::new(&bind, op)?),
        Op::RmsNorm(op) => Arc::new(rms_norm::Kernel::new(&bind, op)?),
        Op::Linear(op) => crate::linear::prepare(&bind, op)?,
        Op::RopeAngles(op) => Arc::new(rope::Angles::new(&bind, op)?),
        Op::QkNormRope(op) => Arc::new(rope::Rotate::new(&bind, op)?),
        Op::KvAppend(op) => Arc::new(kv_append::Kernel::new(&bind, op)?),
        Op::Attention(op) => Arc::new(attention::Kernel::new(&bind, op)?),
        Op::OutputGate(op) => Arc::new(output_gate::Kernel::new(&bind, op)?),
        Op::ShortConv(op) => Arc::new(short_conv::Kernel::new(&bind, op)?),
        Op::GatedDelta(op) => Arc::new(gated_delta::Kernel::new(&bind, op)?),
        Op::GatedNorm(op) => Arc::new(gated_norm::Kernel::new(&bind, op)?),
        Op::SwiGlu(op) => Arc::new(swiglu::Kernel::new(&bind, op)?),
        Op::TopK(op) => Arc::new(top_k::Kernel::new(&bind, op)?),
        Op::Sample(op) => Arc::new(sample::Kernel::new(&bind, op)?),
        Op::DraftContext(op) => Arc::new(tree::Context::new(&bind, op)?),
        Op::DraftBlock(op) => Arc::new(tree::Block::new(&bind, op)?),
        Op::TreeBuild(op) => Arc::new(tree::Build::new(&bind, op)?),
        Op::TreeWalk(op) => Arc::new(tree::Walk::new(&bind, op)?),
        Op::Advance(op) => Arc::new(tree::Advance::new(&bind, op)?),
        Op::Stamp(op) => Arc::new(stamp::Kernel::new(&bind, op)?),
        Op::FeatureStore(op) => Arc::new(feature::Store::new(&bind, op)?),
        Op::FeatureCommit(op) => Arc::new(feature::Commit::new(&bind, op)?),
        Op::FeatureLoad(op) => Arc::new(feature::Load::new(&bind, op)?),
        Op::KvCommit(op) => Arc::new(kv_commit::Kernel::new(&bind, op)?),
        Op::ConvCommit(op) => Arc::new(conv_commit::Kernel::new(&bind, op)?),
        Op::DeltaCommit(op) => Arc::new(delta_commit::Kernel::new(&bind, op)?),
        // An operation newer than this driver.
        _ => return Err(bind.unsupported(DType::F32).into()),
    })
}
