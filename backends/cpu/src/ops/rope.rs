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

/// Some heads of every row.
struct Part {
    x: View<f32>,
    norm: View<f32>,
    heads: usize,
    stride: usize,
}

/// [`QkNormRope`].
pub(super) struct Rotate {
    control: Controls,
    angles: View<f32>,
    parts: Vec<Part>,
    eps: f32,
    rows: usize,
    head_dim: usize,
    rotary: usize,
    isa: Isa,
}

impl Rotate {
    pub(super) fn new(bind: &Bind<'_>, op: &QkNormRope) -> Result<Self, DeviceFault> {
        let [mut rows, rotary] = bind.dims(&op.angles, "angles must be [M, rotary_dims]")?;
        let first = op.parts.first().ok_or(bind.bad("there must be at least one part"))?;
        let [head_dim] = bind.dims(&first.norm, "a norm must be [head_dim]")?;
        let fits = rotary % 2 == 0 && rotary <= head_dim;
        bind.ensure(fits, "rotary_dims must be even and at most head_dim")?;
        let mut parts = Vec::with_capacity(op.parts.len());
        for part in &op.parts {
            let [part_rows, heads, stride] = bind.dims(&part.x, "a part must be [M, H, stride]")?;
            let [norm] = bind.dims(&part.norm, "a norm must be [head_dim]")?;
            bind.ensure(norm == head_dim, "the norms differ in head_dim")?;
            bind.ensure(stride >= head_dim, "a row of a part must hold a head")?;
            rows = rows.min(part_rows);
            let (x, norm) = (bind.view(&part.x)?, bind.view(&part.norm)?);
            parts.push(Part { x, norm, heads, stride });
        }
        let outputs: Vec<_> = op.parts.iter().map(|p| &p.x).collect();
        let norms = op.parts.iter().map(|p| &p.norm);
        let inputs: Vec<_> = norms.chain([&op.angles, &op.control.0]).collect();
        bind.apart(&outputs, &inputs)?;
        Ok(Self {
            control: bind.control(&op.control)?,
            angles: bind.view(&op.angles)?,
            parts,
            eps: op.eps,
            rows,
            head_dim,
            rotary,
            isa: bind.isa(),
        })
    }
}

impl CpuKernel for Rotate {
    fn run(&self, worker: &Worker<'_>) {
        let rows = self.control.rows(worker, self.rows);
        let (heads, d) = (self.parts.iter().map(|p| p.heads).sum::<usize>(), self.head_dim);
        for item in worker.share(rows * heads, 1) {
            let (row, mut head) = (item / heads, item % heads);
            // SAFETY: inputs of an operation are not written while it runs.
            let angles = unsafe { self.angles.read(row * self.rotary..(row + 1) * self.rotary) };
            for part in &self.parts {
                let Some(later) = head.checked_sub(part.heads) else {
                    let start = (row * part.heads + head) * part.stride;
                    // SAFETY: as for the angles.
                    let weight = unsafe { part.norm.read(0..d) };
                    // SAFETY: each head of a row belongs to one worker.
                    let x = unsafe { part.x.write(start..start + d) };
                    norm(self.isa, x, weight, self.eps);
                    rotate(self.isa, x, angles);
                    break;
                };
                head = later;
            }
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
