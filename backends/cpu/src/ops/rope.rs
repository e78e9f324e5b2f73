//! Rotary position embedding: the angles, and queries and keys made ready.

use foretoken::device::DeviceFault;
use foretoken::kernel::{KernelKey, QkNormRope, RopeAngles};
use foretoken::tensor::DType;

use super::rms_norm::norm;
use super::{Bind, Controls};
use crate::math::per_isa;
use crate::memory::View;
use crate::pool::{CpuKernel, Worker};
use crate::simd::Isa;

/// [`RopeAngles`]: angles in F64, so that long contexts lose nothing; their cosines
/// and sines rounded to F32 once.
pub(super) struct Angles {
    control: Controls,
    positions: View<i32>,
    out: View<f32>,
    rows: usize,
    frequencies: Vec<f64>,
}

impl Angles {
    pub(super) fn new(bind: &Bind<'_>, op: &RopeAngles) -> Result<Self, DeviceFault> {
        let [positions] = bind.dims(&op.positions, "positions must be [M]")?;
        let [rows, dims] = bind.dims(&op.out, "out must be [M, rotary_dims]")?;
        bind.ensure(dims % 2 == 0, "rotary_dims must be even")?;
        bind.ensure(op.theta.is_finite() && op.theta > 0.0, "theta must be positive")?;
        bind.apart(&[&op.out], &[&op.positions, &op.control.0])?;
        let frequency = |j| op.theta.powf(-2.0 * j as f64 / dims as f64);
        Ok(Self {
            control: bind.control(&op.control)?,
            positions: bind.view(&op.positions)?,
            out: bind.view(&op.out)?,
            rows: positions.min(rows),
            frequencies: (0..dims / 2).map(frequency).collect(),
        })
    }
}

impl CpuKernel for Angles {
    fn run(&self, worker: &Worker<'_>) {
        let half = self.frequencies.len();
        for row in worker.share(self.control.rows(worker, self.rows), 1) {
            // SAFETY: inputs of an operation are not written while it runs.
            let position = f64::from(unsafe { self.positions.value(row) });
            // SAFETY: each row belongs to one worker.
            let out = unsafe { self.out.write(row * 2 * half..(row + 1) * 2 * half) };
            let (cosines, sines) = out.split_at_mut(half);
            for ((c, s), frequency) in cosines.iter_mut().zip(sines).zip(&self.frequencies) {
                let (sin, cos) = (position * frequency).sin_cos();
                (*c, *s) = (cos as f32, sin as f32);
            }
        }
    }

    fn key(&self) -> KernelKey {
        KernelKey { op: "rope_angles", dtype: DType::F32, regime: None, variant: "f64" }
    }
}

/// [`QkNormRope`].
pub(super) struct Rotate {
    control: Controls,
    angles: View<f32>,
    q: View<f32>,
    k: View<f32>,
    q_norm: View<f32>,
    k_norm: View<f32>,
    eps: f32,
    rows: usize,
    q_heads: usize,
    q_stride: usize,
    k_heads: usize,
    head_dim: usize,
    rotary: usize,
    isa: Isa,
}

impl Rotate {
    pub(super) fn new(bind: &Bind<'_>, op: &QkNormRope) -> Result<Self, DeviceFault> {
        let [angles, rotary] = bind.dims(&op.angles, "angles must be [M, rotary_dims]")?;
        let [q_rows, q_heads, q_stride] = bind.dims(&op.q, "q must be [M, Hq, q_stride]")?;
        let [k_rows, k_heads, head_dim] = bind.dims(&op.k, "k must be [M, Hkv, head_dim]")?;
        let [q_norm] = bind.dims(&op.q_norm, "q_norm must be [head_dim]")?;
        let [k_norm] = bind.dims(&op.k_norm, "k_norm must be [head_dim]")?;
        bind.ensure(q_norm == head_dim && k_norm == head_dim, "the norms must be [head_dim]")?;
        bind.ensure(q_stride >= head_dim, "a row of q must hold a head")?;
        let fits = rotary % 2 == 0 && rotary <= head_dim;
        bind.ensure(fits, "rotary_dims must be even and at most head_dim")?;
        let inputs = [&op.angles, &op.q_norm, &op.k_norm, &op.control.0];
        bind.apart(&[&op.q, &op.k], &inputs)?;
        Ok(Self {
            control: bind.control(&op.control)?,
            angles: bind.view(&op.angles)?,
            q: bind.view(&op.q)?,
            k: bind.view(&op.k)?,
            q_norm: bind.view(&op.q_norm)?,
            k_norm: bind.view(&op.k_norm)?,
            eps: op.eps,
            rows: angles.min(q_rows).min(k_rows),
            q_heads,
            q_stride,
            k_heads,
            head_dim,
            rotary,
            isa: bind.isa(),
        })
    }
}

impl CpuKernel for Rotate {
    fn run(&self, worker: &Worker<'_>) {
        let rows = self.control.rows(worker, self.rows);
        let (heads, d) = (self.q_heads + self.k_heads, self.head_dim);
        for item in worker.share(rows * heads, 1) {
            let (row, head) = (item / heads, item % heads);
            // SAFETY: inputs of an operation are not written while it runs.
            let angles = unsafe { self.angles.read(row * self.rotary..(row + 1) * self.rotary) };
            let (tensor, start, weight) = match head.checked_sub(self.q_heads) {
                None => (&self.q, (row * self.q_heads + head) * self.q_stride, &self.q_norm),
                Some(head) => (&self.k, (row * self.k_heads + head) * d, &self.k_norm),
            };
            // SAFETY: as for the angles.
            let weight = unsafe { weight.read(0..d) };
            // SAFETY: each head of a row belongs to one worker.
            let x = unsafe { tensor.write(start..start + d) };
            norm(self.isa, x, weight, self.eps);
            rotate(self.isa, x, angles);
        }
    }

    fn key(&self) -> KernelKey {
        KernelKey { op: "qk_norm_rope", dtype: DType::F32, regime: None, variant: self.isa.name() }
    }
}

per_isa! {
    /// Turns the pairs `j, j + half` of the first `2 * half` values.
    fn rotate[_s](x: &mut [f32], angles: &[f32]) {
        let (cosines, sines) = angles.split_at(angles.len() / 2);
        let (first, rest) = x.split_at_mut(cosines.len());
        for (((a, b), c), s) in first.iter_mut().zip(rest).zip(cosines).zip(sines) {
            let (x, y) = (*a, *b);
            *a = x.mul_add(*c, -(y * s));
            *b = x.mul_add(*s, y * c);
        }
    }
}
