//! Vector arithmetic with one order of operations on every instruction set.
//!
//! Code is written once, over arrays of [`LANES`] floats, and compiled for each
//! instruction set by [`per_isa!`]. Every product that is added is fused
//! (`f32::mul_add`, which is exact on any target). A sum over a vector has one
//! order: lane `i % 16` adds element `i`, in ascending order, and the lanes are
//! folded by halves (8, 4, 2, 1). So results are the same bits everywhere.

mod exp;
mod half;
mod lanes;

pub(crate) use exp::{exp, exp1, sigmoid, sigmoid1, silu};
pub(crate) use half::{bf16_to_f32, f16_to_f32};
pub(crate) use lanes::{
    LANES, Lanes, add, dot, fma, fma_scalar, load, load_part, map, mul, mul_scalar, splat, store,
    sum_of_squares, tree,
};

/// Defines a function compiled once for each instruction set, chosen by a first
/// argument of type [`Isa`](crate::simd::Isa).
macro_rules! per_isa {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name(isa: $crate::simd::Isa, $($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            fn body($($arg: $ty),*) $(-> $ret)? $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            #[allow(clippy::too_many_arguments)]
            fn avx2($($arg: $ty),*) $(-> $ret)? {
                body($($arg),*)
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
            #[allow(clippy::too_many_arguments)]
            fn avx512($($arg: $ty),*) $(-> $ret)? {
                body($($arg),*)
            }

            match isa {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: a device opens only with an instruction set that was detected.
                $crate::simd::Isa::Avx2 => unsafe { avx2($($arg),*) },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: as above.
                $crate::simd::Isa::Avx512 => unsafe { avx512($($arg),*) },
                // NEON is part of every aarch64 target.
                _ => body($($arg),*),
            }
        }
    };
}
pub(crate) use per_isa;
