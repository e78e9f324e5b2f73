//! Binding, and the choice of how to share the work.

use foretoken::device::DeviceFault;
use foretoken::kernel::{Attention, AttentionMask, KernelKey, Regime};
use foretoken::tensor::DType;

use super::shape::{Call, Shape};
use super::sight::{Paths, Sight};
use super::split::MAX_QUERIES;
use crate::memory::View;
use crate::ops::ancestry::Tree;
use crate::ops::kv_append::Cache;
use crate::ops::{Bind, Controls};
use crate::pool::{ChunkCounter, CpuKernel, Worker};
use crate::simd::Isa;

pub(in crate::ops) struct Kernel {
    control: Controls,
    mask: Mask,
    pub(super) q: View<f32>,
    pub(super) k: Cache,
    pub(super) v: Cache,
    pub(super) out: View<f32>,
    pub(super) scale: f32,
    pub(super) shape: Shape,
    regime: Regime,
    dtype: DType,
    pub(super) isa: Isa,
    pub(super) items: ChunkCounter,
}

impl Kernel {
    pub(in crate::ops) fn new(bind: &Bind<'_>, op: &Attention) -> Result<Self, DeviceFault> {
        let [rows, q_heads, q_stride] = bind.dims(&op.q, "q must be [M, Hq, q_stride]")?;
        let [outs, out_heads, head_dim] = bind.dims(&op.out, "out must be [M, Hq, head_dim]")?;
        let [context, kv_heads, dim] = Cache::dims(bind, &op.cache)?;
        bind.ensure(q_heads == out_heads, "q and out differ in heads")?;
        bind.ensure(dim == head_dim, "the cache and out differ in head_dim")?;
        bind.ensure(q_stride >= head_dim, "a row of q must hold a head")?;
        bind.ensure(q_heads % kv_heads == 0, "Hq must be a multiple of Hkv")?;
        let capacity = rows.min(outs);
        let mask = Mask::new(bind, op, capacity)?;
        let group = q_heads / kv_heads;
        bind.ensure(group <= MAX_QUERIES, "more than 32 query heads to a key-value head")?;
        bind.apart(&[&op.out], &[&op.q, &op.cache.k, &op.cache.v, &op.control.0])?;
        let shape = Shape {
            rows: capacity,
            context,
            kv_heads,
            group,
            q_stride,
            head_dim,
            block_rows: MAX_QUERIES / group,
            wave_items: 4 * bind.threads(),
        };
        let floats = shape.scratch(bind.threads());
        bind.scratch(floats.and_then(|n| n.checked_mul(size_of::<f32>())))?;
        Ok(Self {
            control: bind.control(&op.control)?,
            mask,
            q: bind.view(&op.q)?,
            k: Cache::new(bind, &op.cache.k)?,
            v: Cache::new(bind, &op.cache.v)?,
            out: bind.view(&op.out)?,
            scale: op.scale,
            shape,
            regime: op.regime,
            dtype: op.cache.k.dtype(),
            isa: bind.isa(),
            items: ChunkCounter::new(),
        })
    }
}

/// What [`Sight`] is made of in each launch.
enum Mask {
    Causal,
    Tree(Tree),
    Block { window: Option<usize>, causal: bool },
}

impl Mask {
    fn new(bind: &Bind<'_>, op: &Attention, rows: usize) -> Result<Self, DeviceFault> {
        if !matches!(op.mask, AttentionMask::Causal) {
            bind.ensure(op.regime == Regime::Step, "only a causal mask goes with prefill")?;
        }
        match &op.mask {
            AttentionMask::Causal => Ok(Self::Causal),
            AttentionMask::Tree(tree) => Ok(Self::Tree(Tree::new(bind, tree, rows, &op.out)?)),
            &AttentionMask::Block { window, causal } => {
                bind.ensure(window != Some(0), "a window must hold a position")?;
                Ok(Self::Block { window, causal })
            }
        }
    }
}

impl CpuKernel for Kernel {
    fn run(&self, worker: &Worker<'_>) {
        let shape = &self.shape;
        let rows = self.control.rows(worker, shape.rows);
        let committed = self.control.committed_in(worker, rows, shape.context);
        if rows == 0 {
            return;
        }
        let paths;
        let sight = match &self.mask {
            Mask::Causal => Sight::Causal,
            Mask::Tree(tree) => {
                paths = Paths::new(&tree.read(worker, rows));
                Sight::Tree(&paths)
            }
            Mask::Block { window, causal } => Sight::Block { window: *window, causal: *causal },
        };
        let call = Call { rows, committed, block_rows: shape.block_rows, sight };
        let blocks = call.row_blocks() * shape.kv_heads;
        if blocks >= worker.count || call.splits_of(0..rows).len() == 1 {
            for block in self.items.chunks(worker, blocks) {
                self.whole(worker, &call, block);
            }
        } else {
            self.waves(worker, &call, blocks);
        }
    }

    fn key(&self) -> KernelKey {
        let (dtype, regime) = (self.dtype, Some(self.regime));
        KernelKey { op: "attention", dtype, regime, variant: self.isa.name() }
    }
}
