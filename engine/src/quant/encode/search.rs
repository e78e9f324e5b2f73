//! What the searches of Q4_K and Q6_K share.

use super::OutOfRange;

/// Weights of squared errors: RMS of the sub-block plus the value's magnitude. Large
/// weights of a model matter a little more than their share of the squared error, and
/// the RMS keeps small ones from being given up.
pub(super) fn weights<const N: usize>(x: &[f64; N]) -> [f64; N] {
    let rms = (x.iter().map(|x| x * x).sum::<f64>() / N as f64).sqrt();
    x.map(|x| rms + x.abs())
}

/// The value of the largest magnitude, sign and all; 0 when there is none.
pub(super) fn extreme(x: &[f64]) -> f64 {
    x.iter().fold(0.0, |a: f64, &x| if x.abs() > a.abs() { x } else { a })
}

/// The least `f16` that is not smaller in magnitude than `x`: its bytes and value.
/// Rounding away from zero keeps quotients within the range of their codes, and keeps
/// a small factor from vanishing.
pub(super) fn f16_covering(x: f64) -> Result<([u8; 2], f64), OutOfRange> {
    let mut y = half::f16::from_f64(x);
    if y.to_f64().abs() < x.abs() {
        // One step up in magnitude; past the largest finite value this is infinity.
        y = half::f16::from_bits(y.to_bits() + 1);
    }
    if y.is_finite() { Ok((y.to_le_bytes(), y.to_f64())) } else { Err(OutOfRange) }
}
