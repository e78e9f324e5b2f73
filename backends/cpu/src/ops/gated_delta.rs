//! The gated delta rule.
//!
//! Two phases. First queries and keys are brought to unit length and the gates
//! computed, into scratch memory. Then each worker takes slabs of a head's state (32
//! of its `dv` rows, small enough for the first-level cache) through all tokens.
//! Rows of the state are independent, so any sharing gives the same bits.
//!
//! With `s` the state before a token, its decay `g` and write `d k^T` are applied
//! while the next token is read: one pass over the slab per token. What the token
//! needs of its own new state follows from two dot products with the old one:
//! `d = b (v - g (s k))`, `out = g (s q) + d (k q)`. The state that a call leaves has
//! the last write applied, by the same instructions, so a row's bits do not depend on
//! how tokens are spread over calls.

use std::ops::Range;

use foretoken::device::DeviceFault;
use foretoken::kernel::{GatedDelta, HeadMap, KernelKey, Regime};
use foretoken::tensor::DType;

use super::delta_slab::{self, SLAB, Slab, Token, settle};
use super::{Bind, Controls};
use crate::math::{dot, per_isa, sigmoid1, sum_of_squares};
use crate::memory::{Span, View};
use crate::pool::{ChunkCounter, CpuKernel, Worker};
use crate::simd::Isa;

pub(super) struct Kernel {
    control: Controls,
    qkv: View<f32>,
    alpha: View<f32>,
    beta: View<f32>,
    a: View<f32>,
    dt_bias: View<f32>,
    state: View<f32>,
    out: View<f32>,
    rows: usize,
    key_heads: usize,
    value_heads: usize,
    dk: usize,
    dv: usize,
    head_map: HeadMap,
    eps: f32,
    regime: Regime,
    isa: Isa,
    slabs: ChunkCounter,
}

impl Kernel {
    pub(super) fn new(bind: &Bind<'_>, op: &GatedDelta) -> Result<Self, DeviceFault> {
        let [value_heads, dv, dk] = bind.dims(&op.state, "state must be [Hv, dv, dk]")?;
        let [rows, width] = bind.dims(&op.qkv, "qkv must be [M, 2 Hk dk + Hv dv]")?;
        let [alphas, alpha_heads] = bind.dims(&op.alpha, "alpha must be [M, Hv]")?;
        let [betas, beta_heads] = bind.dims(&op.beta, "beta must be [M, Hv]")?;
        let [a] = bind.dims(&op.a, "a must be [Hv]")?;
        let [dt] = bind.dims(&op.dt_bias, "dt_bias must be [Hv]")?;
        let [outs, out_heads, out_dv] = bind.dims(&op.out, "out must be [M, Hv, dv]")?;
        let key_heads = op.key_heads;
        let heads = [alpha_heads, beta_heads, a, dt, out_heads];
        bind.ensure(heads == [value_heads; 5], "the operands differ in value heads")?;
        bind.ensure(out_dv == dv, "state and out differ in dv")?;
        let grouped = key_heads > 0 && value_heads % key_heads == 0;
        bind.ensure(grouped, "Hv must be a multiple of Hk")?;
        // In bounds: the products are part of the sizes of existing tensors, or
        // they do not match.
        let wanted = key_heads.checked_mul(2 * dk).and_then(|n| n.checked_add(value_heads * dv));
        bind.ensure(wanted == Some(width), "qkv must be [M, 2 Hk dk + Hv dv]")?;
        if op.tree.is_some() {
            return Err(bind.unsupported(DType::F32));
        }
        let inputs = [&op.qkv, &op.alpha, &op.beta, &op.a, &op.dt_bias, &op.control.0];
        bind.apart(&[&op.state, &op.out], &inputs)?;
        let kernel = Self {
            control: bind.control(&op.control)?,
            qkv: bind.view(&op.qkv)?,
            alpha: bind.view(&op.alpha)?,
            beta: bind.view(&op.beta)?,
            a: bind.view(&op.a)?,
            dt_bias: bind.view(&op.dt_bias)?,
            state: bind.view(&op.state)?,
            out: bind.view(&op.out)?,
            rows: rows.min(alphas).min(betas).min(outs),
            key_heads,
            value_heads,
            dk,
            dv,
            head_map: op.head_map,
            eps: op.eps,
            regime: op.regime,
            isa: bind.isa(),
            slabs: ChunkCounter::new(),
        };
        let floats = kernel.rows.checked_mul(kernel.record());
        bind.scratch(floats.and_then(|n| n.checked_mul(size_of::<f32>())))?;
        Ok(kernel)
    }

    /// Floats of scratch per row: keys, queries, `k q` per key head, then `g`, `b`.
    fn record(&self) -> usize {
        self.key_heads * (2 * self.dk + 1) + 2 * self.value_heads
    }

    fn key_head(&self, head: usize) -> usize {
        match self.head_map {
            HeadMap::Grouped => head / (self.value_heads / self.key_heads),
            HeadMap::Tiled => head % self.key_heads,
        }
    }

    /// First phase, one head of one row: key heads first, then value heads.
    fn ready(&self, scratch: Span<f32>, row: usize, head: usize) {
        let (dk, hk) = (self.dk, self.key_heads);
        let base = row * self.record();
        let width = 2 * hk * dk + self.value_heads * self.dv;
        if let Some(head) = head.checked_sub(hk) {
            let one = |view: &View<f32>, at: usize| {
                // SAFETY: inputs of an operation are not written while it runs.
                unsafe { view.value(at) }
            };
            let at = row * self.value_heads + head;
            let x = f64::from(one(&self.alpha, at) + one(&self.dt_bias, head));
            let at_gate = base + hk * (2 * dk + 1) + 2 * head;
            // SAFETY: each head of a row belongs to one worker.
            let gate = unsafe { scratch.write(at_gate..at_gate + 2) };
            gate[0] = (f64::from(one(&self.a, head)) * softplus(x)).exp() as f32;
            gate[1] = sigmoid1(one(&self.beta, at));
            return;
        }
        let part = |which: usize| {
            let at = row * width + (which * hk + head) * dk;
            at..at + dk
        };
        // SAFETY: inputs of an operation are not written while it runs.
        let (q, k) = unsafe { (self.qkv.read(part(0)), self.qkv.read(part(1))) };
        let at = base + head * (2 * dk + 1);
        // SAFETY: each head of a row belongs to one worker.
        let ready = unsafe { scratch.write(at..at + 2 * dk + 1) };
        unit(self.isa, q, k, self.eps, ready);
    }

    /// A token as the slabs of one value head see it.
    fn token(&self, scratch: Span<f32>, row: usize, head: usize) -> Token<'static> {
        let (dk, hk) = (self.dk, self.key_heads);
        let base = row * self.record();
        let at = base + self.key_head(head) * (2 * dk + 1);
        let gates = base + hk * (2 * dk + 1) + 2 * head;
        // SAFETY: the barrier between the phases has ended all writes.
        let (ready, gates) =
            unsafe { (scratch.read(at..at + 2 * dk + 1), scratch.read(gates..gates + 2)) };
        let (k, rest) = ready.split_at(dk);
        Token { k, q: &rest[..dk], kq: rest[dk], decay: gates[0], strength: gates[1] }
    }

    /// Second phase: some `dv` rows of one head, through all tokens.
    fn advance(&self, scratch: Span<f32>, rows: usize, head: usize, part: Range<usize>) {
        let (dk, dv, hv) = (self.dk, self.dv, self.value_heads);
        let width = 2 * self.key_heads * dk + hv * dv;
        let first = head * dv + part.start;
        // SAFETY: each slab of the state belongs to one worker.
        let state = unsafe { self.state.write(first * dk..(first + part.len()) * dk) };
        let values = |row: usize| {
            let at = row * width + 2 * self.key_heads * dk + first;
            // SAFETY: inputs of an operation are not written while it runs.
            unsafe { self.qkv.read(at..at + part.len()) }
        };
        let out = |row: usize| {
            let at = row * hv * dv + first;
            // SAFETY: the values of a slab belong to one worker.
            unsafe { self.out.write(at..at + part.len()) }
        };
        let mut writes = [0.0; SLAB];
        let mut slab = Slab { state, writes: &mut writes[..part.len()] };
        let mut before = None;
        for row in 0..rows {
            let token = self.token(scratch, row, head);
            delta_slab::advance(
                self.isa,
                &mut slab,
                before.as_ref(),
                &token,
                values(row),
                out(row),
            );
            before = Some(token);
        }
        if let Some(before) = &before {
            settle(self.isa, &mut slab, before);
        }
    }
}

impl CpuKernel for Kernel {
    fn run(&self, worker: &Worker<'_>) {
        let rows = self.control.rows(worker, self.rows);
        let scratch = worker.scratch().cast::<f32>();
        let heads = self.key_heads + self.value_heads;
        for item in worker.share(rows * heads, 1) {
            self.ready(scratch, item / heads, item % heads);
        }
        worker.barrier();
        let per_head = self.dv.div_ceil(SLAB);
        for item in self.slabs.chunks(worker, self.value_heads * per_head) {
            let start = item % per_head * SLAB;
            let part = start..self.dv.min(start + SLAB);
            self.advance(scratch, rows, item / per_head, part);
        }
    }

    fn key(&self) -> KernelKey {
        let (dtype, regime) = (DType::F32, Some(self.regime));
        KernelKey { op: "gated_delta", dtype, regime, variant: self.isa.name() }
    }
}

/// `ln(1 + e^x)`.
fn softplus(x: f64) -> f64 {
    // Past 40, e^-x is below half a unit of x.
    if x > 40.0 { x } else { x.exp().ln_1p() }
}

per_isa! {
    /// Unit-length key, unit-length query times `1 / sqrt(dk)`, and their product.
    fn unit[s](q: &[f32], k: &[f32], eps: f32, out: &mut [f32]) {
        let n = q.len();
        let k_factor = 1.0 / (sum_of_squares(s, k) + eps).sqrt();
        let q_factor = 1.0 / (sum_of_squares(s, q) + eps).sqrt() * (1.0 / (n as f32).sqrt());
        let (k_out, rest) = out.split_at_mut(n);
        let (q_out, kq) = rest.split_at_mut(n);
        for (o, x) in k_out.iter_mut().zip(k) {
            *o = x * k_factor;
        }
        for (o, x) in q_out.iter_mut().zip(q) {
            *o = x * q_factor;
        }
        kq[0] = dot(s, k_out, q_out);
    }
}

#[cfg(test)]
mod tests {
    use super::softplus;

    #[test]
    fn softplus_at_its_ends() {
        assert_eq!(softplus(0.0), std::f64::consts::LN_2);
        assert_eq!((softplus(1000.0), softplus(f64::INFINITY)), (1000.0, f64::INFINITY));
        assert_eq!(softplus(f64::NEG_INFINITY), 0.0);
        assert!(softplus(f64::NAN).is_nan());
        assert!((softplus(40.0) - 40.0).abs() < 1e-15);
        let tiny = softplus(-50.0);
        assert!((tiny / (-50f64).exp() - 1.0).abs() < 1e-12, "{tiny}");
    }
}
