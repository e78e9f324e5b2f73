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

/// Outputs `[rows, C]` of the rows of a tree; `parents` are -1 for row 0.
pub(crate) fn short_conv_tree(
    x: &[f32],
    weight: &[f32],
    state: &[f32],
    channels: usize,
    parents: &[i32],
) -> Vec<f64> {
    let width = weight.len() / channels;
    let mut out = Vec::new();
    for row in 0..parents.len() {
        // The rows of inputs, the newest first.
        let mut inputs = Vec::new();
        let mut at = row as i32;
        while let Ok(node) = usize::try_from(at) {
            inputs.push(&x[node * channels..]);
            at = parents[node];
        }
        inputs.extend((0..width - 1).rev().map(|past| &state[past * channels..]));
        for c in 0..channels {
            let tap = |j: usize| f64::from(weight[c * width + j]);
            let term = |j: usize| tap(j) * f64::from(inputs[width - 1 - j][c]);
            out.push(silu((0..width).map(term).sum()));
        }
    }
    out
}

/// The state `[width - 1, C]` after the rows of a path.
pub(crate) fn conv_commit(x: &[f32], state: &[f32], channels: usize, path: &[usize]) -> Vec<f32> {
    let new = path.iter().flat_map(|row| &x[row * channels..][..channels]);
    let all: Vec<f32> = state.iter().chain(new).copied().collect();
    all[all.len() - state.len()..].to_vec()
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
    let rows = op.alpha.len() / op.a.len();
    (0..rows).flat_map(|row| gated_delta_row(op, row, state)).collect()
}

/// Outputs of the rows of a tree, each from the state its parent leaves.
pub(crate) fn gated_delta_tree(op: &Delta<'_>, state: &[f64], parents: &[i32]) -> Vec<f64> {
    let (mut out, mut states) = (Vec::new(), Vec::<Vec<f64>>::new());
    for (row, &parent) in parents.iter().enumerate() {
        let mut own = match usize::try_from(parent) {
            Ok(parent) => states[parent].clone(),
            Err(_) => state.to_vec(),
        };
        out.extend(gated_delta_row(op, row, &mut own));
        states.push(own);
    }
    out
}

/// The outputs of one row; `state` is brought past it.
pub(crate) fn gated_delta_row(op: &Delta<'_>, t: usize, state: &mut [f64]) -> Vec<f64> {
    let (hv, hk, dk, dv) = (op.a.len(), op.key_heads, op.dk, op.dv);
    let width = 2 * hk * dk + hv * dv;
    let unit = |x: &[f32]| -> Vec<f64> {
        let squares: f64 = x.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
        let root = (squares + f64::from(op.eps)).sqrt();
        x.iter().map(|&x| f64::from(x) / root).collect()
    };
    let row = &op.qkv[t * width..(t + 1) * width];
    let mut out = Vec::new();
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
    out
}
