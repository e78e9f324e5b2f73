//! Bringing the state of the delta rule past an accepted path.

use foretoken::device::DeviceFault;
use foretoken::kernel::{DeltaCommit, KernelKey};
use foretoken::tensor::DType;

use super::Bind;
use super::ancestry::Accepted;
use super::delta_rule::Rule;
use crate::pool::{ChunkCounter, CpuKernel, Worker};

pub(super) struct Kernel {
    rule: Rule,
    path: Accepted,
    slabs: ChunkCounter,
}

impl Kernel {
    pub(super) fn new(bind: &Bind<'_>, op: &DeltaCommit) -> Result<Self, DeviceFault> {
        let rule = Rule::new(bind, &op.delta)?;
        bind.apart(&[&op.delta.state], &[&op.path.0])?;
        let floats = rule.floats(rule.rows);
        bind.scratch(floats.and_then(|n| n.checked_mul(size_of::<f32>())))?;
        Ok(Self { rule, path: Accepted::new(bind, &op.path)?, slabs: ChunkCounter::new() })
    }
}

impl CpuKernel for Kernel {
    fn run(&self, worker: &Worker<'_>) {
        let rule = &self.rule;
        let live = rule.control.rows(worker, rule.rows);
        let path = self.path.read(worker, live);
        let scratch = worker.scratch().cast();
        rule.ready(worker, scratch, path.count(), |i| path.row(i));
        worker.barrier();
        for index in self.slabs.chunks(worker, rule.parts()) {
            let rows = (0..path.count()).map(|i| path.row(i));
            rule.advance(scratch, rows, &rule.part(index), None);
        }
    }

    fn key(&self) -> KernelKey {
        KernelKey {
            op: "delta_commit",
            dtype: DType::F32,
            regime: None,
            variant: self.rule.isa.name(),
        }
    }
}
