//! From (type, activations, instruction set) to code.

use foretoken::device::Activations;
use foretoken::tensor::DType;

use super::kernel::{AnyBlock, Block, Decoded, Fast, Job, Panel, Plain, Scalar, heights, run};
use super::lanes::{self, Lanes};
use super::layout::Layout;
use super::rows::by_isa;
use crate::simd::Isa;

/// A kernel for one type, activation precision and instruction set.
pub(super) type Run = unsafe fn(&Job);

/// What a linear operation calls.
#[derive(Clone, Copy)]
pub(super) struct Kernels {
    /// Converts activations.
    pub(super) convert: by_isa::Convert,
    /// Multiplies.
    pub(super) run: Run,
    /// Tile heights, for both.
    pub(super) heights: usize,
}

/// # Safety
/// As [`run`].
unsafe fn portable<P: Panel>(job: &Job) {
    // SAFETY: passed on.
    unsafe { run::<lanes::Portable, P>(job) }
}

/// # Safety
/// As [`run`], on a machine with AVX2, FMA and F16C.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn avx2<P: Panel>(job: &Job) {
    // SAFETY: passed on.
    unsafe { run::<lanes::Avx2, P>(job) }
}

/// # Safety
/// As [`run`], on a machine with AVX-512 F, BW, DQ, VL and VNNI.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn avx512<P: Panel>(job: &Job) {
    // SAFETY: passed on.
    unsafe { run::<lanes::Avx512, P>(job) }
}

/// # Safety
/// As [`run`].
#[cfg(target_arch = "aarch64")]
unsafe fn neon<P: Panel>(job: &Job) {
    // SAFETY: passed on.
    unsafe { run::<lanes::Neon, P>(job) }
}

/// Kernels of `P`, or for plain Rust of `Q`, which does the same.
fn of<P: Panel, Q: Panel>(isa: Isa) -> Option<Kernels> {
    if !isa.is_available() {
        return None;
    }
    Some(match isa {
        Isa::Portable => Kernels {
            convert: by_isa::portable,
            run: portable::<Q>,
            heights: heights::<lanes::Portable>(P::ACTIVATIONS),
        },
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => Kernels {
            convert: by_isa::avx2,
            run: avx2::<P>,
            heights: heights::<lanes::Avx2>(P::ACTIVATIONS),
        },
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => Kernels {
            convert: by_isa::avx512,
            run: avx512::<P>,
            heights: heights::<lanes::Avx512>(P::ACTIVATIONS),
        },
        #[cfg(target_arch = "aarch64")]
        Isa::Neon => Kernels {
            convert: by_isa::portable,
            run: neon::<P>,
            heights: heights::<lanes::Neon>(P::ACTIVATIONS),
        },
        #[allow(unreachable_patterns)]
        _ => return None,
    })
}

macro_rules! blocks {
    ($($name:ident)*) => {
        $(
            #[allow(non_camel_case_types)]
            struct $name;

            impl Block for $name {
                #[inline(always)]
                fn layout(_: &Job) -> Layout {
                    const { Layout::of(DType::$name).unwrap() }
                }
            }
        )*

        fn block(dtype: DType, activations: Activations, isa: Isa) -> Option<Kernels> {
            match (dtype, activations) {
                $(
                    (DType::$name, Activations::Fast) => of::<Fast<$name>, Fast<AnyBlock>>(isa),
                    (DType::$name, Activations::F32) => of::<Decoded<$name>, Decoded<AnyBlock>>(isa),
                )*
                _ => None,
            }
        }
    };
}

blocks! { Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS MXFP4 NVFP4 }

struct F32;
struct F16;
struct BF16;

impl Scalar for F32 {
    const BYTES: usize = 4;

    #[inline(always)]
    unsafe fn load<L: Lanes>(p: *const u8) -> L::F {
        // SAFETY: passed on.
        unsafe { L::load(p.cast()) }
    }
}

impl Scalar for F16 {
    const BYTES: usize = 2;

    #[inline(always)]
    unsafe fn load<L: Lanes>(p: *const u8) -> L::F {
        // SAFETY: passed on.
        unsafe { L::load_f16(p) }
    }
}

impl Scalar for BF16 {
    const BYTES: usize = 2;

    #[inline(always)]
    unsafe fn load<L: Lanes>(p: *const u8) -> L::F {
        // SAFETY: passed on.
        unsafe { L::load_bf16(p) }
    }
}

/// Activations as a weight of this type takes them: scalar weights always take `f32`.
pub(super) fn activations_for(dtype: DType, asked: Activations) -> Activations {
    if Layout::of(dtype).is_some() { asked } else { Activations::F32 }
}

/// The kernels for a type; `None` when there are none, or the machine lacks `isa`.
pub(super) fn kernels(dtype: DType, activations: Activations, isa: Isa) -> Option<Kernels> {
    match dtype {
        DType::F32 => of::<Plain<F32>, Plain<F32>>(isa),
        DType::F16 => of::<Plain<F16>, Plain<F16>>(isa),
        DType::BF16 => of::<Plain<BF16>, Plain<BF16>>(isa),
        _ => block(dtype, activations, isa),
    }
}
