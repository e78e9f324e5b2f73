//! Vector arithmetic with one order of operations on every instruction set.
//!
//! Code is written once and compiled for each instruction set by [`per_isa!`]: plain
//! loops where elements are independent, [`Simd`] vectors of sixteen floats where sums
//! or registers matter. Every product that is added is fused (`f32::mul_add`, which is
//! exact on any target). A sum has one order (`sums`). So results are the same bits
//! everywhere.

mod exp;
mod half;
mod sums;
mod vector;

pub(crate) use exp::{exp1, sigmoid1, silu1};
pub(crate) use half::{bf16_to_f32, f16_to_f32};
pub(crate) use sums::{dot, largest, sum, sum_of_squares};
#[cfg(target_arch = "aarch64")]
pub(crate) use vector::Neon;
#[cfg(target_arch = "x86_64")]
pub(crate) use vector::{Avx2, Avx512};
pub(crate) use vector::{LANES, Portable, Simd};

/// Defines a function that is compiled once for each instruction set and called with
/// the [`Isa`](crate::simd::Isa) to use as its first argument. In the body, the name in
/// brackets is the [`Simd`] of that instruction set.
macro_rules! per_isa {
    ($(#[$meta:meta])* $vis:vis fn $name:ident [$simd:ident] ($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name(isa: $crate::simd::Isa, $($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            fn body($simd: impl $crate::math::Simd, $($arg: $ty),*) $(-> $ret)? $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            #[allow(clippy::too_many_arguments)]
            fn avx2($($arg: $ty),*) $(-> $ret)? {
                // SAFETY: compiled with AVX2 and FMA.
                body(unsafe { $crate::math::Avx2::new() }, $($arg),*)
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
            #[allow(clippy::too_many_arguments)]
            fn avx512($($arg: $ty),*) $(-> $ret)? {
                // SAFETY: compiled with AVX-512 F and DQ, and AVX2.
                body(unsafe { $crate::math::Avx512::new() }, $($arg),*)
            }

            match isa {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: a device opens only with an instruction set that was detected.
                $crate::simd::Isa::Avx2 => unsafe { avx2($($arg),*) },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: as above.
                $crate::simd::Isa::Avx512 => unsafe { avx512($($arg),*) },
                #[cfg(target_arch = "aarch64")]
                // SAFETY: NEON is part of every aarch64 target.
                $crate::simd::Isa::Neon => body(unsafe { $crate::math::Neon::new() }, $($arg),*),
                _ => body($crate::math::Portable, $($arg),*),
            }
        }
    };
}
pub(crate) use per_isa;
