//! 64-bit Arm, plain NEON: four registers per vector.

use std::arch::aarch64::*;

use super::{Lanes, Portable};
use crate::linear::layout::SUB;

/// 128-bit registers.
#[derive(Clone, Copy)]
pub(in crate::linear) struct Neon;

/// NEON on every operation.
macro_rules! ops {
    ($(fn $name:ident $(<$(const $c:ident: $t:ty),*>)? ($($args:tt)*) $(-> $r:ty)? $body:block)*) => {
        $(
            #[inline]
            #[target_feature(enable = "neon")]
            unsafe fn $name $(<$(const $c: $t),*>)? ($($args)*) $(-> $r)? $body
        )*
    };
}

type F = [float32x4_t; 4];
type I = [int32x4_t; 4];
type B = [uint8x16_t; 4];

impl Lanes for Neon {
    type F = F;
    type I = I;
    type B = B;
    const HEIGHTS: usize = 4 + 1;
    const F32_HEIGHTS: usize = 4 + 1;

    ops! {
        fn zero() -> F {
            [vdupq_n_f32(0.0); 4]
        }

        fn load(p: *const f32) -> F {
            // SAFETY: 64 bytes, by contract.
            std::array::from_fn(|i| unsafe { vld1q_f32(p.add(4 * i)) })
        }

        fn store(p: *mut f32, v: F) {
            for (i, v) in v.into_iter().enumerate() {
                // SAFETY: 64 bytes, by contract.
                unsafe { vst1q_f32(p.add(4 * i), v) }
            }
        }

        fn splat(p: *const f32) -> F {
            // SAFETY: 4 bytes, by contract.
            [vdupq_n_f32(unsafe { p.read_unaligned() }); 4]
        }

        fn add(a: F, b: F) -> F {
            std::array::from_fn(|i| vaddq_f32(a[i], b[i]))
        }

        fn mul(a: F, b: F) -> F {
            std::array::from_fn(|i| vmulq_f32(a[i], b[i]))
        }

        fn fma(a: F, b: F, c: F) -> F {
            std::array::from_fn(|i| vfmaq_f32(c[i], a[i], b[i]))
        }

        fn load_f16(p: *const u8) -> F {
            // SAFETY: 32 bytes, by contract; `half` uses the conversion instruction.
            let values = unsafe { Portable::load_f16(p) };
            // SAFETY: an array of 16.
            unsafe { Self::load(values.as_ptr()) }
        }

        fn load_bf16(p: *const u8) -> F {
            std::array::from_fn(|i| {
                // SAFETY: 32 bytes, by contract; byte loads are unaligned.
                let high = vreinterpret_u16_u8(unsafe { vld1_u8(p.add(8 * i)) });
                vreinterpretq_f32_u32(vshll_n_u16::<16>(high))
            })
        }

        fn load_u8(p: *const u8) -> F {
            // SAFETY: 16 bytes, by contract.
            let bytes = unsafe { vld1q_u8(p) };
            let halves = [vmovl_u8(vget_low_u8(bytes)), vmovl_u8(vget_high_u8(bytes))];
            let words = halves.map(|h| [vmovl_u16(vget_low_u16(h)), vmovl_u16(vget_high_u16(h))]);
            std::array::from_fn(|i| vcvtq_f32_u32(words[i / 2][i % 2]))
        }

        fn load_i8(p: *const u8) -> F {
            // SAFETY: 16 bytes, by contract.
            let bytes = unsafe { vld1q_s8(p.cast()) };
            let halves = [vmovl_s8(vget_low_s8(bytes)), vmovl_s8(vget_high_s8(bytes))];
            let words = halves.map(|h| [vmovl_s16(vget_low_s16(h)), vmovl_s16(vget_high_s16(h))]);
            std::array::from_fn(|i| vcvtq_f32_s32(words[i / 2][i % 2]))
        }

        fn minus_i32(v: I, by: i32) -> I {
            v.map(|v| vsubq_s32(v, vdupq_n_s32(by)))
        }

        fn to_f32(v: I) -> F {
            v.map(|v| vcvtq_f32_s32(v))
        }

        fn bytes(p: *const u8) -> B {
            // SAFETY: 64 bytes, by contract.
            std::array::from_fn(|i| unsafe { vld1q_u8(p.add(16 * i)) })
        }

        fn field<const RIGHT: i32, const MASK: u8>(v: B) -> B {
            // A negative count shifts right.
            v.map(|v| vandq_u8(vshlq_u8(v, vdupq_n_s8(-RIGHT as i8)), vdupq_n_u8(MASK)))
        }

        fn or(a: B, b: B) -> B {
            std::array::from_fn(|i| vorrq_u8(a[i], b[i]))
        }

        fn lookup(table: &'static [u8; 16], v: B) -> B {
            // SAFETY: the table is 16 bytes long.
            let table = unsafe { vld1q_u8(table.as_ptr()) };
            v.map(|v| vqtbl1q_u8(table, v))
        }

        fn byte<const J: u32>(v: B) -> I {
            v.map(|v| {
                let moved = vshlq_u32(vreinterpretq_u32_u8(v), vdupq_n_s32(-8 * J as i32));
                vreinterpretq_s32_u32(vandq_u32(moved, vdupq_n_u32(255)))
            })
        }

        fn dot<const N: usize>(
            w: &[B; N],
            a: *const i8,
            minus: *const i32,
            max: u32,
            zero: i32,
        ) -> F {
            // Bytes are multiplied as signed ones. Byte codes, all of which have zero 128,
            // become so by it; smaller codes are below 128 anyway.
            let wide = max > 127;
            debug_assert!(!wide || zero == 128);
            // SAFETY: 4 bytes, by contract.
            let minus = unsafe { minus.read_unaligned() };
            let mut high = [vdupq_n_s32(0); 4];
            let mut low = [vdupq_n_s32(if wide { 0 } else { minus * zero }); 4];
            for (g, w) in w.iter().enumerate() {
                // SAFETY: high and low parts, by contract.
                let (upper, lower) = unsafe {
                    let upper = a.add(4 * g);
                    let lower = upper.add(SUB).cast::<i32>();
                    (upper.cast::<i32>().read_unaligned(), lower.read_unaligned())
                };
                let upper = vreinterpretq_s8_s32(vdupq_n_s32(upper));
                let lower = vreinterpretq_s8_s32(vdupq_n_s32(lower));
                for (i, &w) in w.iter().enumerate() {
                    let w = if wide { veorq_u8(w, vdupq_n_u8(128)) } else { w };
                    let w = vreinterpretq_s8_u8(w);
                    high[i] = dot4(high[i], w, upper);
                    low[i] = dot4(low[i], w, lower);
                }
            }
            std::array::from_fn(|i| vcvtq_f32_s32(vaddq_s32(vshlq_n_s32::<7>(high[i]), low[i])))
        }

        fn largest(x: *const f32) -> u32 {
            let mut largest = vdupq_n_u32(0);
            for i in 0..8 {
                // SAFETY: 128 bytes, by contract.
                let v = unsafe { vld1q_f32(x.add(4 * i)) };
                largest = vmaxq_u32(largest, vreinterpretq_u32_f32(vabsq_f32(v)));
            }
            vmaxvq_u32(largest)
        }

        fn round(x: *const f32, by: f32, high: &mut [i8; SUB], low: &mut [i8; SUB]) -> [i32; 2] {
            let mut sums = [0; 2];
            for i in 0..8 {
                // SAFETY: 128 bytes, by contract.
                let x = unsafe { vld1q_f32(x.add(4 * i)) };
                let v = vcvtnq_s32_f32(vmulq_n_f32(x, by));
                let upper = vshrq_n_s32::<7>(vaddq_s32(v, vdupq_n_s32(64)));
                let lower = vsubq_s32(v, vshlq_n_s32::<7>(upper));
                let mut words = [[0i32; 4]; 2];
                // SAFETY: arrays of four.
                unsafe {
                    vst1q_s32(words[0].as_mut_ptr(), upper);
                    vst1q_s32(words[1].as_mut_ptr(), lower);
                }
                for j in 0..4 {
                    high[4 * i + j] = words[0][j] as i8;
                    low[4 * i + j] = words[1][j] as i8;
                }
                sums[i / 4] += vaddvq_s32(v);
            }
            sums
        }

        fn prefetch(_p: *const u8) {}
    }
}

/// `sum[lane] + sum over j of w[lane][j] * a[lane][j]`; no product is -128 * -128.
#[inline]
#[target_feature(enable = "neon")]
fn dot4(sum: int32x4_t, w: int8x16_t, a: int8x16_t) -> int32x4_t {
    let low = vpaddlq_s16(vmull_s8(vget_low_s8(w), vget_low_s8(a)));
    let high = vpaddlq_s16(vmull_s8(vget_high_s8(w), vget_high_s8(a)));
    vaddq_s32(sum, vpaddq_s32(low, high))
}
