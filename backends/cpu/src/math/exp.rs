//! The exponential function and what is made of it.

/// `e^x`, within 2 units in the last place (measured: see the tests).
///
/// `x = n ln 2 + r` with `|r| <= ln 2 / 2`, the Taylor polynomial of degree 7 for
/// `e^r` (its error is below 2^-26), then `2^n` in two factors so that results down
/// to the smallest denormal come out right. NaN stays NaN.
#[inline(always)]
pub(crate) fn exp1(x: f32) -> f32 {
    // 1.5 * 2^23: adding it rounds to an integer that lands in the low bits.
    const MAGIC: f32 = 12_582_912.0;
    // ln 2 in two parts; the first has 15 bits, so its product with n is exact.
    const LN2_HIGH: f32 = 0.693_145_75;
    const LN2_LOW: f32 = 1.428_606_8e-6;
    // Past these the result is infinity or zero anyway. NaN passes both.
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.0 { -104.0 } else { x };
    let t = x.mul_add(std::f32::consts::LOG2_E, MAGIC);
    let n = t - MAGIC;
    let r = n.mul_add(-LN2_HIGH, x);
    let r = n.mul_add(-LN2_LOW, r);
    let mut p = 1.0 / 5040.0;
    p = r.mul_add(p, 1.0 / 720.0);
    p = r.mul_add(p, 1.0 / 120.0);
    p = r.mul_add(p, 1.0 / 24.0);
    p = r.mul_add(p, 1.0 / 6.0);
    p = r.mul_add(p, 0.5);
    p = (r * r).mul_add(p, r) + 1.0;
    let n = (t.to_bits() as i32).wrapping_sub(MAGIC.to_bits() as i32);
    let half = n >> 1;
    p * power_of_two(half) * power_of_two(n.wrapping_sub(half))
}

/// `2^n` for `-126 <= n <= 127`; anything else only ever meets a NaN.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub(crate) fn sigmoid1(x: f32) -> f32 {
    1.0 / (1.0 + exp1(-x))
}

/// `x * sigmoid(x)`. An infinity of either sign does not come out finite: `-inf` gives
/// NaN.
#[inline(always)]
pub(crate) fn silu1(x: f32) -> f32 {
    x * sigmoid1(x)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::per_isa;
    use crate::simd::Isa;

    per_isa! {
        fn exp_on[_s](x: &mut [f32]) {
            x.iter_mut().for_each(|x| *x = exp1(*x));
        }
    }

    per_isa! {
        fn silu_on[_s](x: &mut [f32]) {
            x.iter_mut().for_each(|x| *x = silu1(*x));
        }
    }

    /// Distance in units of the last place of the true value.
    fn ulps(got: f32, want: f64) -> f64 {
        let near = want as f32;
        if got == near {
            return 0.0;
        }
        let unit = f64::from(f32::from_bits(near.abs().to_bits() + 1)) - f64::from(near.abs());
        (f64::from(got) - want).abs() / unit
    }

    /// Floats spread evenly over the representation, both signs, up to `top`.
    fn spread(top: f32) -> impl Iterator<Item = f32> {
        (0..=top.to_bits()).step_by(4099).flat_map(|b| [f32::from_bits(b), -f32::from_bits(b)])
    }

    #[test]
    fn exp_is_within_two_ulps() {
        let mut worst = (0f64, 0f32);
        // The result is normal, denormal and zero or infinite in turn.
        for x in spread(110.0) {
            let got = exp1(x);
            let want = f64::from(x).exp();
            if want as f32 == f32::INFINITY {
                assert_eq!(got, f32::INFINITY, "{x}");
                continue;
            }
            let off = ulps(got, want);
            if off > worst.0 {
                worst = (off, x);
            }
        }
        assert!(worst.0 <= 2.0, "{worst:?}");
        // The measure itself notices an error of three units.
        assert!(ulps(f32::from_bits(exp1(1.0).to_bits() + 3), 1f64.exp()) > 2.0);
    }

    #[test]
    fn the_ends_of_the_range() {
        assert_eq!(exp1(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp1(f32::INFINITY), f32::INFINITY);
        assert_eq!((exp1(f32::MAX), exp1(f32::MIN)), (f32::INFINITY, 0.0));
        assert_eq!((exp1(0.0), exp1(-0.0)), (1.0, 1.0));
        assert!(exp1(f32::NAN).is_nan() && exp1(-f32::NAN).is_nan());
        assert_eq!((sigmoid1(200.0), sigmoid1(-200.0), sigmoid1(0.0)), (1.0, 0.0, 0.5));
        assert!(sigmoid1(f32::NAN).is_nan());
    }

    #[test]
    fn silu_is_close_over_the_range() {
        // Four rounded steps on top of exp: 4 units. Below -87 sigmoid is denormal
        // or flushed, and the absolute error is what counts.
        for x in spread(87.0) {
            let want = f64::from(x) / (1.0 + (-f64::from(x)).exp());
            assert!(ulps(silu1(x), want) <= 4.0 || x.abs() < 1e-30, "{x}: {} {want}", silu1(x));
        }
        assert_eq!((silu1(f32::INFINITY), silu1(1e30), silu1(-1e30)), (f32::INFINITY, 1e30, 0.0));
        assert!(silu1(f32::NEG_INFINITY).is_nan() && silu1(f32::NAN).is_nan());
    }

    #[test]
    fn all_instruction_sets_give_the_same_bits() {
        let input: Vec<f32> = spread(120.0).collect();
        let run = |isa, f: fn(Isa, &mut [f32])| {
            let mut v = input.clone();
            f(isa, &mut v);
            v.iter().map(|x| x.to_bits()).collect::<Vec<_>>()
        };
        for &isa in Isa::available() {
            assert!(run(isa, exp_on) == run(Isa::Portable, exp_on), "{isa:?}");
            assert!(run(isa, silu_on) == run(Isa::Portable, silu_on), "{isa:?}");
        }
    }
}
