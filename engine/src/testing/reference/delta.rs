//! The short convolution and the gated delta rule.

use super::pointwise::{sigmoid, silu};
use crate::kernel::HeadMap;

/// Outputs `[rows, C]` and the new state `[width - 1, C]`.
pub(crate) fn short_conv(
    x: &[f32],
    weight: &[f32],
    state: &[f32],
    channels: usize,
) -> (Vec<f64>, Vec<f32>) {
    let width = weight.len() / channels;
    let inputs: Vec<f32> = state.iter().chain(x).copied().collect();
    let rows = x.len() / channels;
    let one = |t: usize, c: usize| {
        let term =
            |j: usize| f64::from(weight[c * width + j]) * f64::from(inputs[(t + j) * channels + c]);
        silu((0..width).map(term).sum())
    };
    let out = (0..rows * channels).map(|i| one(i / channels, i % channels)).collect();
    (out, inputs[rows * channels..].to_vec())
}

/// Operands of the delta rule.
pub(crate) struct Delta<'a> {
    pub(crate) qkv: &'a [f32],
    pub(crate) alpha: &'a [f32],
    pub(crate) beta: &'a [f32],
    pub(crate) a: &'a [f32],
    pub(crate) dt_bias: &'a [f32],
    pub(crate) key_heads: usize,
    pub(crate) dk: usize,
    pub(crate) dv: usize,
    pub(crate) map: HeadMap,
    pub(crate) eps: f32,
}

/// Outputs `[rows, Hv, dv]`; `state` `[Hv, dv, dk]` is carried on.
pub(crate) fn gated_delta(op: &Delta<'_>, state: &mut [f64]) -> Vec<f64> {
    let (hv, hk, dk, dv) = (op.a.len(), op.key_heads, op.dk, op.dv);
    let width = 2 * hk * dk + hv * dv;
    let unit = |x: &[f32]| -> Vec<f64> {
        let squares: f64 = x.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
        let root = (squares + f64::from(op.eps)).sqrt();
        x.iter().map(|&x| f64::from(x) / root).collect()
    };
    let mut out = Vec::new();
    for (t, row) in op.qkv.chunks_exact(width).enumerate() {
        for h in 0..hv {
            let kh = match op.map {
                HeadMap::Grouped => h / (hv / hk),
                HeadMap::Tiled => h % hk,
            };
            let q: Vec<f64> = unit(&row[kh * dk..(kh + 1) * dk]);
            let k = unit(&row[(hk + kh) * dk..(hk + kh + 1) * dk]);
            let v = &row[2 * hk * dk + h * dv..][..dv];
            let x = f64::from(op.alpha[t * hv + h]) + f64::from(op.dt_bias[h]);
            let softplus = if x > 30.0 { x } else { x.exp().ln_1p() };
            let decay = (f64::from(op.a[h]) * softplus).exp();
            let b = sigmoid(f64::from(op.beta[t * hv + h]));
            for (i, s) in state[h * dv * dk..(h + 1) * dv * dk].chunks_exact_mut(dk).enumerate() {
                s.iter_mut().for_each(|s| *s *= decay);
                let dot = |s: &[f64], x: &[f64]| s.iter().zip(x).map(|(a, b)| a * b).sum::<f64>();
                let d = b * (f64::from(v[i]) - dot(s, &k));
                s.iter_mut().zip(&k).for_each(|(s, k)| *s += d * k);
                out.push(dot(s, &q) / (dk as f64).sqrt());
            }
        }
    }
    out
}
