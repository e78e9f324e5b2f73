//! x86-64 with AVX-512 F and DQ.

use std::arch::x86_64::*;

use super::avx2::sums_of_eight;
use super::{LANES, Simd};

/// One register to a vector.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx512(());

impl Avx512 {
    /// # Safety
    /// The machine has AVX-512 F and DQ, and AVX2.
    #[inline(always)]
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }
}

impl Simd for Avx512 {
    type V = __m512;
    const WIDE: bool = true;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        // SAFETY: `self` proves AVX-512.
        unsafe { _mm512_set1_ps(x) }
    }

    #[inline(always)]
    fn load(self, x: &[f32; LANES]) -> Self::V {
        // SAFETY: `self` proves AVX-512; the array is a vector long.
        unsafe { _mm512_loadu_ps(x.as_ptr()) }
    }

    #[inline(always)]
    fn store(self, to: &mut [f32; LANES], x: Self::V) {
        // SAFETY: `self` proves AVX-512; the array is a vector long.
        unsafe { _mm512_storeu_ps(to.as_mut_ptr(), x) }
    }

    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: `self` proves AVX-512.
        unsafe { _mm512_add_ps(a, b) }
    }

    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: `self` proves AVX-512.
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        // SAFETY: `self` proves AVX-512.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn max(self, a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: `self` proves AVX-512.
        unsafe { _mm512_max_ps(a, b) }
    }

    #[inline(always)]
    fn sums(self, x: [Self::V; 4]) -> [f32; 4] {
        // SAFETY: `self` proves AVX-512 and AVX2.
        unsafe { sums_of_eight([halved(x[0]), halved(x[1]), halved(x[2]), halved(x[3])]) }
    }
}

/// Lanes `i` plus `i + 8`.
///
/// # Safety
/// The machine has AVX-512 F and DQ.
#[inline(always)]
unsafe fn halved(x: __m512) -> __m256 {
    // SAFETY: registers only; AVX-512 by contract.
    unsafe { _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps::<1>(x)) }
}
