//! Sixteen floats at a time.

/// Floats in a vector, on every instruction set.
pub(crate) const LANES: usize = 16;

/// A vector.
pub(crate) type Lanes = [f32; LANES];

/// All lanes the same.
#[inline(always)]
pub(crate) fn splat(x: f32) -> Lanes {
    [x; LANES]
}

/// The first sixteen values of a slice.
#[inline(always)]
pub(crate) fn load(x: &[f32]) -> Lanes {
    let mut r = [0.0; LANES];
    r.copy_from_slice(&x[..LANES]);
    r
}

/// Up to sixteen values, the rest zero.
#[inline(always)]
pub(crate) fn load_part(x: &[f32]) -> Lanes {
    let mut r = [0.0; LANES];
    r[..x.len()].copy_from_slice(x);
    r
}

/// Writes to the first sixteen places of a slice.
#[inline(always)]
pub(crate) fn store(out: &mut [f32], x: Lanes) {
    out[..LANES].copy_from_slice(&x);
}

/// Lane by lane.
#[inline(always)]
pub(crate) fn map(x: Lanes, f: impl Fn(f32) -> f32) -> Lanes {
    let mut r = x;
    for v in &mut r {
        *v = f(*v);
    }
    r
}

/// `a + b`.
#[inline(always)]
pub(crate) fn add(a: Lanes, b: Lanes) -> Lanes {
    let mut r = a;
    for i in 0..LANES {
        r[i] = a[i] + b[i];
    }
    r
}

/// `a * b`.
#[inline(always)]
pub(crate) fn mul(a: Lanes, b: Lanes) -> Lanes {
    let mut r = a;
    for i in 0..LANES {
        r[i] = a[i] * b[i];
    }
    r
}

/// `a * s`.
#[inline(always)]
pub(crate) fn mul_scalar(a: Lanes, s: f32) -> Lanes {
    mul(a, splat(s))
}

/// `a * b + c`, rounded once.
#[inline(always)]
pub(crate) fn fma(a: Lanes, b: Lanes, c: Lanes) -> Lanes {
    let mut r = c;
    for i in 0..LANES {
        r[i] = a[i].mul_add(b[i], c[i]);
    }
    r
}

/// `a * s + c`, rounded once.
#[inline(always)]
pub(crate) fn fma_scalar(a: Lanes, s: f32, c: Lanes) -> Lanes {
    fma(a, splat(s), c)
}

/// The sum of the lanes, folded by halves.
#[inline(always)]
pub(crate) fn tree(x: Lanes) -> f32 {
    let mut r = x;
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            r[i] += r[i + half];
        }
        half /= 2;
    }
    r[0]
}

/// `sum a[i] b[i]` in the fixed order. The shorter length counts.
#[inline(always)]
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let n = a.len().min(b.len());
    let (a, b) = (&a[..n], &b[..n]);
    let mut acc = splat(0.0);
    let (mut ai, mut bi) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    for (x, y) in (&mut ai).zip(&mut bi) {
        acc = fma(load(x), load(y), acc);
    }
    if !ai.remainder().is_empty() {
        acc = fma(load_part(ai.remainder()), load_part(bi.remainder()), acc);
    }
    tree(acc)
}

/// `sum x[i]^2` in the fixed order.
#[inline(always)]
pub(crate) fn sum_of_squares(x: &[f32]) -> f32 {
    dot(x, x)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::per_isa;
    use crate::simd::Isa;
    use proptest::prelude::*;

    per_isa! {
        fn dot_on(a: &[f32], b: &[f32]) -> f32 { dot(a, b) }
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
