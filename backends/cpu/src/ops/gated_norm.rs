//! Norm and gate after the delta rule.

use foretoken::device::DeviceFault;
use foretoken::kernel::{GatedNorm, KernelKey};
use foretoken::tensor::DType;

use super::{Bind, Controls};
use crate::math::{per_isa, silu1, sum_of_squares};
use crate::memory::View;
use crate::pool::{CpuKernel, Worker};
use crate::simd::Isa;

pub(super) struct Kernel {
    control: Controls,
    x: View<f32>,
    z: View<f32>,
    weight: View<f32>,
    out: View<f32>,
    /// Rows, heads, width of a head.
    dims: [usize; 3],
    in_place: bool,
    eps: f32,
    isa: Isa,
}

impl Kernel {
    pub(super) fn new(bind: &Bind<'_>, op: &GatedNorm) -> Result<Self, DeviceFault> {
        let [xs, heads, width] = bind.dims(&op.x, "x must be [M, H, dv]")?;
        let [zs, z_heads, z_width] = bind.dims(&op.z, "z must be [M, H, dv]")?;
        let [outs, out_heads, out_width] = bind.dims(&op.out, "out must be [M, H, dv]")?;
        let [weights] = bind.dims(&op.weight, "weight must be [dv]")?;
        let same = heads == z_heads && heads == out_heads && width == z_width;
        bind.ensure(same && width == out_width, "x, z and out differ in heads or width")?;
        bind.ensure(weights == width, "weight must be as wide as a head")?;
        bind.apart(&[&op.out], &[&op.z, &op.weight, &op.control.0])?;
        Ok(Self {
            control: bind.control(&op.control)?,
            in_place: bind.same(&op.out, &op.x)?,
            x: bind.view(&op.x)?,
            z: bind.view(&op.z)?,
            weight: bind.view(&op.weight)?,
            out: bind.view(&op.out)?,
            dims: [xs.min(zs).min(outs), heads, width],
            eps: op.eps,
            isa: bind.isa(),
        })
    }
}

impl CpuKernel for Kernel {
    fn run(&self, worker: &Worker<'_>) {
        let [rows, heads, width] = self.dims;
        let rows = self.control.rows(worker, rows);
        // SAFETY: inputs of an operation are not written while it runs.
        let weight = unsafe { self.weight.read(0..width) };
        for head in worker.share(rows * heads, 1) {
            let range = head * width..(head + 1) * width;
            // SAFETY: as for the weight.
            let z = unsafe { self.z.read(range.clone()) };
            // SAFETY: each head of a row belongs to one worker.
            let out = unsafe { self.out.write(range.clone()) };
            if !self.in_place {
                // SAFETY: x is apart from out, and nobody writes it.
                out.copy_from_slice(unsafe { self.x.read(range) });
            }
            gated_norm(self.isa, out, z, weight, self.eps);
        }
    }

    fn key(&self) -> KernelKey {
        KernelKey { op: "gated_norm", dtype: DType::F32, regime: None, variant: self.isa.name() }
    }
}

per_isa! {
    fn gated_norm[s](x: &mut [f32], z: &[f32], weight: &[f32], eps: f32) {
        let factor = 1.0 / (sum_of_squares(s, x) / x.len() as f32 + eps).sqrt();
        for ((x, z), w) in x.iter_mut().zip(z).zip(weight) {
            *x = *x * factor * w * silu1(*z);
        }
    }
}
