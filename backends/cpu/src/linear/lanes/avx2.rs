//! x86-64, AVX2 with FMA and F16C: two registers per vector.

use std::arch::x86_64::*;

use super::Lanes;
use crate::linear::layout::SUB;

/// 256-bit registers.
#[derive(Clone, Copy)]
pub(in crate::linear) struct Avx2;

/// The features of [`Isa::Avx2`](crate::simd::Isa) on every operation.
macro_rules! ops {
    ($(fn $name:ident $(<$(const $c:ident: $t:ty),*>)? ($($args:tt)*) $(-> $r:ty)? $body:block)*) => {
        $(
            #[inline]
            #[target_feature(enable = "avx2,fma,f16c")]
            unsafe fn $name $(<$(const $c: $t),*>)? ($($args)*) $(-> $r)? $body
        )*
    };
}

type F = [__m256; 2];
type I = [__m256i; 2];

impl Lanes for Avx2 {
    type F = F;
    type I = I;
    type B = I;
    const HEIGHTS: usize = 4 + 2 + 1;
    const F32_HEIGHTS: usize = 4 + 1;

    ops! {
        fn zero() -> F {
            [_mm256_setzero_ps(); 2]
        }

        fn load(p: *const f32) -> F {
            // SAFETY: 64 bytes, by contract.
            unsafe { [_mm256_loadu_ps(p), _mm256_loadu_ps(p.add(8))] }
        }

        fn store(p: *mut f32, v: F) {
            // SAFETY: 64 bytes, by contract.
            unsafe {
                _mm256_storeu_ps(p, v[0]);
                _mm256_storeu_ps(p.add(8), v[1]);
            }
        }

        fn splat(p: *const f32) -> F {
            // SAFETY: 4 bytes, by contract.
            [_mm256_set1_ps(unsafe { p.read_unaligned() }); 2]
        }

        fn add(a: F, b: F) -> F {
            [_mm256_add_ps(a[0], b[0]), _mm256_add_ps(a[1], b[1])]
        }

        fn mul(a: F, b: F) -> F {
            [_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])]
        }

        fn fma(a: F, b: F, c: F) -> F {
            [_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])]
        }

        fn load_f16(p: *const u8) -> F {
            // SAFETY: 32 bytes, by contract.
            unsafe {
                [
                    _mm256_cvtph_ps(_mm_loadu_si128(p.cast())),
                    _mm256_cvtph_ps(_mm_loadu_si128(p.add(16).cast())),
                ]
            }
        }

        fn load_bf16(p: *const u8) -> F {
            // SAFETY: 32 bytes, by contract.
            let high = unsafe {
                [_mm_loadu_si128(p.cast()), _mm_loadu_si128(p.add(16).cast())]
            };
            high.map(|h| _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(h))))
        }

        fn load_u8(p: *const u8) -> F {
            // SAFETY: 16 bytes, by contract.
            let bytes = unsafe {
                [_mm_loadl_epi64(p.cast()), _mm_loadl_epi64(p.add(8).cast())]
            };
            bytes.map(|b| _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(b)))
        }

        fn load_i8(p: *const u8) -> F {
            // SAFETY: 16 bytes, by contract.
            let bytes = unsafe {
                [_mm_loadl_epi64(p.cast()), _mm_loadl_epi64(p.add(8).cast())]
            };
            bytes.map(|b| _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(b)))
        }

        fn minus_i32(v: I, by: i32) -> I {
            v.map(|v| _mm256_sub_epi32(v, _mm256_set1_epi32(by)))
        }

        fn to_f32(v: I) -> F {
            v.map(|v| _mm256_cvtepi32_ps(v))
        }

        fn bytes(p: *const u8) -> I {
            // SAFETY: 64 bytes, by contract.
            unsafe { [_mm256_loadu_si256(p.cast()), _mm256_loadu_si256(p.add(32).cast())] }
        }

        fn field<const RIGHT: i32, const MASK: u8>(v: I) -> I {
            v.map(|v| {
                let moved = if RIGHT == 0 {
                    v
                } else if RIGHT > 0 {
                    _mm256_srl_epi16(v, _mm_cvtsi32_si128(RIGHT))
                } else {
                    _mm256_sll_epi16(v, _mm_cvtsi32_si128(-RIGHT))
                };
                _mm256_and_si256(moved, _mm256_set1_epi8(MASK as i8))
            })
        }

        fn or(a: I, b: I) -> I {
            [_mm256_or_si256(a[0], b[0]), _mm256_or_si256(a[1], b[1])]
        }

        fn lookup(table: &'static [u8; 16], v: I) -> I {
            // SAFETY: the table is 16 bytes long.
            let table = unsafe { _mm_loadu_si128(table.as_ptr().cast()) };
            v.map(|v| _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), v))
        }

        fn byte<const J: u32>(v: I) -> I {
            v.map(|v| {
                let moved = _mm256_srl_epi32(v, _mm_cvtsi32_si128(8 * J as i32));
                if J == 3 { moved } else { _mm256_and_si256(moved, _mm256_set1_epi32(255)) }
            })
        }

        fn dot<const N: usize>(
            w: &[I; N],
            a: *const i8,
            minus: *const i32,
            max: u32,
            zero: i32,
        ) -> F {
            // `maddubs` adds two products in 16 bits and would saturate past 32767. Byte
            // codes, all of which have zero 128, are made signed: the magnitude goes into
            // the unsigned operand and the sign to the activations, and 2 * 128 * 127 fits.
            // Of smaller codes, as many pair sums are added up in 16 bits as surely fit.
            let wide = max > 129;
            debug_assert!(!wide || zero == 128);
            let room = if wide { 1 } else { 32767 / (254 * max as usize).max(1) };
            // SAFETY: 4 bytes, by contract.
            let minus = _mm256_set1_epi32(unsafe { minus.read_unaligned() });
            let start = match wide {
                true => _mm256_setzero_si256(),
                false => _mm256_mullo_epi32(minus, _mm256_set1_epi32(zero)),
            };
            let mut out = [start; 2];
            for (h, out) in out.iter_mut().enumerate() {
                let mut sums = [_mm256_setzero_si256(), *out];
                for (plane, sum) in sums.iter_mut().enumerate() {
                    let mut pairs = _mm256_setzero_si256();
                    for (g, w) in w.iter().enumerate() {
                        // SAFETY: high and low parts, by contract.
                        let a = unsafe { a.add(SUB * plane + 4 * g).cast::<i32>().read_unaligned() };
                        let a = _mm256_set1_epi32(a);
                        let products = if wide {
                            let signed = _mm256_xor_si256(w[h], _mm256_set1_epi8(-128));
                            let a = _mm256_sign_epi8(a, signed);
                            _mm256_maddubs_epi16(_mm256_abs_epi8(signed), a)
                        } else {
                            _mm256_maddubs_epi16(w[h], a)
                        };
                        pairs = _mm256_add_epi16(pairs, products);
                        if (g + 1) % room == 0 || g + 1 == N {
                            let four = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
                            *sum = _mm256_add_epi32(*sum, four);
                            pairs = _mm256_setzero_si256();
                        }
                    }
                }
                *out = _mm256_add_epi32(_mm256_slli_epi32::<7>(sums[0]), sums[1]);
            }
            out.map(|sum| _mm256_cvtepi32_ps(sum))
        }

        fn largest(x: *const f32) -> u32 {
            let mut largest = _mm256_setzero_si256();
            for i in 0..4 {
                // SAFETY: 128 bytes, by contract.
                let v = unsafe { _mm256_loadu_si256(x.add(8 * i).cast()) };
                let magnitude = _mm256_and_si256(v, _mm256_set1_epi32(i32::MAX));
                largest = _mm256_max_epu32(largest, magnitude);
            }
            let four = _mm256_extracti128_si256::<1>(largest);
            let four = _mm_max_epu32(four, _mm256_castsi256_si128(largest));
            let two = _mm_max_epu32(four, _mm_shuffle_epi32::<0b01_00_11_10>(four));
            let one = _mm_max_epu32(two, _mm_shuffle_epi32::<0b10_11_00_01>(two));
            _mm_cvtsi128_si32(one) as u32
        }

        fn round(x: *const f32, by: f32, high: &mut [i8; SUB], low: &mut [i8; SUB]) -> [i32; 2] {
            let (mut upper, mut lower) = ([_mm256_setzero_si256(); 4], [_mm256_setzero_si256(); 4]);
            for i in 0..4 {
                // SAFETY: 128 bytes, by contract.
                let x = unsafe { _mm256_loadu_ps(x.add(8 * i)) };
                let v = _mm256_cvtps_epi32(_mm256_mul_ps(x, _mm256_set1_ps(by)));
                upper[i] = _mm256_srai_epi32::<7>(_mm256_add_epi32(v, _mm256_set1_epi32(64)));
                lower[i] = _mm256_sub_epi32(v, _mm256_slli_epi32::<7>(upper[i]));
            }
            let (upper, lower) = (to_bytes(upper), to_bytes(lower));
            // SAFETY: 32 bytes each.
            unsafe {
                _mm256_storeu_si256(high.as_mut_ptr().cast(), upper);
                _mm256_storeu_si256(low.as_mut_ptr().cast(), lower);
            }
            let (bytes, words) = (_mm256_set1_epi8(1), _mm256_set1_epi16(1));
            let high = _mm256_madd_epi16(_mm256_maddubs_epi16(bytes, upper), words);
            let low = _mm256_madd_epi16(_mm256_maddubs_epi16(bytes, lower), words);
            let sums = _mm256_add_epi32(_mm256_slli_epi32::<7>(high), low);
            let sums = _mm256_add_epi32(sums, _mm256_shuffle_epi32::<0b01_00_11_10>(sums));
            let sums = _mm256_add_epi32(sums, _mm256_shuffle_epi32::<0b10_11_00_01>(sums));
            [_mm256_extract_epi32::<0>(sums), _mm256_extract_epi32::<4>(sums)]
        }

        fn prefetch(p: *const u8) {
            _mm_prefetch::<_MM_HINT_T0>(p.cast());
        }
    }
}

/// 32 integers as bytes, in order.
#[inline]
#[target_feature(enable = "avx2")]
fn to_bytes(v: [__m256i; 4]) -> __m256i {
    let words = [_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3])];
    // Packing works on each half apart: put the groups of four back in order.
    let order = _mm256_set_epi32(7, 3, 6, 2, 5, 1, 4, 0);
    _mm256_permutevar8x32_epi32(_mm256_packs_epi16(words[0], words[1]), order)
}
