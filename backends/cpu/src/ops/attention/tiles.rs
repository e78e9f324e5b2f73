//! Keys and values as floats, and the products over them.

use crate::math::{
    LANES, Lanes, bf16_to_f32, f16_to_f32, fma, load, load_part, per_isa, splat, tree,
};
use crate::simd::Isa;

/// Keys converted at a time.
pub(super) const TILE: usize = 16;

per_isa! {
    /// Decodes binary16.
    pub(super) fn widen_f16(from: &[u16], to: &mut [f32]) {
        for (t, f) in to.iter_mut().zip(from) {
            *t = f16_to_f32(*f);
        }
    }
}

per_isa! {
    /// Decodes bfloat16.
    pub(super) fn widen_bf16(from: &[u16], to: &mut [f32]) {
        for (t, f) in to.iter_mut().zip(from) {
            *t = bf16_to_f32(*f);
        }
    }
}

/// Scores of some queries against a tile of keys: `scores[q * stride + key]`. A
/// score is the product in the fixed order, times `scale`.
pub(super) fn scores(
    isa: Isa,
    queries: &[&[f32]],
    keys: &[f32],
    scale: f32,
    scores: &mut [f32],
    stride: usize,
) {
    let wide = matches!(isa, Isa::Avx512 | Isa::Neon);
    let mut done = 0;
    while done < queries.len() {
        let out = &mut scores[done * stride..];
        let left = &queries[done..];
        done += match left {
            [a, b, c, d, ..] if wide => {
                scores_4(isa, &[a, b, c, d], keys, scale, out, stride);
                4
            }
            [a, b, ..] => {
                scores_2(isa, &[a, b], keys, scale, out, stride);
                2
            }
            _ => {
                scores_1(isa, &[left[0]], keys, scale, out, stride);
                1
            }
        };
    }
}

macro_rules! scores_of {
    ($($name:ident: $q:literal x $k:literal;)*) => {$(
        per_isa! {
            fn $name(q: &[&[f32]; $q], keys: &[f32], scale: f32, out: &mut [f32], stride: usize) {
                score_block::<$q, $k>(q, keys, scale, out, stride);
            }
        }
    )*};
}
scores_of! { scores_1: 1 x 4; scores_2: 2 x 2; scores_4: 4 x 4; }

#[inline(always)]
fn score_block<const Q: usize, const K: usize>(
    queries: &[&[f32]; Q],
    keys: &[f32],
    scale: f32,
    out: &mut [f32],
    stride: usize,
) {
    let d = queries[0].len();
    let mut key = 0;
    let mut blocks = keys.chunks_exact(d * K);
    for block in &mut blocks {
        let sums = products::<Q, K>(queries, block, d);
        for (q, sums) in sums.iter().enumerate() {
            for (k, sum) in sums.iter().enumerate() {
                out[q * stride + key + k] = sum * scale;
            }
        }
        key += K;
    }
    for one in blocks.remainder().chunks_exact(d) {
        let sums = products::<Q, 1>(queries, one, d);
        for (q, sums) in sums.iter().enumerate() {
            out[q * stride + key] = sums[0] * scale;
        }
        key += 1;
    }
}

/// The products of `Q` queries with `K` keys.
#[inline(always)]
fn products<const Q: usize, const K: usize>(
    queries: &[&[f32]; Q],
    keys: &[f32],
    d: usize,
) -> [[f32; K]; Q] {
    let mut sums = [[splat(0.0); K]; Q];
    let mut at = 0;
    while at < d {
        let end = d.min(at + LANES);
        let mut tile: [Lanes; K] = [splat(0.0); K];
        for (k, t) in tile.iter_mut().enumerate() {
            *t = part(&keys[k * d + at..k * d + end]);
        }
        for (q, sums) in queries.iter().zip(&mut sums) {
            let q = part(&q[at..end]);
            for (k, s) in tile.iter().zip(sums) {
                *s = fma(q, *k, *s);
            }
        }
        at = end;
    }
    sums.map(|row| row.map(tree))
}

#[inline(always)]
fn part(x: &[f32]) -> Lanes {
    if x.len() == LANES { load(x) } else { load_part(x) }
}

/// Adds `p[q * stride + key] * values[key]` to each query's sum, keys ascending.
/// `sums` holds the queries' sums one after another.
pub(super) fn weigh(
    isa: Isa,
    p: &[f32],
    stride: usize,
    values: &[f32],
    sums: &mut [f32],
    d: usize,
) {
    let queries = sums.len() / d;
    let mut done = 0;
    while done < queries {
        let (p, sums) = (&p[done * stride..], &mut sums[done * d..]);
        match queries - done {
            4.. => weigh_4(isa, p, stride, values, sums, d),
            2.. => weigh_2(isa, p, stride, values, sums, d),
            _ => weigh_1(isa, p, stride, values, sums, d),
        }
        done += match queries - done {
            4.. => 4,
            2.. => 2,
            _ => 1,
        };
    }
}

macro_rules! weigh_of {
    ($($name:ident: $q:literal x $c:literal;)*) => {$(
        per_isa! {
            fn $name(p: &[f32], stride: usize, values: &[f32], sums: &mut [f32], d: usize) {
                weigh_block::<$q, $c>(p, stride, values, sums, d);
            }
        }
    )*};
}
weigh_of! { weigh_1: 1 x 4; weigh_2: 2 x 2; weigh_4: 4 x 2; }

/// `Q` queries, `C` vectors of each value at a time.
#[inline(always)]
fn weigh_block<const Q: usize, const C: usize>(
    p: &[f32],
    stride: usize,
    values: &[f32],
    sums: &mut [f32],
    d: usize,
) {
    let mut at = 0;
    while at + C * LANES <= d {
        let mut acc = [[splat(0.0); C]; Q];
        for (q, acc) in acc.iter_mut().enumerate() {
            for (c, a) in acc.iter_mut().enumerate() {
                *a = load(&sums[q * d + at + c * LANES..]);
            }
        }
        for (key, value) in values.chunks_exact(d).enumerate() {
            let mut v: [Lanes; C] = [splat(0.0); C];
            for (c, v) in v.iter_mut().enumerate() {
                *v = load(&value[at + c * LANES..]);
            }
            for (q, acc) in acc.iter_mut().enumerate() {
                let weight = splat(p[q * stride + key]);
                for (a, v) in acc.iter_mut().zip(&v) {
                    *a = fma(weight, *v, *a);
                }
            }
        }
        for (q, acc) in acc.iter().enumerate() {
            for (c, a) in acc.iter().enumerate() {
                sums[q * d + at + c * LANES..][..LANES].copy_from_slice(a);
            }
        }
        at += C * LANES;
    }
    for q in 0..Q {
        for (key, value) in values.chunks_exact(d).enumerate() {
            let weight = p[q * stride + key];
            for (s, v) in sums[q * d + at..(q + 1) * d].iter_mut().zip(&value[at..]) {
                *s = weight.mul_add(*v, *s);
            }
        }
    }
}
