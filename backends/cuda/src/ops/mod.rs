//! One file for each family of operations, with the same name as its source in
//! `kernels-cuda/src`.
//!
//! `prepare` checks shapes, types, ownership and overlap once, chooses the kernel and its
//! grid, and packs the arguments. What changes from launch to launch is read from device
//! memory by the kernel itself.

mod activation;
mod attention;
mod bind;
mod embed;
mod feature;
mod gated_delta;
mod kv;
mod linear;
mod norms;
mod path;
mod rope;
mod sample;
mod short_conv;
mod stamp;
mod top_k;
mod tree;

use std::cell::Cell;
use std::sync::Arc;

use foretoken::Result;
use foretoken::kernel::Op;
use foretoken::tensor::DType;

pub(crate) use bind::{Bind, TreeViews, row_set};

use crate::device::Core;
use crate::launch::CudaKernel;

/// Finds and binds the kernel for an operation.
pub(crate) fn prepare(core: &Arc<Core>, op: &Op) -> Result<Arc<CudaKernel>> {
    core.context.healthy()?;
    Ok(Arc::new(bound(&Bind::new(core, op.name()), op)?))
}

/// Bytes of scratch memory that the kernel for an operation asks for. Nothing is reserved.
pub(crate) fn scratch(core: &Arc<Core>, op: &Op) -> Result<usize> {
    core.context.healthy()?;
    let most = Cell::new(0);
    bound(&Bind::measuring(core, op.name(), &most), op)?;
    Ok(most.get())
}

fn bound(bind: &Bind<'_>, op: &Op) -> Result<CudaKernel> {
    Ok(match op {
        Op::Embed(op) => embed::prepare(bind, op)?,
        Op::RmsNorm(op) => norms::rms(bind, op)?,
        Op::RopeAngles(op) => rope::angles(bind, op)?,
        Op::QkNormRope(op) => rope::rotate(bind, op)?,
        Op::KvAppend(op) => kv::append(bind, op)?,
        Op::OutputGate(op) => activation::output_gate(bind, op)?,
        Op::GatedNorm(op) => norms::gated(bind, op)?,
        Op::SwiGlu(op) => activation::swiglu(bind, op)?,
        Op::TopK(op) => top_k::prepare(bind, op)?,
        Op::Sample(op) => sample::prepare(bind, op)?,
        Op::FeatureStore(op) => feature::store(bind, op)?,
        Op::FeatureCommit(op) => feature::commit(bind, op)?,
        Op::FeatureLoad(op) => feature::load(bind, op)?,
        Op::DraftContext(op) => tree::context(bind, op)?,
        Op::DraftBlock(op) => tree::block(bind, op)?,
        Op::TreeBuild(op) => tree::build(bind, op)?,
        Op::TreeWalk(op) => tree::walk(bind, op)?,
        Op::KvCommit(op) => kv::commit(bind, op)?,
        Op::Advance(op) => tree::advance(bind, op)?,
        Op::Linear(op) => linear::prepare(bind, op)?,
        Op::Attention(op) => attention::prepare(bind, op)?,
        Op::ShortConv(op) => short_conv::prepare(bind, op)?,
        Op::GatedDelta(op) => gated_delta::prepare(bind, op)?,
        Op::ConvCommit(op) => short_conv::commit(bind, op)?,
        Op::DeltaCommit(op) => gated_delta::commit(bind, op)?,
        Op::Stamp(op) => stamp::prepare(bind, op)?,

        // An operation that this driver does not have.
        _ => return Err(bind.unsupported(DType::F32).into()),
    })
}

/// Threads of a block that packs a row: one to each piece of eight inputs, as far as there
/// are threads (`kPackThreads`).
fn pack_threads(width: usize) -> u32 {
    let threads = width.div_ceil(8).next_multiple_of(32).min(1024);
    u32::try_from(threads).unwrap_or(1024)
}
