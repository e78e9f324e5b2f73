//! Plain Rust: the definition of every operation. Nothing is inlined by force: one
//! kernel serves all types, and should stay small.

use half::{bf16, f16};

use super::Lanes;
use crate::linear::layout::SUB;

/// Arrays of 16 and 64.
#[derive(Clone, Copy)]
pub(in crate::linear) struct Portable;

/// Reads 16 values of `N` bytes.
///
/// # Safety
/// `p` is valid for `16 * N` bytes.
#[inline(always)]
unsafe fn sixteen<const N: usize, T>(p: *const u8, each: impl Fn([u8; N]) -> T) -> [T; 16] {
    // SAFETY: within the bytes that the caller vouches for; arrays of bytes are unaligned.
    std::array::from_fn(|i| each(unsafe { p.add(i * N).cast::<[u8; N]>().read() }))
}

impl Lanes for Portable {
    type F = [f32; 16];
    type I = [i32; 16];
    type B = [u8; 64];
    const HEIGHTS: usize = 1;
    const F32_HEIGHTS: usize = 1;

    unsafe fn zero() -> Self::F {
        [0.0; 16]
    }

    unsafe fn load(p: *const f32) -> Self::F {
        // SAFETY: 64 bytes, by contract.
        unsafe { sixteen(p.cast(), f32::from_ne_bytes) }
    }

    unsafe fn store(p: *mut f32, v: Self::F) {
        // SAFETY: 64 bytes, by contract.
        unsafe { p.cast::<Self::F>().write_unaligned(v) }
    }

    unsafe fn splat(p: *const f32) -> Self::F {
        // SAFETY: 4 bytes, by contract.
        [unsafe { p.read_unaligned() }; 16]
    }

    unsafe fn add(a: Self::F, b: Self::F) -> Self::F {
        std::array::from_fn(|i| a[i] + b[i])
    }

    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F {
        std::array::from_fn(|i| a[i] * b[i])
    }

    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        std::array::from_fn(|i| a[i].mul_add(b[i], c[i]))
    }

    unsafe fn load_f16(p: *const u8) -> Self::F {
        // SAFETY: 32 bytes, by contract.
        unsafe { sixteen(p, |b| f16::from_ne_bytes(b).to_f32()) }
    }

    unsafe fn load_bf16(p: *const u8) -> Self::F {
        // SAFETY: 32 bytes, by contract.
        unsafe { sixteen(p, |b| bf16::from_ne_bytes(b).to_f32()) }
    }

    unsafe fn load_u8(p: *const u8) -> Self::F {
        // SAFETY: 16 bytes, by contract.
        unsafe { sixteen(p, |[b]| f32::from(b)) }
    }

    unsafe fn load_i8(p: *const u8) -> Self::F {
        // SAFETY: 16 bytes, by contract.
        unsafe { sixteen(p, |[b]| f32::from(b as i8)) }
    }

    unsafe fn minus_i32(v: Self::I, by: i32) -> Self::I {
        v.map(|x| x - by)
    }

    unsafe fn to_f32(v: Self::I) -> Self::F {
        v.map(|x| x as f32)
    }

    unsafe fn bytes(p: *const u8) -> Self::B {
        // SAFETY: 64 bytes, by contract; arrays of bytes are unaligned.
        unsafe { p.cast::<Self::B>().read() }
    }

    unsafe fn field<const RIGHT: i32, const MASK: u8>(v: Self::B) -> Self::B {
        v.map(|x| MASK & if RIGHT >= 0 { x >> RIGHT } else { x << -RIGHT })
    }

    unsafe fn or(a: Self::B, b: Self::B) -> Self::B {
        std::array::from_fn(|i| a[i] | b[i])
    }

    unsafe fn lookup(table: &'static [u8; 16], v: Self::B) -> Self::B {
        v.map(|x| table[usize::from(x & 15)])
    }

    unsafe fn byte<const J: u32>(v: Self::B) -> Self::I {
        std::array::from_fn(|i| i32::from(v[4 * i + J as usize]))
    }

    unsafe fn dot<const N: usize>(
        w: &[Self::B; N],
        a: *const i8,
        _minus: *const i32,
        _max: u32,
        zero: i32,
    ) -> Self::F {
        let mut sum = [0; 16];
        for (g, w) in w.iter().enumerate() {
            // SAFETY: high and low parts, by contract.
            let (high, low) = unsafe {
                let high = a.add(4 * g);
                (high.cast::<[i8; 4]>().read(), high.add(SUB).cast::<[i8; 4]>().read())
            };
            for (sum, w) in sum.iter_mut().zip(w.as_chunks::<4>().0) {
                for (&w, (&high, &low)) in w.iter().zip(high.iter().zip(&low)) {
                    *sum += (i32::from(w) - zero) * (128 * i32::from(high) + i32::from(low));
                }
            }
        }
        sum.map(|sum| sum as f32)
    }

    unsafe fn largest(x: *const f32) -> u32 {
        // SAFETY: 128 bytes, by contract.
        let x = unsafe { x.cast::<[f32; 32]>().read_unaligned() };
        // Magnitudes compare as integers.
        x.iter().fold(0, |largest, x| largest.max(x.abs().to_bits()))
    }

    unsafe fn round(x: *const f32, by: f32, high: &mut [i8; SUB], low: &mut [i8; SUB]) -> [i32; 2] {
        // SAFETY: 128 bytes, by contract.
        let x = unsafe { x.cast::<[f32; SUB]>().read_unaligned() };
        let v = x.map(|x| (x * by).round_ties_even() as i32);
        for (v, (high, low)) in v.iter().zip(high.iter_mut().zip(low)) {
            let upper = (v + 64) >> 7;
            (*high, *low) = (upper as i8, (v - (upper << 7)) as i8);
        }
        [v[..16].iter().sum(), v[16..].iter().sum()]
    }

    unsafe fn prefetch(_p: *const u8) {}
}
