//! The inner loop of the gated delta rule: one pass over part of a state.

use crate::math::{LANES, Lanes, fma, load, load_part, mul_scalar, per_isa, splat, tree};

/// Rows of the state in a slab: with 128 keys, 16 KiB.
pub(super) const SLAB: usize = 32;

/// Rows that share their loads of keys and queries.
const BLOCK: usize = 4;

/// What a token brings to one head.
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

/// A token with a slab's values and outputs.
type Visit<'a> = (&'a Token<'a>, &'a [f32], &'a mut [f32]);

per_isa! {
    /// One pass over `state` (`writes.len()` rows of `dk`): applies the decay of the
    /// token before and its `writes`, then computes the outputs of `token` and leaves
    /// its writes to be applied by the next pass.
    pub(super) fn slab(
        state: &mut [f32],
        before: Option<&Token<'_>>,
        token: Option<Visit<'_>>,
        writes: &mut [f32],
    ) {
        let dk = state.len() / writes.len();
        let (mut states, mut pending) = (state.chunks_exact_mut(dk * BLOCK), writes.chunks_exact_mut(BLOCK));
        let mut done = 0;
        let mut token = token;
        for (s, w) in (&mut states).zip(&mut pending) {
            pass::<BLOCK>(s, dk, before, visit(&mut token, done), w);
            done += BLOCK;
        }
        let rest = states.into_remainder().chunks_exact_mut(dk);
        for (s, w) in rest.zip(pending.into_remainder().chunks_exact_mut(1)) {
            pass::<1>(s, dk, before, visit(&mut token, done), w);
            done += 1;
        }
    }
}

/// The part of a visit from row `from` on.
#[inline(always)]
fn visit<'a>(token: &'a mut Option<Visit<'_>>, from: usize) -> Option<Visit<'a>> {
    token.as_mut().map(|(token, values, out)| (&**token, &values[from..], &mut out[from..]))
}

/// One pass over `N` rows.
#[inline(always)]
fn pass<const N: usize>(
    state: &mut [f32],
    dk: usize,
    before: Option<&Token<'_>>,
    token: Option<Visit<'_>>,
    writes: &mut [f32],
) {
    let mut add = [0.0; N];
    add.copy_from_slice(&writes[..N]);
    match (before, token) {
        (Some(before), Some((token, values, out))) => {
            let dots = sweep::<N>(state, dk, |at, row, s| update(before, add[row], at, s), token);
            finish(dots, token, values, out, writes);
        }
        (None, Some((token, values, out))) => {
            let dots = sweep::<N>(state, dk, |_, _, s| s, token);
            finish(dots, token, values, out, writes);
        }
        (Some(before), None) => {
            for (row, s) in state.chunks_exact_mut(dk).enumerate() {
                for (at, s) in s.chunks_mut(LANES).enumerate() {
                    let new = update(before, add[row], at * LANES, part(s));
                    s.copy_from_slice(&new[..s.len()]);
                }
            }
        }
        (None, None) => {}
    }
}

/// `s g + d k` for sixteen keys.
#[inline(always)]
fn update(before: &Token<'_>, add: f32, at: usize, s: Lanes) -> Lanes {
    let k = part(&before.k[at..before.k.len().min(at + LANES)]);
    fma(k, splat(add), mul_scalar(s, before.decay))
}

#[inline(always)]
fn part(x: &[f32]) -> Lanes {
    if x.len() == LANES { load(x) } else { load_part(x) }
}

/// Updates `N` rows of the state and takes their products with `k` and `q`.
#[inline(always)]
fn sweep<const N: usize>(
    state: &mut [f32],
    dk: usize,
    update: impl Fn(usize, usize, Lanes) -> Lanes,
    token: &Token<'_>,
) -> [[f32; 2]; N] {
    let mut sums = [[splat(0.0); 2]; N];
    let mut at = 0;
    while at < dk {
        let end = dk.min(at + LANES);
        let (k, q) = (part(&token.k[at..end]), part(&token.q[at..end]));
        for (row, sums) in sums.iter_mut().enumerate() {
            let place = &mut state[row * dk + at..row * dk + end];
            let s = update(at, row, part(place));
            place.copy_from_slice(&s[..end - at]);
            sums[0] = fma(s, k, sums[0]);
            sums[1] = fma(s, q, sums[1]);
        }
        at = end;
    }
    sums.map(|[k, q]| [tree(k), tree(q)])
}

/// From the products to the outputs and the writes to come.
#[inline(always)]
fn finish<const N: usize>(
    dots: [[f32; 2]; N],
    token: &Token<'_>,
    values: &[f32],
    out: &mut [f32],
    writes: &mut [f32],
) {
    for (row, [sk, sq]) in dots.into_iter().enumerate() {
        let d = token.strength * token.decay.mul_add(-sk, values[row]);
        out[row] = d.mul_add(token.kq, token.decay * sq);
        writes[row] = d;
    }
}
