//! x86-64 with AVX2 and FMA.

use std::arch::x86_64::*;

use super::{LANES, Simd};

/// Pairs of eight lanes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx2(());

impl Avx2 {
    /// # Safety
    /// The machine has AVX2 and FMA.
    #[inline(always)]
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }
}

/// The lane sums of four vectors of eight, folded by halves.
///
/// # Safety
/// The machine has AVX2.
#[inline(always)]
pub(super) unsafe fn sums_of_eight(x: [__m256; 4]) -> [f32; 4] {
    // SAFETY: registers only; AVX2 by contract.
    unsafe {
        let a = _mm_add_ps(_mm256_castps256_ps128(x[0]), _mm256_extractf128_ps::<1>(x[0]));
        let b = _mm_add_ps(_mm256_castps256_ps128(x[1]), _mm256_extractf128_ps::<1>(x[1]));
        let c = _mm_add_ps(_mm256_castps256_ps128(x[2]), _mm256_extractf128_ps::<1>(x[2]));
        let d = _mm_add_ps(_mm256_castps256_ps128(x[3]), _mm256_extractf128_ps::<1>(x[3]));
        // Lanes 0, 1 of two vectors plus lanes 2, 3 of the same.
        let ab = _mm_add_ps(_mm_movelh_ps(a, b), _mm_movehl_ps(b, a));
        let cd = _mm_add_ps(_mm_movelh_ps(c, d), _mm_movehl_ps(d, c));
        let even = _mm_shuffle_ps::<0b10_00_10_00>(ab, cd);
        let odd = _mm_shuffle_ps::<0b11_01_11_01>(ab, cd);
        let mut sums = [0.0; 4];
        _mm_storeu_ps(sums.as_mut_ptr(), _mm_add_ps(even, odd));
        sums
    }
}

impl Simd for Avx2 {
    type V = [__m256; 2];
    const WIDE: bool = false;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        // SAFETY: `self` proves AVX2.
        [unsafe { _mm256_set1_ps(x) }; 2]
    }

    #[inline(always)]
    fn load(self, x: &[f32; LANES]) -> Self::V {
        // SAFETY: `self` proves AVX2; both halves are inside the array.
        unsafe { [_mm256_loadu_ps(x.as_ptr()), _mm256_loadu_ps(x.as_ptr().add(8))] }
    }

    #[inline(always)]
    fn store(self, to: &mut [f32; LANES], x: Self::V) {
        // SAFETY: `self` proves AVX2; both halves are inside the array.
        unsafe {
            _mm256_storeu_ps(to.as_mut_ptr(), x[0]);
            _mm256_storeu_ps(to.as_mut_ptr().add(8), x[1]);
        }
    }

    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: `self` proves AVX2.
        unsafe { [_mm256_add_ps(a[0], b[0]), _mm256_add_ps(a[1], b[1])] }
    }

    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: `self` proves AVX2.
        unsafe { [_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])] }
    }

    #[inline(always)]
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        // SAFETY: `self` proves AVX2 and FMA.
        unsafe { [_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])] }
    }

    #[inline(always)]
    fn max(self, a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: `self` proves AVX2.
        unsafe { [_mm256_max_ps(a[0], b[0]), _mm256_max_ps(a[1], b[1])] }
    }

    #[inline(always)]
    fn sums(self, x: [Self::V; 4]) -> [f32; 4] {
        // SAFETY: `self` proves AVX2.
        unsafe {
            let [a, b, c, d] = x;
            let (a, b) = (_mm256_add_ps(a[0], a[1]), _mm256_add_ps(b[0], b[1]));
            let (c, d) = (_mm256_add_ps(c[0], c[1]), _mm256_add_ps(d[0], d[1]));
            sums_of_eight([a, b, c, d])
        }
    }
}
