//! 64-bit Arm with NEON.

use std::arch::aarch64::*;

use super::{LANES, Simd};

/// Four registers to a vector.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Neon(());

impl Neon {
    /// # Safety
    /// The machine has NEON (every aarch64 has).
    #[inline(always)]
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }
}

impl Simd for Neon {
    type V = [float32x4_t; 4];
    const WIDE: bool = false;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        // SAFETY: `self` proves NEON.
        [unsafe { vdupq_n_f32(x) }; 4]
    }

    #[inline(always)]
    fn load(self, x: &[f32; LANES]) -> Self::V {
        let x = x.as_ptr();
        // SAFETY: `self` proves NEON; the quarters are inside the array.
        unsafe { [vld1q_f32(x), vld1q_f32(x.add(4)), vld1q_f32(x.add(8)), vld1q_f32(x.add(12))] }
    }

    #[inline(always)]
    fn store(self, to: &mut [f32; LANES], x: Self::V) {
        let to = to.as_mut_ptr();
        // SAFETY: `self` proves NEON; the quarters are inside the array.
        unsafe {
            vst1q_f32(to, x[0]);
            vst1q_f32(to.add(4), x[1]);
            vst1q_f32(to.add(8), x[2]);
            vst1q_f32(to.add(12), x[3]);
        }
    }

    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        let mut r = a;
        for i in 0..4 {
            // SAFETY: `self` proves NEON.
            r[i] = unsafe { vaddq_f32(a[i], b[i]) };
        }
        r
    }

    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        let mut r = a;
        for i in 0..4 {
            // SAFETY: `self` proves NEON.
            r[i] = unsafe { vmulq_f32(a[i], b[i]) };
        }
        r
    }

    #[inline(always)]
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        let mut r = c;
        for i in 0..4 {
            // SAFETY: `self` proves NEON.
            r[i] = unsafe { vfmaq_f32(c[i], a[i], b[i]) };
        }
        r
    }

    #[inline(always)]
    fn max(self, a: Self::V, b: Self::V) -> Self::V {
        let mut r = b;
        for i in 0..4 {
            // SAFETY: `self` proves NEON.
            r[i] = unsafe { vbslq_f32(vcgtq_f32(a[i], b[i]), a[i], b[i]) };
        }
        r
    }

    #[inline(always)]
    fn sums(self, x: [Self::V; 4]) -> [f32; 4] {
        let mut sums = [0.0; 4];
        // SAFETY: `self` proves NEON; the array is a register long.
        unsafe {
            let low = vpadd_f32(twos(x[0]), twos(x[1]));
            let high = vpadd_f32(twos(x[2]), twos(x[3]));
            vst1q_f32(sums.as_mut_ptr(), vcombine_f32(low, high));
        }
        sums
    }
}

/// Sixteen lanes folded to two.
///
/// # Safety
/// The machine has NEON.
#[inline(always)]
unsafe fn twos(x: [float32x4_t; 4]) -> float32x2_t {
    // SAFETY: registers only; NEON by contract.
    unsafe {
        let four = vaddq_f32(vaddq_f32(x[0], x[2]), vaddq_f32(x[1], x[3]));
        vadd_f32(vget_low_f32(four), vget_high_f32(four))
    }
}
