//! The gate on an attention layer's output.

use foretoken::device::DeviceFault;
use foretoken::kernel::{KernelKey, OutputGate};
use foretoken::tensor::DType;

use super::{Bind, Controls};
use crate::math::{per_isa, sigmoid1};
use crate::memory::View;
use crate::pool::{CpuKernel, Worker};
use crate::simd::Isa;

pub(super) struct Kernel {
    control: Controls,
    q: View<f32>,
    x: View<f32>,
    rows: usize,
    heads: usize,
    head_dim: usize,
    isa: Isa,
}

impl Kernel {
    pub(super) fn new(bind: &Bind<'_>, op: &OutputGate) -> Result<Self, DeviceFault> {
        let [q_rows, q_heads, stride] = bind.dims(&op.q, "q must be [M, Hq, 2 * head_dim]")?;
        let [rows, heads, head_dim] = bind.dims(&op.x, "x must be [M, Hq, head_dim]")?;
        bind.ensure(q_heads == heads, "q and x must have the same heads")?;
        bind.ensure(stride / 2 == head_dim && stride % 2 == 0, "a row of q must be two of x")?;
        bind.apart(&[&op.x], &[&op.q, &op.control.0])?;
        Ok(Self {
            control: bind.control(&op.control)?,
            q: bind.view(&op.q)?,
            x: bind.view(&op.x)?,
            rows: q_rows.min(rows),
            heads,
            head_dim,
            isa: bind.isa(),
        })
    }
}

impl CpuKernel for Kernel {
    fn run(&self, worker: &Worker<'_>) {
        let (rows, d) = (self.control.rows(worker, self.rows), self.head_dim);
        for head in worker.share(rows * self.heads, 1) {
            // SAFETY: inputs of an operation are not written while it runs.
            let gate = unsafe { self.q.read((2 * head + 1) * d..(2 * head + 2) * d) };
            // SAFETY: each head of a row belongs to one worker.
            gate_with(self.isa, gate, unsafe { self.x.write(head * d..(head + 1) * d) });
        }
    }

    fn key(&self) -> KernelKey {
        KernelKey { op: "output_gate", dtype: DType::F32, regime: None, variant: self.isa.name() }
    }
}

per_isa! {
    fn gate_with[_s](gate: &[f32], x: &mut [f32]) {
        for (x, g) in x.iter_mut().zip(gate) {
            *x *= sigmoid1(*g);
        }
    }
}
