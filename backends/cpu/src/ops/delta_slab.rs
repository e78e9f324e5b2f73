//! The inner loop of the gated delta rule: one pass over part of a state.

use crate::math::{LANES, Simd, per_isa};

/// Rows of the state in a slab: with 128 keys, 16 KiB.
pub(super) const SLAB: usize = 32;

/// What a token brings to one head.
#[derive(Clone, Copy)]
pub(super) struct Token<'a> {
    /// Unit-length key.
    pub(super) k: &'a [f32],
    /// Scaled query.
    pub(super) q: &'a [f32],
    /// `k q`.
    pub(super) kq: f32,
    /// `g`, already exponentiated.
    pub(super) decay: f32,
    /// `b`.
    pub(super) strength: f32,
}

/// A slab: rows of the state and, for each, the write the last token left.
pub(super) struct Slab<'a> {
    pub(super) state: &'a mut [f32],
    pub(super) writes: &'a mut [f32],
}

per_isa! {
    /// Takes the slab past a token: applies the decay of the token before and its
    /// writes, computes the outputs and leaves the token's own writes to be applied.
    pub(super) fn advance[s](
        slab: &mut Slab<'_>,
        before: Option<&Token<'_>>,
        token: &Token<'_>,
        values: &[f32],
        out: &mut [f32],
    ) {
        match before {
            Some(before) => visit::<_, true>(s, slab, before, token, values, out),
            None => visit::<_, false>(s, slab, token, token, values, out),
        }
    }
}

per_isa! {
    /// Applies the last token's decay and writes.
    pub(super) fn settle[s](slab: &mut Slab<'_>, before: &Token<'_>) {
        let dk = before.k.len();
        let (k, k_rest) = before.k.as_chunks::<LANES>();
        let decay = s.splat(before.decay);
        for (row, write) in slab.state.chunks_exact_mut(dk).zip(&*slab.writes) {
            let write = s.splat(*write);
            let (row, rest) = row.as_chunks_mut::<LANES>();
            for (x, k) in row.iter_mut().zip(k) {
                s.store(x, updated(s, s.load(x), decay, write, s.load(k)));
            }
            if !rest.is_empty() {
                let (x, k) = (s.load_part(rest), s.load_part(k_rest));
                s.store_part(rest, updated(s, x, decay, write, k));
            }
        }
    }
}

/// `x g + d k`.
#[inline(always)]
fn updated<S: Simd>(s: S, x: S::V, decay: S::V, write: S::V, k: S::V) -> S::V {
    s.fma(k, write, s.mul(x, decay))
}

/// All rows of a slab; `UPDATE` is whether there was a token before.
#[inline(always)]
fn visit<S: Simd, const UPDATE: bool>(
    s: S,
    slab: &mut Slab<'_>,
    before: &Token<'_>,
    token: &Token<'_>,
    values: &[f32],
    out: &mut [f32],
) {
    // As many rows share their loads of keys and queries as registers allow.
    let done = if S::WIDE {
        blocks::<S, 4, UPDATE>(s, slab, before, token, values, out, 0)
    } else {
        blocks::<S, 2, UPDATE>(s, slab, before, token, values, out, 0)
    };
    blocks::<S, 1, UPDATE>(s, slab, before, token, values, out, done);
}

/// Rows from `from` on, `N` at a time, as far as whole blocks go; returns where it
/// stopped.
#[inline(always)]
fn blocks<S: Simd, const N: usize, const UPDATE: bool>(
    s: S,
    slab: &mut Slab<'_>,
    before: &Token<'_>,
    token: &Token<'_>,
    values: &[f32],
    out: &mut [f32],
    from: usize,
) -> usize {
    let dk = token.k.len();
    let states = slab.state[from * dk..].chunks_exact_mut(N * dk);
    let writes = slab.writes[from..].as_chunks_mut::<N>().0;
    let (values, out) = (values[from..].as_chunks::<N>().0, out[from..].as_chunks_mut::<N>().0);
    let mut end = from;
    for (((state, writes), values), out) in states.zip(writes).zip(values).zip(out) {
        let [sk, sq] = sweep::<S, N, UPDATE>(s, state, before, writes, token);
        for i in 0..N {
            let d = token.strength * token.decay.mul_add(-sk[i], values[i]);
            out[i] = d.mul_add(token.kq, token.decay * sq[i]);
            writes[i] = d;
        }
        end += N;
    }
    end
}

/// Updates `N` rows of the state and takes their products with `k` and `q`, in the
/// order of [`dot`](crate::math::dot).
#[inline(always)]
fn sweep<S: Simd, const N: usize, const UPDATE: bool>(
    s: S,
    state: &mut [f32],
    before: &Token<'_>,
    writes: &[f32; N],
    token: &Token<'_>,
) -> [[f32; N]; 2] {
    let decay = s.splat(before.decay);
    let mut write = [s.splat(0.0); N];
    for i in 0..N {
        write[i] = s.splat(writes[i]);
    }
    let (mut by_k, mut by_q) = ([s.splat(0.0); N], [s.splat(0.0); N]);
    let (k, k_rest) = token.k.as_chunks::<LANES>();
    let (q, q_rest) = token.q.as_chunks::<LANES>();
    let (old, old_rest) = before.k.as_chunks::<LANES>();
    let (q, old) = (&q[..k.len()], &old[..k.len()]);
    let mut split = state.chunks_exact_mut(token.k.len()).map(|row| row.as_chunks_mut::<LANES>());
    // No vector passes through this closure.
    let rows: [(&mut [[f32; LANES]], &mut [f32]); N] =
        std::array::from_fn(|_| split.next().unwrap_or_default());
    for row in &rows {
        assert_eq!(row.0.len(), k.len());
    }
    for at in 0..k.len() {
        let (k, q, old) = (s.load(&k[at]), s.load(&q[at]), s.load(&old[at]));
        for i in 0..N {
            let place = &mut rows[i].0[at];
            let mut x = s.load(place);
            if UPDATE {
                x = updated(s, x, decay, write[i], old);
                s.store(place, x);
            }
            by_k[i] = s.fma(x, k, by_k[i]);
            by_q[i] = s.fma(x, q, by_q[i]);
        }
    }
    if !k_rest.is_empty() {
        let (k, q) = (s.load_part(k_rest), s.load_part(q_rest));
        let old = s.load_part(old_rest);
        for i in 0..N {
            let place = &mut *rows[i].1;
            let mut x = s.load_part(place);
            if UPDATE {
                x = updated(s, x, decay, write[i], old);
                s.store_part(place, x);
            }
            by_k[i] = s.fma(x, k, by_k[i]);
            by_q[i] = s.fma(x, q, by_q[i]);
        }
    }
    [lane_sums(s, by_k), lane_sums(s, by_q)]
}

/// The lane sums of up to four vectors.
#[inline(always)]
fn lane_sums<S: Simd, const N: usize>(s: S, x: [S::V; N]) -> [f32; N] {
    let last = N - 1;
    let sums = s.sums([x[0], x[1.min(last)], x[2.min(last)], x[3.min(last)]]);
    let mut first = [0.0; N];
    first.copy_from_slice(&sums[..N]);
    first
}
