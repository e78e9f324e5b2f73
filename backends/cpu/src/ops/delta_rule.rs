//! What the operations of the gated delta rule share: operands and their two phases.
//!
//! First queries and keys are brought to unit length and the gates computed, into
//! scratch memory. Then each worker takes slabs of a head's state (32 of its `dv` rows,
//! small enough for the first-level cache) through the tokens. Rows of the state are
//! independent, so any sharing gives the same bits.
//!
//! With `s` the state before a token, its decay `g` and write `d k^T` are applied
//! while the next token is read: one pass over the slab per token. What the token
//! needs of its own new state follows from two dot products with the old one:
//! `d = b (v - g (s k))`, `out = g (s q) + d (k q)`. The state that a call leaves has
//! the last write applied, by the same instructions, so a row's bits do not depend on
//! how tokens are spread over calls.

use std::ops::Range;

use foretoken::device::DeviceFault;
use foretoken::kernel::{GatedDelta, HeadMap};

use super::delta_slab::{self, SLAB, Slab, Token, settle};
use super::{Bind, Controls};
use crate::math::{dot, per_isa, sigmoid1, sum_of_squares};
use crate::memory::{Span, View};
use crate::pool::Worker;
use crate::simd::Isa;

/// Operands of the delta rule, outputs apart.
pub(super) struct Rule {
    pub(super) control: Controls,
    qkv: View<f32>,
    alpha: View<f32>,
    beta: View<f32>,
    a: View<f32>,
    dt_bias: View<f32>,
    pub(super) state: View<f32>,
    /// Rows that the inputs hold.
    pub(super) rows: usize,
    key_heads: usize,
    pub(super) value_heads: usize,
    pub(super) dk: usize,
    pub(super) dv: usize,
    head_map: HeadMap,
    eps: f32,
    pub(super) isa: Isa,
}

/// Some `dv` rows of one head's state: what a worker takes through all tokens.
pub(super) struct Part {
    pub(super) head: usize,
    /// First of them, counted through all heads.
    first: usize,
    pub(super) len: usize,
}

impl Rule {
    pub(super) fn new(bind: &Bind<'_>, op: &GatedDelta) -> Result<Self, DeviceFault> {
        let [value_heads, dv, dk] = bind.dims(&op.state, "state must be [Hv, dv, dk]")?;
        let [rows, width] = bind.dims(&op.qkv, "qkv must be [M, 2 Hk dk + Hv dv]")?;
        let [alphas, alpha_heads] = bind.dims(&op.alpha, "alpha must be [M, Hv]")?;
        let [betas, beta_heads] = bind.dims(&op.beta, "beta must be [M, Hv]")?;
        let [a] = bind.dims(&op.a, "a must be [Hv]")?;
        let [dt] = bind.dims(&op.dt_bias, "dt_bias must be [Hv]")?;
        let key_heads = op.key_heads;
        let heads = [alpha_heads, beta_heads, a, dt];
        bind.ensure(heads == [value_heads; 4], "the operands differ in value heads")?;
        let grouped = key_heads > 0 && value_heads % key_heads == 0;
        bind.ensure(grouped, "Hv must be a multiple of Hk")?;
        // In bounds: the products are part of the sizes of existing tensors, or
        // they do not match.
        let wanted = key_heads.checked_mul(2 * dk).and_then(|n| n.checked_add(value_heads * dv));
        bind.ensure(wanted == Some(width), "qkv must be [M, 2 Hk dk + Hv dv]")?;
        bind.apart(
            &[&op.state],
            &[&op.qkv, &op.alpha, &op.beta, &op.a, &op.dt_bias, &op.control.0],
        )?;
        Ok(Self {
            control: bind.control(&op.control)?,
            qkv: bind.view(&op.qkv)?,
            alpha: bind.view(&op.alpha)?,
            beta: bind.view(&op.beta)?,
            a: bind.view(&op.a)?,
            dt_bias: bind.view(&op.dt_bias)?,
            state: bind.view(&op.state)?,
            rows: rows.min(alphas).min(betas),
            key_heads,
            value_heads,
            dk,
            dv,
            head_map: op.head_map,
            eps: op.eps,
            isa: bind.isa(),
        })
    }

    /// Floats of scratch memory that `rows` rows need.
    pub(super) fn floats(&self, rows: usize) -> Option<usize> {
        rows.checked_mul(self.record())
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

    /// First phase: this worker's share of `count` rows, of which `row` gives the
    /// `i`th. A barrier has to follow.
    pub(super) fn ready(
        &self,
        worker: &Worker<'_>,
        scratch: Span<f32>,
        count: usize,
        row: impl Fn(usize) -> usize,
    ) {
        let heads = self.key_heads + self.value_heads;
        for item in worker.share(count * heads, 1) {
            self.ready_head(scratch, row(item / heads), item % heads);
        }
    }

    /// One head of one row: key heads first, then value heads.
    fn ready_head(&self, scratch: Span<f32>, row: usize, head: usize) {
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

    /// Number of parts of the state.
    pub(super) fn parts(&self) -> usize {
        self.value_heads * self.dv.div_ceil(SLAB)
    }

    /// One of the parts.
    pub(super) fn part(&self, index: usize) -> Part {
        let per_head = self.dv.div_ceil(SLAB);
        let (head, start) = (index / per_head, index % per_head * SLAB);
        Part { head, first: head * self.dv + start, len: SLAB.min(self.dv - start) }
    }

    /// A token as the slabs of one value head see it.
    pub(super) fn token(&self, scratch: Span<f32>, row: usize, head: usize) -> Token<'static> {
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

    /// What a row brings to a part.
    pub(super) fn values(&self, row: usize, part: &Part) -> &[f32] {
        let before = 2 * self.key_heads * self.dk;
        let at = row * (before + self.value_heads * self.dv) + before + part.first;
        // SAFETY: inputs of an operation are not written while it runs.
        unsafe { self.qkv.read(at..at + part.len) }
    }

    /// Where a part of a row's output goes.
    pub(super) fn output(&self, row: usize, part: &Part) -> Range<usize> {
        let at = row * self.value_heads * self.dv + part.first;
        at..at + part.len
    }

    /// Where the state of a part is.
    pub(super) fn slab(&self, part: &Part) -> Range<usize> {
        part.first * self.dk..(part.first + part.len) * self.dk
    }

    /// Second phase: takes a part of the state through rows, and leaves it as it is
    /// after the last of them.
    pub(super) fn advance(
        &self,
        scratch: Span<f32>,
        rows: impl Iterator<Item = usize>,
        part: &Part,
        out: Option<&View<f32>>,
    ) {
        // SAFETY: each part of the state belongs to one worker.
        let state = unsafe { self.state.write(self.slab(part)) };
        let (mut writes, mut unused) = ([0.0; SLAB], [0.0; SLAB]);
        let mut slab = Slab { state, writes: &mut writes[..part.len] };
        let mut before = None;
        for row in rows {
            let token = self.token(scratch, row, part.head);
            let out = match out {
                // SAFETY: the outputs of a part belong to one worker.
                Some(out) => unsafe { out.write(self.output(row, part)) },
                None => &mut unused[..part.len],
            };
            let values = self.values(row, part);
            delta_slab::advance(self.isa, &mut slab, before.as_ref(), &token, values, out);
            before = Some(token);
        }
        if let Some(before) = &before {
            settle(self.isa, &mut slab, before);
        }
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
