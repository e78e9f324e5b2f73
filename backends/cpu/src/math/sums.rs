//! Sums over slices, in the one order there is.

use super::vector::{LANES, Simd};

/// `sum a[i] b[i]`: lane `i % 16` adds element `i`, in ascending order, then the lanes
/// are folded by halves. The shorter length counts.
#[inline(always)]
pub(crate) fn dot<S: Simd>(s: S, a: &[f32], b: &[f32]) -> f32 {
    let n = a.len().min(b.len());
    let (a, a_rest) = a[..n].as_chunks::<LANES>();
    let (b, b_rest) = b[..n].as_chunks::<LANES>();
    let mut acc = s.splat(0.0);
    for (a, b) in a.iter().zip(b) {
        acc = s.fma(s.load(a), s.load(b), acc);
    }
    if !a_rest.is_empty() {
        acc = s.fma(s.load_part(a_rest), s.load_part(b_rest), acc);
    }
    s.sum(acc)
}

/// `sum x[i]` in the same order.
#[inline(always)]
pub(crate) fn sum<S: Simd>(s: S, x: &[f32]) -> f32 {
    let (x, rest) = x.as_chunks::<LANES>();
    let mut acc = s.splat(0.0);
    for x in x {
        acc = s.add(acc, s.load(x));
    }
    s.sum(s.add(acc, s.load_part(rest)))
}

/// The largest of `x`; NaN is passed over, and there is minus infinity for none.
#[inline(always)]
pub(crate) fn largest<S: Simd>(s: S, x: &[f32]) -> f32 {
    let (x, rest) = x.as_chunks::<LANES>();
    let mut acc = s.splat(f32::NEG_INFINITY);
    for x in x {
        acc = s.max(s.load(x), acc);
    }
    let mut lanes = [0.0; LANES];
    s.store(&mut lanes, acc);
    let mut largest = f32::NEG_INFINITY;
    for x in lanes.iter().chain(rest) {
        largest = if *x > largest { *x } else { largest };
    }
    largest
}

/// `sum x[i]^2` in the same order.
#[inline(always)]
pub(crate) fn sum_of_squares<S: Simd>(s: S, x: &[f32]) -> f32 {
    dot(s, x, x)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::per_isa;
    use crate::simd::Isa;
    use proptest::prelude::*;

    per_isa! {
        fn dot_on[s](a: &[f32], b: &[f32]) -> f32 { dot(s, a, b) }
    }

    per_isa! {
        fn both_on[s](x: &[f32]) -> [f32; 2] { [sum(s, x), largest(s, x)] }
    }

    /// The documented order, spelled out.
    fn plain(a: &[f32], b: &[f32]) -> f32 {
        let mut lanes = [0f32; 16];
        for (i, (x, y)) in a.iter().zip(b).enumerate() {
            lanes[i % 16] = x.mul_add(*y, lanes[i % 16]);
        }
        let mut r = lanes.to_vec();
        while r.len() > 1 {
            let (lo, hi) = r.split_at(r.len() / 2);
            r = lo.iter().zip(hi).map(|(x, y)| x + y).collect();
        }
        r[0]
    }

    proptest! {
        #[test]
        fn sums_and_maxima(x in prop::collection::vec(-3f32..3.0, 0..200)) {
            let ones = vec![1.0; x.len()];
            let (sum, max) = (plain(&x, &ones), x.iter().copied().fold(f32::NEG_INFINITY, f32::max));
            for &isa in Isa::available() {
                let got = both_on(isa, &x);
                prop_assert_eq!(got.map(f32::to_bits), [sum, max].map(f32::to_bits), "{:?}", isa);
            }
        }

        #[test]
        fn a_dot_product_has_one_order(v in prop::collection::vec((-3f32..3.0, -3f32..3.0), 0..200)) {
            let (a, b): (Vec<f32>, Vec<f32>) = v.into_iter().unzip();
            let want = plain(&a, &b).to_bits();
            for &isa in Isa::available() {
                prop_assert_eq!(dot_on(isa, &a, &b).to_bits(), want, "{:?}", isa);
            }
        }
    }

    #[test]
    fn the_order_matters() {
        // Were lanes folded in another order, this sum would come out differently.
        let mut a = vec![0f32; 32];
        (a[0], a[8], a[1]) = (1e8, -1e8, 1.0);
        let b = vec![1f32; 32];
        assert_eq!(dot_on(Isa::detect(), &a, &b), 1.0);
        let in_sequence: f32 = [1e8f32, 1.0, -1e8].iter().sum();
        assert_eq!(in_sequence, 0.0);
    }
}
