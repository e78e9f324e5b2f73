//! Keys and values as floats, and the products over them.

use std::ops::Range;

use crate::math::{LANES, Simd, bf16_to_f32, f16_to_f32, per_isa};

/// Keys converted at a time.
pub(super) const TILE: usize = 16;

/// Some keys or values, as floats.
#[derive(Clone, Copy)]
pub(super) struct Tile<'a> {
    /// The first begins here.
    pub(super) data: &'a [f32],
    /// From one to the next.
    pub(super) pitch: usize,
    /// How many.
    pub(super) count: usize,
}

impl<'a> Tile<'a> {
    /// Some of them, at least one.
    pub(super) fn part(&self, range: Range<usize>) -> Tile<'a> {
        let data = &self.data[range.start * self.pitch..];
        Tile { data, pitch: self.pitch, count: range.len() }
    }
}

per_isa! {
    /// Decodes binary16.
    pub(super) fn widen_f16[_s](from: &[u16], to: &mut [f32]) {
        for (t, f) in to.iter_mut().zip(from) {
            *t = f16_to_f32(*f);
        }
    }
}

per_isa! {
    /// Decodes bfloat16.
    pub(super) fn widen_bf16[_s](from: &[u16], to: &mut [f32]) {
        for (t, f) in to.iter_mut().zip(from) {
            *t = bf16_to_f32(*f);
        }
    }
}

per_isa! {
    /// Scores of queries against a tile of keys: `out[q * stride + key]` is the product,
    /// in the order of [`dot`](crate::math::dot), times `scale`.
    pub(super) fn scores[s](
        queries: &[&[f32]],
        keys: Tile<'_>,
        scale: f32,
        out: &mut [f32],
        stride: usize,
    ) {
        score_all(s, queries, &keys, scale, out, stride);
    }
}

#[inline(always)]
fn score_all<S: Simd>(
    s: S,
    queries: &[&[f32]],
    keys: &Tile<'_>,
    scale: f32,
    out: &mut [f32],
    stride: usize,
) {
    let mut left = queries;
    let mut at = 0;
    while let [first, rest @ ..] = left {
        let out = &mut out[at * stride..];
        match left {
            [a, b, c, d, rest @ ..] if S::WIDE => {
                score_block::<S, 4>(s, [a, b, c, d], keys, scale, out, stride);
                (left, at) = (rest, at + 4);
            }
            [a, b, rest @ ..] => {
                score_block::<S, 2>(s, [a, b], keys, scale, out, stride);
                (left, at) = (rest, at + 2);
            }
            _ => {
                score_block::<S, 1>(s, [first], keys, scale, out, stride);
                (left, at) = (rest, at + 1);
            }
        }
    }
}

/// `Q` queries with all keys, four keys at a time.
#[inline(always)]
fn score_block<S: Simd, const Q: usize>(
    s: S,
    queries: [&[f32]; Q],
    keys: &Tile<'_>,
    scale: f32,
    out: &mut [f32],
    stride: usize,
) {
    let (d, count) = (queries[0].len(), keys.count);
    for start in (0..count).step_by(4) {
        // Past the last key, it is taken again and the result dropped.
        let four = [0, 1, 2, 3].map(|i| {
            let key = (start + i).min(count - 1);
            &keys.data[key * keys.pitch..key * keys.pitch + d]
        });
        let sums = products::<S, Q>(s, queries, four);
        for (q, sums) in sums.iter().enumerate() {
            let out = &mut out[q * stride + start..q * stride + count.min(start + 4)];
            for (out, sum) in out.iter_mut().zip(sums) {
                *out = sum * scale;
            }
        }
    }
}

/// The products of `Q` queries with four keys.
#[inline(always)]
fn products<S: Simd, const Q: usize>(s: S, q: [&[f32]; Q], k: [&[f32]; 4]) -> [[f32; 4]; Q] {
    let n = q[0].len() / LANES;
    let mut acc = [[s.splat(0.0); 4]; Q];
    let k_parts = k.map(|k| k.as_chunks::<LANES>());
    let q_parts = q.map(|q| q.as_chunks::<LANES>());
    for at in 0..n {
        let mut keys = [s.splat(0.0); 4];
        for i in 0..4 {
            keys[i] = s.load(&k_parts[i].0[at]);
        }
        for j in 0..Q {
            let query = s.load(&q_parts[j].0[at]);
            for i in 0..4 {
                acc[j][i] = s.fma(query, keys[i], acc[j][i]);
            }
        }
    }
    if n * LANES < q[0].len() {
        let mut keys = [s.splat(0.0); 4];
        for i in 0..4 {
            keys[i] = s.load_part(k_parts[i].1);
        }
        for j in 0..Q {
            let query = s.load_part(q_parts[j].1);
            for i in 0..4 {
                acc[j][i] = s.fma(query, keys[i], acc[j][i]);
            }
        }
    }
    let mut sums = [[0.0; 4]; Q];
    for j in 0..Q {
        sums[j] = s.sums(acc[j]);
    }
    sums
}

per_isa! {
    /// Adds `p[q * stride + key] * values[key]` to each query's sum, keys ascending;
    /// `sums` holds the queries' sums of `d` values one after another.
    pub(super) fn weigh[s](
        p: &[f32],
        stride: usize,
        values: Tile<'_>,
        sums: &mut [f32],
        d: usize,
    ) {
        weigh_all(s, p, stride, &values, sums, d);
    }
}

#[inline(always)]
fn weigh_all<S: Simd>(
    s: S,
    p: &[f32],
    stride: usize,
    values: &Tile<'_>,
    sums: &mut [f32],
    d: usize,
) {
    let queries = sums.len() / d;
    let mut at = 0;
    while at < queries {
        let (p, sums) = (&p[at * stride..], &mut sums[at * d..]);
        at += match queries - at {
            4.. if S::WIDE => weigh_block::<S, 4, 4>(s, p, stride, values, sums, d),
            2.. => weigh_block::<S, 2, 2>(s, p, stride, values, sums, d),
            _ => weigh_block::<S, 1, 4>(s, p, stride, values, sums, d),
        };
    }
}

/// `Q` queries, `C` vectors of each value at a time; returns `Q`.
#[inline(always)]
fn weigh_block<S: Simd, const Q: usize, const C: usize>(
    s: S,
    p: &[f32],
    stride: usize,
    values: &Tile<'_>,
    sums: &mut [f32],
    d: usize,
) -> usize {
    let mut at = 0;
    // Plain index loops: adaptors and closures may end up as calls in builds that
    // optimise little.
    while at + C * LANES <= d {
        let mut acc = [[s.splat(0.0); C]; Q];
        for q in 0..Q {
            let from = sums[q * d + at..][..C * LANES].as_chunks::<LANES>().0;
            for c in 0..C {
                acc[q][c] = s.load(&from[c]);
            }
        }
        for key in 0..values.count {
            let from = values.data[key * values.pitch + at..][..C * LANES].as_chunks::<LANES>().0;
            let mut v = [s.splat(0.0); C];
            for c in 0..C {
                v[c] = s.load(&from[c]);
            }
            for q in 0..Q {
                let weight = s.splat(p[q * stride + key]);
                for c in 0..C {
                    acc[q][c] = s.fma(weight, v[c], acc[q][c]);
                }
            }
        }
        for q in 0..Q {
            let to = sums[q * d + at..][..C * LANES].as_chunks_mut::<LANES>().0;
            for c in 0..C {
                s.store(&mut to[c], acc[q][c]);
            }
        }
        at += C * LANES;
    }
    // What is left of a head whose size is not a multiple.
    if at < d {
        for q in 0..Q {
            for key in 0..values.count {
                let weight = p[q * stride + key];
                let rest = &values.data[key * values.pitch + at..key * values.pitch + d];
                for (sum, v) in sums[q * d + at..(q + 1) * d].iter_mut().zip(rest) {
                    *sum = weight.mul_add(*v, *sum);
                }
            }
        }
    }
    Q
}
