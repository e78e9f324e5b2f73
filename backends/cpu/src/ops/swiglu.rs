//! The gated activation of the feed-forward block.

use foretoken::device::DeviceFault;
use foretoken::kernel::{KernelKey, SwiGlu};
use foretoken::tensor::DType;

use super::{Bind, Controls};
use crate::math::{per_isa, silu1};
use crate::memory::View;
use crate::pool::{CpuKernel, Worker};
use crate::simd::Isa;

/// Elements taken to the stack at a time, so that `out` may be an input.
const TILE: usize = 512;

pub(super) struct Kernel {
    control: Controls,
    gate: View<f32>,
    up: View<f32>,
    out: View<f32>,
    rows: usize,
    width: usize,
    isa: Isa,
}

impl Kernel {
    pub(super) fn new(bind: &Bind<'_>, op: &SwiGlu) -> Result<Self, DeviceFault> {
        let [gates, width] = bind.dims(&op.gate, "gate must be [M, F]")?;
        let [ups, up_width] = bind.dims(&op.up, "up must be [M, F]")?;
        let [outs, out_width] = bind.dims(&op.out, "out must be [M, F]")?;
        bind.ensure(width == up_width && width == out_width, "gate, up and out differ in width")?;
        bind.apart(&[&op.out], &[&op.control.0])?;
        bind.same(&op.out, &op.gate)?;
        bind.same(&op.out, &op.up)?;
        Ok(Self {
            control: bind.control(&op.control)?,
            gate: bind.view(&op.gate)?,
            up: bind.view(&op.up)?,
            out: bind.view(&op.out)?,
            rows: gates.min(ups).min(outs),
            width,
            isa: bind.isa(),
        })
    }
}

impl CpuKernel for Kernel {
    fn run(&self, worker: &Worker<'_>) {
        let rows = self.control.rows(worker, self.rows);
        let mine = worker.share(rows * self.width, TILE);
        let (mut gate, mut up) = ([0.0; TILE], [0.0; TILE]);
        for start in mine.clone().step_by(TILE) {
            let range = start..mine.end.min(start + TILE);
            let n = range.len();
            // SAFETY: elements of a range belong to one worker, in all three tensors
            // (an output that is an input is exactly that input).
            gate[..n].copy_from_slice(unsafe { self.gate.read(range.clone()) });
            // SAFETY: as above.
            up[..n].copy_from_slice(unsafe { self.up.read(range.clone()) });
            // SAFETY: as above; the borrows of the inputs have ended.
            swiglu(self.isa, &gate[..n], &up[..n], unsafe { self.out.write(range) });
        }
    }

    fn key(&self) -> KernelKey {
        KernelKey { op: "swiglu", dtype: DType::F32, regime: None, variant: self.isa.name() }
    }
}

per_isa! {
    fn swiglu[_s](gate: &[f32], up: &[f32], out: &mut [f32]) {
        for ((o, g), u) in out.iter_mut().zip(gate).zip(up) {
            *o = silu1(*g) * u;
        }
    }
}
