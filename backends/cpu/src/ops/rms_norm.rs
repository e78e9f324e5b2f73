//! Root-mean-square norm of rows.

use foretoken::device::DeviceFault;
use foretoken::kernel::{KernelKey, RmsNorm, RowSet};
use foretoken::tensor::DType;

use super::{Bind, Controls};
use crate::math::{per_isa, sum_of_squares};
use crate::memory::View;
use crate::pool::{CpuKernel, Worker};
use crate::simd::Isa;

pub(super) struct Kernel {
    control: Controls,
    set: RowSet,
    x: View<f32>,
    weight: View<f32>,
    out: View<f32>,
    /// Rows of `x`, rows of `out`, width.
    dims: [usize; 3],
    in_place: bool,
    eps: f32,
    isa: Isa,
}

impl Kernel {
    pub(super) fn new(bind: &Bind<'_>, op: &RmsNorm) -> Result<Self, DeviceFault> {
        let [rows, width] = bind.dims(&op.x, "x must be [M, D]")?;
        let [out_rows, out_width] = bind.dims(&op.out, "out must be [M, D]")?;
        let [weights] = bind.dims(&op.weight, "weight must be [D]")?;
        bind.ensure(width == out_width && width == weights, "x, out and weight differ in width")?;
        bind.apart(&[&op.out], &[&op.weight, &op.control.0])?;
        let in_place = bind.same(&op.out, &op.x)?;
        let moves = op.rows == RowSet::Logits;
        bind.ensure(!(in_place && moves), "rows that move can not be normed in place")?;
        Ok(Self {
            control: bind.control(&op.control)?,
            set: op.rows,
            x: bind.view(&op.x)?,
            weight: bind.view(&op.weight)?,
            out: bind.view(&op.out)?,
            dims: [rows, out_rows, width],
            in_place,
            eps: op.eps,
            isa: bind.isa(),
        })
    }
}

impl CpuKernel for Kernel {
    fn run(&self, worker: &Worker<'_>) {
        let [in_rows, out_rows, width] = self.dims;
        let rows = self.control.row_set(worker, self.set, in_rows, out_rows);
        // SAFETY: inputs of an operation are not written while it runs.
        let weight = unsafe { self.weight.read(0..width) };
        for row in worker.share(rows.count, 1) {
            let from = (rows.first + row) * width;
            // SAFETY: each output row belongs to one worker.
            let out = unsafe { self.out.write(row * width..(row + 1) * width) };
            if !self.in_place {
                // SAFETY: x is apart from out, and nobody writes it.
                out.copy_from_slice(unsafe { self.x.read(from..from + width) });
            }
            norm(self.isa, out, weight, self.eps);
        }
    }

    fn key(&self) -> KernelKey {
        KernelKey { op: "rms_norm", dtype: DType::F32, regime: None, variant: self.isa.name() }
    }
}

per_isa! {
    /// `x = x / sqrt(mean(x^2) + eps) * weight`.
    pub(super) fn norm[s](x: &mut [f32], weight: &[f32], eps: f32) {
        let factor = 1.0 / (sum_of_squares(s, x) / x.len() as f32 + eps).sqrt();
        for (x, w) in x.iter_mut().zip(weight) {
            *x = *x * factor * w;
        }
    }
}
