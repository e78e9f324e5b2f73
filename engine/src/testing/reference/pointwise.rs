//! Norms, activations, products, top-k.

pub(crate) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

pub(crate) fn silu(x: f64) -> f64 {
    x * sigmoid(x)
}

/// One row: `x / sqrt(mean(x^2) + eps) * weight`.
pub(crate) fn rms_norm(x: &[f32], weight: &[f32], eps: f32) -> Vec<f64> {
    let squares: f64 = x.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
    let root = (squares / x.len() as f64 + f64::from(eps)).sqrt();
    x.iter().zip(weight).map(|(&x, &w)| f64::from(x) / root * f64::from(w)).collect()
}

/// One head: `rms_norm(x) * silu(z)`.
pub(crate) fn gated_norm(x: &[f32], z: &[f32], weight: &[f32], eps: f32) -> Vec<f64> {
    let normed = rms_norm(x, weight, eps);
    normed.iter().zip(z).map(|(n, &z)| n * silu(f64::from(z))).collect()
}

/// One row of a product with weights of `x.len()` columns, and for each output the
/// sum of the magnitudes of its terms.
pub(crate) fn linear(x: &[f32], weights: &[f32]) -> Vec<(f64, f64)> {
    let one = |row: &[f32]| {
        let term = |(w, x): (&f32, &f32)| f64::from(*w) * f64::from(*x);
        let terms = row.iter().zip(x).map(term);
        terms.fold((0.0, 0.0), |(sum, size), t| (sum + t, size + t.abs()))
    };
    weights.chunks_exact(x.len()).map(one).collect()
}

/// Ids of the `k` largest values, ties to the lower id.
pub(crate) fn top_k(logits: &[f32], k: usize) -> Vec<usize> {
    let mut ids: Vec<usize> = (0..logits.len()).collect();
    let order = |a: &usize, b: &usize| logits[*b].partial_cmp(&logits[*a]);
    ids.sort_by(|a, b| order(a, b).unwrap_or(std::cmp::Ordering::Equal).then(a.cmp(b)));
    ids.truncate(k);
    ids
}

/// `ln sum exp(x)`.
pub(crate) fn log_sum_exp(logits: &[f32]) -> f64 {
    let max = logits.iter().fold(f64::NEG_INFINITY, |m, &x| m.max(f64::from(x)));
    max + logits.iter().map(|&x| (f64::from(x) - max).exp()).sum::<f64>().ln()
}
