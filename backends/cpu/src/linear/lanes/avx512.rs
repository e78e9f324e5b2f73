//! x86-64, AVX-512 with VNNI: one register per vector.

use std::arch::x86_64::*;

use super::Lanes;
use crate::linear::layout::SUB;

/// 512-bit registers.
#[derive(Clone, Copy)]
pub(in crate::linear) struct Avx512;

/// The features of [`Isa::Avx512`](crate::simd::Isa) on every operation.
macro_rules! ops {
    ($($(#[$doc:meta])* fn $name:ident $(<$(const $c:ident: $t:ty),*>)? ($($args:tt)*) $(-> $r:ty)? $body:block)*) => {
        $(
            #[inline]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
            unsafe fn $name $(<$(const $c: $t),*>)? ($($args)*) $(-> $r)? $body
        )*
    };
}

impl Lanes for Avx512 {
    type F = __m512;
    type I = __m512i;
    type B = __m512i;
    const HEIGHTS: usize = 8 + 4 + 2 + 1;
    const F32_HEIGHTS: usize = 8 + 2 + 1;

    ops! {
        fn zero() -> __m512 {
            _mm512_setzero_ps()
        }

        fn load(p: *const f32) -> __m512 {
            // SAFETY: 64 bytes, by contract.
            unsafe { _mm512_loadu_ps(p) }
        }

        fn store(p: *mut f32, v: __m512) {
            // SAFETY: 64 bytes, by contract.
            unsafe { _mm512_storeu_ps(p, v) }
        }

        fn splat(p: *const f32) -> __m512 {
            // SAFETY: 4 bytes, by contract.
            _mm512_set1_ps(unsafe { p.read_unaligned() })
        }

        fn add(a: __m512, b: __m512) -> __m512 {
            _mm512_add_ps(a, b)
        }

        fn mul(a: __m512, b: __m512) -> __m512 {
            _mm512_mul_ps(a, b)
        }

        fn fma(a: __m512, b: __m512, c: __m512) -> __m512 {
            _mm512_fmadd_ps(a, b, c)
        }

        fn load_f16(p: *const u8) -> __m512 {
            // SAFETY: 32 bytes, by contract.
            _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(p.cast()) })
        }

        fn load_bf16(p: *const u8) -> __m512 {
            // SAFETY: 32 bytes, by contract.
            let high = _mm512_cvtepu16_epi32(unsafe { _mm256_loadu_si256(p.cast()) });
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(high))
        }

        fn load_u8(p: *const u8) -> __m512 {
            // SAFETY: 16 bytes, by contract.
            _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(unsafe { _mm_loadu_si128(p.cast()) }))
        }

        fn load_i8(p: *const u8) -> __m512 {
            // SAFETY: 16 bytes, by contract.
            _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(unsafe { _mm_loadu_si128(p.cast()) }))
        }

        fn minus_i32(v: __m512i, by: i32) -> __m512i {
            _mm512_sub_epi32(v, _mm512_set1_epi32(by))
        }

        fn to_f32(v: __m512i) -> __m512 {
            _mm512_cvtepi32_ps(v)
        }

        fn bytes(p: *const u8) -> __m512i {
            // SAFETY: 64 bytes, by contract.
            unsafe { _mm512_loadu_si512(p.cast()) }
        }

        fn field<const RIGHT: i32, const MASK: u8>(v: __m512i) -> __m512i {
            let moved = if RIGHT == 0 {
                v
            } else if RIGHT > 0 {
                _mm512_srl_epi16(v, _mm_cvtsi32_si128(RIGHT))
            } else {
                _mm512_sll_epi16(v, _mm_cvtsi32_si128(-RIGHT))
            };
            _mm512_and_si512(moved, _mm512_set1_epi8(MASK as i8))
        }

        fn or(a: __m512i, b: __m512i) -> __m512i {
            _mm512_or_si512(a, b)
        }

        fn lookup(table: &'static [u8; 16], v: __m512i) -> __m512i {
            // SAFETY: the table is 16 bytes long.
            let table = unsafe { _mm_loadu_si128(table.as_ptr().cast()) };
            _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), v)
        }

        fn byte<const J: u32>(v: __m512i) -> __m512i {
            let moved = _mm512_srl_epi32(v, _mm_cvtsi32_si128(8 * J as i32));
            if J == 3 { moved } else { _mm512_and_si512(moved, _mm512_set1_epi32(255)) }
        }

        fn dot<const N: usize>(
            w: &[__m512i; N],
            a: *const i8,
            minus: *const i32,
            _max: u32,
            zero: i32,
        ) -> __m512 {
            let (mut high, mut low) = (_mm512_setzero_si512(), _mm512_setzero_si512());
            if zero != 0 {
                // SAFETY: 4 bytes, by contract.
                let minus = _mm512_set1_epi32(unsafe { minus.read_unaligned() });
                // A shift, for all zeros in use.
                low = _mm512_mullo_epi32(opaque(minus), _mm512_set1_epi32(zero));
            }
            for (g, &w) in w.iter().enumerate() {
                // SAFETY: high and low parts, by contract.
                let (upper, lower) = unsafe {
                    let upper = a.add(4 * g);
                    let lower = upper.add(SUB).cast::<i32>();
                    (upper.cast::<i32>().read_unaligned(), lower.read_unaligned())
                };
                high = _mm512_dpbusd_epi32(high, w, _mm512_set1_epi32(upper));
                low = _mm512_dpbusd_epi32(low, w, _mm512_set1_epi32(lower));
            }
            _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32::<7>(high), low))
        }

        fn largest(x: *const f32) -> u32 {
            // SAFETY: 128 bytes, by contract.
            let (a, b) = unsafe { (_mm512_loadu_ps(x), _mm512_loadu_ps(x.add(16))) };
            let (a, b) = (_mm512_abs_ps(a), _mm512_abs_ps(b));
            let both = _mm512_max_epu32(_mm512_castps_si512(a), _mm512_castps_si512(b));
            _mm512_reduce_max_epu32(both)
        }

        fn round(x: *const f32, by: f32, high: &mut [i8; SUB], low: &mut [i8; SUB]) -> [i32; 2] {
            // SAFETY: 128 bytes, by contract.
            let x = unsafe { [_mm512_loadu_ps(x), _mm512_loadu_ps(x.add(16))] };
            let v = x.map(|x| _mm512_cvtps_epi32(_mm512_mul_ps(x, _mm512_set1_ps(by))));
            let upper =
                v.map(|v| _mm512_srai_epi32::<7>(_mm512_add_epi32(v, _mm512_set1_epi32(64))));
            let lower = [
                _mm512_sub_epi32(v[0], _mm512_slli_epi32::<7>(upper[0])),
                _mm512_sub_epi32(v[1], _mm512_slli_epi32::<7>(upper[1])),
            ];
            let [upper, lower] = [upper, lower].map(|part| {
                let [first, last] = part.map(|half| _mm512_cvtsepi32_epi8(half));
                _mm256_set_m128i(last, first)
            });
            // SAFETY: 32 bytes each.
            unsafe {
                _mm256_storeu_si256(high.as_mut_ptr().cast(), upper);
                _mm256_storeu_si256(low.as_mut_ptr().cast(), lower);
            }
            let (zero, ones) = (_mm256_setzero_si256(), _mm256_set1_epi8(1));
            let sums = _mm256_slli_epi32::<7>(_mm256_dpbusd_epi32(zero, ones, upper));
            let sums = _mm256_dpbusd_epi32(sums, ones, lower);
            let sums = _mm256_add_epi32(sums, _mm256_shuffle_epi32::<0b01_00_11_10>(sums));
            let sums = _mm256_add_epi32(sums, _mm256_shuffle_epi32::<0b10_11_00_01>(sums));
            [_mm256_extract_epi32::<0>(sums), _mm256_extract_epi32::<4>(sums)]
        }

        fn prefetch(p: *const u8) {
            _mm_prefetch::<_MM_HINT_T0>(p.cast());
        }
    }
}

/// The same vector, as one whose lanes the compiler does not know to be equal. It would
/// else compute on the one value in a general register and then move it over, which
/// costs more than the rest of a row's work (measured: 10.7 cycles a row against 6.0).
#[inline]
#[target_feature(enable = "avx512f")]
fn opaque(v: __m512i) -> __m512i {
    let mut v = v;
    // SAFETY: no instruction at all.
    unsafe {
        std::arch::asm!("/* {0} */", inout(zmm_reg) v, options(pure, nomem, nostack, preserves_flags));
    }
    v
}
