//! Q6_K: sixteen sub-blocks of 16, each `scale * level` with levels -32 to 31 and a
//! signed 8-bit multiple of the block's factor for scale.
//!
//! The search is that of Q4_K without a min. Scales may be negative: the level -32 has
//! no counterpart, so both signs are tried.

use std::array::from_fn;

use super::OutOfRange;
use super::search::{extreme, f16_covering, weights};

/// Spans tried, in levels from zero to the largest magnitude: 28 to 32.5 in halves.
const TRIALS: u8 = 10;
/// Times that levels and least squares alternate.
const ROUNDS: u8 = 2;

/// A sub-block: values and the weights of their squared errors.
struct Sub {
    x: [f64; 16],
    weight: [f64; 16],
}

/// The level nearest to each value; 0 everywhere if the scale is zero.
fn levels(x: &[f64; 16], scale: f64) -> [i8; 16] {
    let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
    x.map(|x| ((x * inverse).clamp(-32.0, 31.0) + 32.5) as i8 - 32)
}

impl Sub {
    fn new(values: &[f32; 16]) -> Self {
        let x = values.map(f64::from);
        Self { x, weight: weights(&x) }
    }

    fn error(&self, scale: f64, levels: &[i8; 16]) -> f64 {
        let terms = self.x.iter().zip(&self.weight).zip(levels);
        terms.map(|((x, w), &q)| w * (scale * f64::from(q) - x).powi(2)).sum()
    }

    /// Least squares over the scale for given levels.
    fn solve(&self, levels: &[i8; 16]) -> Option<f64> {
        let (mut wxq, mut wqq) = (0.0, 0.0);
        for ((&x, &w), &q) in self.x.iter().zip(&self.weight).zip(levels) {
            let q = f64::from(q);
            wxq += w * x * q;
            wqq += w * q * q;
        }
        (wqq > 0.0).then(|| wxq / wqq)
    }

    fn fit(&self) -> f64 {
        let extreme = extreme(&self.x);
        let mut best = (self.error(0.0, &[0; 16]), 0.0);
        for trial in 0..TRIALS {
            let span = 28.0 + 0.5 * f64::from(trial);
            for signed in [span, -span] {
                let mut scale = extreme / signed;
                for _ in 0..ROUNDS {
                    let levels = levels(&self.x, scale);
                    let Some(solved) = self.solve(&levels) else { break };
                    let error = self.error(solved, &levels);
                    if error < best.0 {
                        best = (error, solved);
                    }
                    scale = solved;
                }
            }
        }
        best.1
    }

    /// The multiple of the block's factor, and the levels, that leave the least error
    /// among the multiples next to `fit`.
    fn quantise(&self, fit: f64, factor: f64) -> (i8, [i8; 16]) {
        let nearest = if factor == 0.0 { 0.0 } else { (fit / factor).round() };
        let mut best = (f64::INFINITY, 0, [0; 16]);
        for step in [-1.0, 0.0, 1.0] {
            let multiple = (nearest + step) as i8;
            let scale = factor * f64::from(multiple);
            let levels = levels(&self.x, scale);
            let error = self.error(scale, &levels);
            if error < best.0 {
                best = (error, multiple, levels);
            }
        }
        (best.1, best.2)
    }
}

/// Encodes one block; layout as in [`kquant::q6_k`](super::super::kquant::q6_k).
pub(super) fn encode(values: &[f32; 256], out: &mut [u8; 210]) -> Result<(), OutOfRange> {
    let values = values.as_chunks::<16>().0;
    let subs: [Sub; 16] = from_fn(|j| Sub::new(&values[j]));
    let fits: [f64; 16] = from_fn(|j| subs[j].fit());
    // -128 has no counterpart either: the largest scale takes it.
    let (d, factor) = f16_covering(extreme(&fits) / -128.0)?;
    out[208..].copy_from_slice(&d);

    let mut codes = [0; 256];
    for (j, run) in codes.chunks_exact_mut(16).enumerate() {
        let (multiple, levels) = subs[j].quantise(fits[j], factor);
        out[192 + j] = multiple as u8;
        for (code, level) in run.iter_mut().zip(levels) {
            *code = (level + 32) as u8;
        }
    }
    let (low, high) = out[..192].split_at_mut(128);
    for (half, bytes) in codes.chunks_exact(128).zip(low.chunks_exact_mut(64)) {
        for (l, byte) in bytes.iter_mut().enumerate() {
            *byte = (half[l] & 15) | ((half[l + 64] & 15) << 4);
        }
    }
    for (half, bytes) in codes.chunks_exact(128).zip(high.chunks_exact_mut(32)) {
        for (l, byte) in bytes.iter_mut().enumerate() {
            *byte = (0..4).fold(0, |b, j| b | ((half[l + 32 * j] >> 4) << (2 * j)));
        }
    }
    Ok(())
}
