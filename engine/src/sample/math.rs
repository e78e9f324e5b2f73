//! Exponentials and sums that give the same bits on every platform.
//!
//! `f64::exp` of the standard library is the platform's own and may differ in the last bit,
//! which could move a top-p cut or a draw. Here only IEEE multiplies and adds are used (Rust
//! never fuses them), in a fixed order.

use super::RequestFault;

/// Below this the result would be subnormal; it is taken as 0.
const SMALLEST: f64 = -708.0;
/// ln 2 in two parts; the first has 21 trailing zero bits, so small multiples are exact.
const LN_2_HIGH: f64 = f64::from_bits(0x3fe6_2e42_fee0_0000);
const LN_2_LOW: f64 = f64::from_bits(0x3dea_39ef_3579_3c76);
/// Adding 1.5 * 2^52 rounds to an integer and leaves it in the low bits.
const ROUND: f64 = 6_755_399_441_055_744.0;
/// 1/13! down to 1/0!: with |r| <= ln(2)/2 the first term left out is below 5e-18.
const TAYLOR: [f64; 14] = [
    1.0 / 6_227_020_800.0,
    1.0 / 479_001_600.0,
    1.0 / 39_916_800.0,
    1.0 / 3_628_800.0,
    1.0 / 362_880.0,
    1.0 / 40_320.0,
    1.0 / 5_040.0,
    1.0 / 720.0,
    1.0 / 120.0,
    1.0 / 24.0,
    1.0 / 6.0,
    0.5,
    1.0,
    1.0,
];

/// e^x for x <= 0 within 2 units in the last place; 0 below -708 and for -inf.
#[inline]
pub(super) fn exp(x: f64) -> f64 {
    let bounded = if x < SMALLEST { SMALLEST } else { x };
    let rounded = bounded * std::f64::consts::LOG2_E + ROUND;
    let n = rounded - ROUND;
    let r = (bounded - n * LN_2_HIGH) - n * LN_2_LOW;
    let series = TAYLOR.iter().fold(0.0, |sum, &c| sum * r + c);
    let scale = f64::from_bits(rounded.to_bits().wrapping_add(1023) << 52);
    if x < SMALLEST { 0.0 } else { series * scale }
}

/// Sum of e^(logit - max) over all logits, in eight interleaved lanes.
pub(super) fn sum_exp(logits: &[f32], max: f32) -> f64 {
    let max = f64::from(max);
    let mut lanes = [0.0f64; 8];
    let chunks = logits.chunks_exact(8);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane += exp(f64::from(x) - max);
        }
    }
    for (lane, &x) in lanes.iter_mut().zip(rest) {
        *lane += exp(f64::from(x) - max);
    }
    let [a, b, c, d, e, f, g, h] = lanes;
    ((a + e) + (c + g)) + ((b + f) + (d + h))
}

/// The highest logit.
///
/// # Errors
/// `NonFiniteLogit` for the first NaN or +inf, `NoCandidates` when all are -inf or there
/// are none.
pub(super) fn checked_max(logits: &[f32]) -> Result<f32, RequestFault> {
    let mut lanes = [f32::NEG_INFINITY; 8];
    let mut bad = [false; 8];
    let chunks = logits.chunks_exact(8);
    let rest = chunks.remainder();
    for chunk in chunks.chain(std::iter::once(rest)) {
        for ((lane, bad), &x) in lanes.iter_mut().zip(&mut bad).zip(chunk) {
            *lane = if x > *lane { x } else { *lane };
            *bad |= x.is_nan() || x == f32::INFINITY;
        }
    }
    if bad.contains(&true) {
        let is_bad = |x: &&f32| x.is_nan() || **x == f32::INFINITY;
        if let Some((id, &value)) = (0u32..).zip(logits).find(|(_, x)| is_bad(x)) {
            return Err(RequestFault::NonFiniteLogit { id, value });
        }
    }
    let max = lanes.iter().fold(f32::NEG_INFINITY, |m, &x| if x > m { x } else { m });
    if max == f32::NEG_INFINITY { Err(RequestFault::NoCandidates) } else { Ok(max) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_agrees_with_the_platform() {
        let mut worst = 0i64;
        for i in 0..200_000u32 {
            let x = -f64::from(i) * 708.0 / 200_000.0;
            let (ours, theirs) = (exp(x), x.exp());
            worst = worst.max((ours.to_bits() as i64 - theirs.to_bits() as i64).abs());
        }
        // Ours is within 2 ulp of the truth and the platform's within 1.
        assert!(worst <= 3, "{worst} ulp apart");
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-0.0), 1.0);
        assert_eq!([exp(-708.1), exp(-1e300), exp(f64::NEG_INFINITY)], [0.0; 3]);
        assert!(exp(-708.0) > 0.0);
    }

    /// Bits fixed for good: another platform, or a change of the code, must give the same.
    #[test]
    fn exp_bits_are_fixed() {
        let bits = [-0.1, -1.0, -10.0, -100.0, -700.0].map(|x| exp(x).to_bits());
        let expected = [
            0x3fecf46d99d52b3a,
            0x3fd78b56362cef38,
            0x3f07cd79b5647c9a,
            0x36ea8c1f14e2af5d,
            0x00d14f2b0fb9307fu64,
        ];
        assert_eq!(bits, expected, "{bits:#x?}");
    }

    #[test]
    fn max_and_its_faults() {
        for len in 1..40 {
            for at in 0..len {
                let mut logits = vec![-1.5f32; len];
                logits[at] = 2.0;
                assert_eq!(checked_max(&logits), Ok(2.0));
                for bad in [f32::NAN, f32::INFINITY] {
                    logits[at] = bad;
                    let fault = checked_max(&logits).unwrap_err();
                    let RequestFault::NonFiniteLogit { id, .. } = fault else { panic!("{fault}") };
                    assert_eq!(id as usize, at);
                }
            }
        }
        assert_eq!(checked_max(&[]), Err(RequestFault::NoCandidates));
        assert_eq!(checked_max(&[f32::NEG_INFINITY; 9]), Err(RequestFault::NoCandidates));
    }

    #[test]
    fn sum_covers_the_remainder() {
        for len in 1..20 {
            let logits = vec![3.0f32; len];
            assert_eq!(sum_exp(&logits, 3.0), len as f64);
        }
    }
}
