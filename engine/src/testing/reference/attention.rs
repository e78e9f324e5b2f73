//! Attention and rotary embedding.

use super::pointwise::rms_norm;

/// `rotary_dims / 2` cosines, then as many sines.
pub(crate) fn rope_angles(position: i32, theta: f64, dims: usize) -> Vec<f64> {
    let angle = |j: usize| f64::from(position) * theta.powf(-2.0 * j as f64 / dims as f64);
    let half = dims / 2;
    (0..half).map(|j| angle(j).cos()).chain((0..half).map(|j| angle(j).sin())).collect()
}

/// One head: norm, then rotation of its first `angles.len()` values.
pub(crate) fn qk_norm_rope(x: &[f32], weight: &[f32], eps: f32, angles: &[f32]) -> Vec<f64> {
    let mut y = rms_norm(x, weight, eps);
    let half = angles.len() / 2;
    for j in 0..half {
        let (c, s) = (f64::from(angles[j]), f64::from(angles[half + j]));
        let (a, b) = (y[j], y[j + half]);
        (y[j], y[j + half]) = (a * c - b * s, b * c + a * s);
    }
    y
}

/// Head counts and sizes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heads {
    pub(crate) q: usize,
    pub(crate) kv: usize,
    pub(crate) dim: usize,
    pub(crate) q_stride: usize,
}

/// Causal attention of `rows` queries over caches of `[context, kv, dim]`; row `i`
/// sees slots `0 ..= committed + i`.
pub(crate) fn attention(
    heads: Heads,
    q: &[f32],
    caches: (&[f32], &[f32]),
    rows: usize,
    committed: usize,
    scale: f32,
) -> Vec<f64> {
    let seen: Vec<Vec<usize>> = (0..rows).map(|row| (0..=committed + row).collect()).collect();
    attention_to(heads, q, caches, &seen, scale)
}

/// Attention of each row to the slots listed for it.
pub(crate) fn attention_to(
    heads: Heads,
    q: &[f32],
    (k, v): (&[f32], &[f32]),
    seen: &[Vec<usize>],
    scale: f32,
) -> Vec<f64> {
    let d = heads.dim;
    let mut out = Vec::with_capacity(seen.len() * heads.q * d);
    for (row, slots) in seen.iter().enumerate() {
        for head in 0..heads.q {
            let at = (row * heads.q + head) * heads.q_stride;
            let query = &q[at..at + d];
            let kv_head = head / (heads.q / heads.kv);
            let at = |i: usize| (i * heads.kv + kv_head) * d;
            let score = |&i: &usize| -> f64 {
                let key = &k[at(i)..at(i) + d];
                let terms = query.iter().zip(key).map(|(&q, &k)| f64::from(q) * f64::from(k));
                terms.sum::<f64>() * f64::from(scale)
            };
            let scores: Vec<f64> = slots.iter().map(score).collect();
            let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let p: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
            let sum: f64 = p.iter().sum();
            let mut mixed = vec![0.0; d];
            for (&i, p) in slots.iter().zip(&p) {
                let value = &v[at(i)..at(i) + d];
                mixed.iter_mut().zip(value).for_each(|(m, &v)| *m += p / sum * f64::from(v));
            }
            out.extend(mixed);
        }
    }
    out
}
