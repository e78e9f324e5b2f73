//! The gated delta rule, over rows in order or over a tree (phases and arithmetic:
//! `delta_rule`).
//!
//! With a tree, each worker walks it depth first on a slab of its own in scratch memory
//! (`delta_walk`) and the state is only read. No state of a node goes to memory except
//! those kept aside for siblings still to come, at most 31 slabs of a worker.

use foretoken::device::DeviceFault;
use foretoken::kernel::{GatedDelta, KernelKey, Regime};
use foretoken::tensor::DType;

use super::Bind;
use super::ancestry::Tree;
use super::delta_rule::{Part, Rule};
use super::delta_slab::{self, SLAB, Slab, settle};
use super::delta_walk::{Step, Walk};
use crate::math::LANES;
use crate::memory::{Span, View};
use crate::pool::{ChunkCounter, CpuKernel, Worker};

pub(super) struct Kernel {
    rule: Rule,
    out: View<f32>,
    tree: Option<Tree>,
    rows: usize,
    regime: Regime,
    slabs: ChunkCounter,
}

impl Kernel {
    pub(super) fn new(bind: &Bind<'_>, op: &GatedDelta) -> Result<Self, DeviceFault> {
        let [outs, heads, dv] = bind.dims(&op.out, "out must be [M, Hv, dv]")?;
        let rule = Rule::new(bind, op)?;
        bind.ensure(heads == rule.value_heads, "the operands differ in value heads")?;
        bind.ensure(dv == rule.dv, "state and out differ in dv")?;
        let inputs = [&op.qkv, &op.alpha, &op.beta, &op.a, &op.dt_bias, &op.control.0];
        bind.apart(&[&op.out, &op.state], &inputs)?;
        let rows = rule.rows.min(outs);
        let mut tree = None;
        if let Some(operand) = &op.tree {
            bind.ensure(op.regime == Regime::Step, "a tree is for the step regime")?;
            tree = Some(Tree::new(bind, operand, rows, &op.out)?);
        }
        let regime = op.regime;
        let kernel =
            Self { rule, out: bind.view(&op.out)?, tree, rows, regime, slabs: ChunkCounter::new() };
        let slabs = if kernel.tree.is_some() { bind.threads() } else { 0 };
        let floats = || {
            let own = kernel.own().checked_mul(slabs)?;
            kernel.shared()?.checked_add(own)?.checked_mul(size_of::<f32>())
        };
        bind.scratch(floats())?;
        Ok(kernel)
    }

    /// Floats of scratch memory that hold the rows' tokens.
    fn shared(&self) -> Option<usize> {
        self.rule.floats(self.rows)?.checked_next_multiple_of(LANES)
    }

    /// Floats of scratch memory for each worker: a slab to work on, then those kept.
    fn own(&self) -> usize {
        (1 + Walk::places(self.rows)) * SLAB * self.rule.dk
    }

    /// Second phase with a tree: takes a copy of a part of the state along the walk.
    fn explore(&self, scratch: Span<f32>, own: &mut [f32], walk: &Walk, part: &Part) {
        let (rule, isa) = (&self.rule, self.rule.isa);
        let (slab, stash) = own.split_at_mut(SLAB * rule.dk);
        let size = part.len * rule.dk;
        let state = &mut slab[..size];
        // SAFETY: with a tree, nothing writes to the state.
        state.copy_from_slice(unsafe { rule.state.read(rule.slab(part)) });
        let mut writes = [0.0; SLAB];
        let mut slab = Slab { state, writes: &mut writes[..part.len] };
        let token = |row: u8| rule.token(scratch, row.into(), part.head);
        let kept = |place: u8| usize::from(place) * size..(usize::from(place) + 1) * size;
        for step in walk.steps() {
            match *step {
                Step::Row { row, before } => {
                    let before = before.map(token);
                    let values = rule.values(row.into(), part);
                    // SAFETY: the outputs of a part belong to one worker.
                    let out = unsafe { self.out.write(rule.output(row.into(), part)) };
                    let row = token(row);
                    delta_slab::advance(isa, &mut slab, before.as_ref(), &row, values, out);
                }
                Step::Settle { row } => settle(isa, &mut slab, &token(row)),
                Step::Stash { place } => stash[kept(place)].copy_from_slice(slab.state),
                Step::Restore { place } => slab.state.copy_from_slice(&stash[kept(place)]),
            }
        }
    }
}

impl CpuKernel for Kernel {
    fn run(&self, worker: &Worker<'_>) {
        let rows = self.rule.control.rows(worker, self.rows);
        let scratch = worker.scratch().cast::<f32>();
        // Cheaper for each worker than waiting for another one to do it.
        let walk = self.tree.as_ref().map(|tree| Walk::new(&tree.read(worker, rows)));
        self.rule.ready(worker, scratch, rows, |i| i);
        worker.barrier();
        let parts = self.slabs.chunks(worker, self.rule.parts());
        let Some(walk) = walk else {
            return parts.for_each(|index| {
                self.rule.advance(scratch, 0..rows, &self.rule.part(index), Some(&self.out));
            });
        };
        // Does not overflow: `new` has reserved this much.
        let at = self.shared().unwrap_or(scratch.len()) + worker.index * self.own();
        // SAFETY: this range of the scratch memory is for this worker alone.
        let own = unsafe { scratch.write(at..at + self.own()) };
        for index in parts {
            self.explore(scratch, own, &walk, &self.rule.part(index));
        }
    }

    fn key(&self) -> KernelKey {
        let (dtype, regime) = (DType::F32, Some(self.regime));
        KernelKey { op: "gated_delta", dtype, regime, variant: self.rule.isa.name() }
    }
}
