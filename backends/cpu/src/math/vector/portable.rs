//! Plain Rust.

use super::{LANES, Simd};

/// Arrays of floats; for any machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Portable;

impl Simd for Portable {
    type V = [f32; LANES];
    const WIDE: bool = false;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        [x; LANES]
    }

    #[inline(always)]
    fn load(self, x: &[f32; LANES]) -> Self::V {
        *x
    }

    #[inline(always)]
    fn store(self, to: &mut [f32; LANES], x: Self::V) {
        *to = x;
    }

    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        let mut r = a;
        for i in 0..LANES {
            r[i] = a[i] + b[i];
        }
        r
    }

    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        let mut r = a;
        for i in 0..LANES {
            r[i] = a[i] * b[i];
        }
        r
    }

    #[inline(always)]
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        let mut r = a;
        for i in 0..LANES {
            r[i] = a[i].mul_add(b[i], c[i]);
        }
        r
    }

    #[inline(always)]
    fn max(self, a: Self::V, b: Self::V) -> Self::V {
        let mut r = b;
        for i in 0..LANES {
            r[i] = if a[i] > b[i] { a[i] } else { b[i] };
        }
        r
    }

    #[inline(always)]
    fn sums(self, x: [Self::V; 4]) -> [f32; 4] {
        [folded(x[0]), folded(x[1]), folded(x[2]), folded(x[3])]
    }

    #[inline(always)]
    fn sum(self, x: Self::V) -> f32 {
        folded(x)
    }
}

#[inline(always)]
fn folded(mut x: [f32; LANES]) -> f32 {
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            x[i] += x[i + half];
        }
    }
    x[0]
}
