//! Q4_K: eight sub-blocks of 32, each `scale * code - min` with 4-bit codes and 6-bit
//! multiples of the block's two factors for scale and min.
//!
//! Each sub-block is fitted on its own: trial spans give codes, codes give scale and
//! min by weighted least squares, and these give codes again. The largest scale and
//! min set the block's factors; each sub-block then takes the multiples near its fit
//! that leave the least error. Sums are in `f64`, where the square of any `f32` fits.

use std::array::from_fn;
use std::ops::RangeInclusive;

use super::OutOfRange;
use super::search::{f16_covering, weights};

/// Spans tried, in codes from the lowest value to the highest: 13 to 17 in halves.
/// Spans past 15 clip the ends, which pays when few values lie there.
const TRIALS: u8 = 9;
/// Times that codes and least squares alternate. Further rounds gain under 0.1%.
const ROUNDS: u8 = 2;

/// A sub-block: values and the weights of their squared errors.
struct Sub {
    x: [f64; 32],
    weight: [f64; 32],
}

/// What turns codes into values: `scale * code - min`, neither negative.
#[derive(Clone, Copy)]
struct Fit {
    scale: f64,
    min: f64,
}

impl Fit {
    /// The code nearest to each value; 0 everywhere if the scale is zero.
    fn codes(self, x: &[f64; 32]) -> [u8; 32] {
        let inverse = if self.scale > 0.0 { 1.0 / self.scale } else { 0.0 };
        x.map(|x| (((x + self.min) * inverse).clamp(0.0, 15.0) + 0.5) as u8)
    }
}

impl Sub {
    fn new(values: &[f32; 32]) -> Self {
        let x = values.map(f64::from);
        Self { x, weight: weights(&x) }
    }

    fn error(&self, fit: Fit, codes: &[u8; 32]) -> f64 {
        let terms = self.x.iter().zip(&self.weight).zip(codes);
        terms.map(|((x, w), &q)| w * (fit.scale * f64::from(q) - fit.min - x).powi(2)).sum()
    }

    /// Least squares over scale and min for given codes, with a min that is not
    /// negative; `None` when the codes give no positive scale.
    fn solve(&self, codes: &[u8; 32]) -> Option<Fit> {
        let (mut w1, mut wq, mut wqq, mut wx, mut wxq) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for ((&x, &w), &q) in self.x.iter().zip(&self.weight).zip(codes) {
            let q = f64::from(q);
            w1 += w;
            wq += w * q;
            wqq += w * q * q;
            wx += w * x;
            wxq += w * x * q;
        }
        // Zero but for rounding when all codes are the same.
        let determinant = w1 * wqq - wq * wq;
        let min = (wq * wxq - wqq * wx) / determinant;
        let fit = if determinant > 1e-9 * w1 * wqq && min > 0.0 {
            Fit { scale: (w1 * wxq - wq * wx) / determinant, min }
        } else {
            Fit { scale: wxq / wqq, min: 0.0 }
        };
        (fit.scale.is_finite() && fit.scale > 0.0).then_some(fit)
    }

    fn fit(&self) -> Fit {
        // A min is not negative, so the codes start at zero or below.
        let low = self.x.iter().copied().fold(0.0, f64::min);
        let high = self.x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let flat = Fit { scale: 0.0, min: -low };
        let mut best = (self.error(flat, &[0; 32]), flat);
        for trial in 0..TRIALS {
            let span = 13.0 + 0.5 * f64::from(trial);
            let mut fit = Fit { scale: (high - low) / span, min: -low };
            for _ in 0..ROUNDS {
                let codes = fit.codes(&self.x);
                let Some(solved) = self.solve(&codes) else { break };
                let error = self.error(solved, &codes);
                if error < best.0 {
                    best = (error, solved);
                }
                fit = solved;
            }
        }
        best.1
    }

    /// The multiples of the block's factors, and the codes, that leave the least
    /// error among those next to `fit`.
    fn quantise(&self, fit: Fit, factors: Fit) -> ((u8, u8), [u8; 32]) {
        let mut best = (f64::INFINITY, (0, 0), [0; 32]);
        for s in around(fit.scale, factors.scale) {
            for m in around(fit.min, factors.min) {
                let scale = factors.scale * f64::from(s);
                let trial = Fit { scale, min: factors.min * f64::from(m) };
                let codes = trial.codes(&self.x);
                let error = self.error(trial, &codes);
                if error < best.0 {
                    best = (error, (s, m), codes);
                }
            }
        }
        (best.1, best.2)
    }
}

/// The multiple of `factor` nearest to `x` and its neighbours, within 6 bits.
fn around(x: f64, factor: f64) -> RangeInclusive<u8> {
    let nearest = if factor > 0.0 { (x / factor + 0.5) as u8 } else { 0 };
    nearest.saturating_sub(1).min(63)..=nearest.saturating_add(1).min(63)
}

/// Encodes one block; layout as in [`kquant::q4_k`](super::super::kquant::q4_k).
pub(super) fn encode(values: &[f32; 256], out: &mut [u8; 144]) -> Result<(), OutOfRange> {
    let values = values.as_chunks::<32>().0;
    let subs: [Sub; 8] = from_fn(|j| Sub::new(&values[j]));
    let fits: [Fit; 8] = from_fn(|j| subs[j].fit());
    let most = |of: fn(&Fit) -> f64| fits.iter().map(of).fold(0.0, f64::max);
    let (d, scale) = f16_covering(most(|f| f.scale) / 63.0)?;
    let (dmin, min) = f16_covering(most(|f| f.min) / 63.0)?;
    out[..2].copy_from_slice(&d);
    out[2..4].copy_from_slice(&dmin);

    let done: [_; 8] = from_fn(|j| subs[j].quantise(fits[j], Fit { scale, min }));
    for j in 0..4 {
        let ((s, m), (s4, m4)) = (done[j].0, done[j + 4].0);
        out[4 + j] = s | ((s4 >> 4) << 6);
        out[8 + j] = m | ((m4 >> 4) << 6);
        out[12 + j] = (s4 & 15) | ((m4 & 15) << 4);
    }
    for (bytes, pair) in out[16..].chunks_exact_mut(32).zip(done.chunks_exact(2)) {
        for (l, byte) in bytes.iter_mut().enumerate() {
            *byte = pair[0].1[l] | (pair[1].1[l] << 4);
        }
    }
    Ok(())
}
