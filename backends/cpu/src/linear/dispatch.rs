//! From (type, activations, instruction set) to code.

use foretoken::device::Activations;
use foretoken::tensor::DType;

use super::kernel::{AnyBlock, Block, Decoded, Fast, Job, Panel, Plain, Scalar, run};
use super::lanes::{self, Lanes};
use super::layout::Layout;
use super::rows::{Rows, convert};
use crate::simd::Isa;

/// A kernel for one type, activation precision and instruction set.
pub(super) type Run = unsafe fn(&Job);

/// Converts a part of the rows: see [`convert`].
pub(super) type Convert = unsafe fn(Rows, Activations, *mut u8, usize, usize);

/// What a linear operation calls.
#[derive(Clone, Copy)]
pub(super) struct Kernels {
    /// Converts activations.
    pub(super) convert: Convert,
    /// Multiplies.
    pub(super) run: Run,
}

/// The entry points of one instruction set: nothing but calls of the generic kernels,
/// which are inlined into code that is compiled for it.
macro_rules! entry_points {
    ($name:ident, $lanes:ident $(, $features:literal)?) => {
        mod $name {
            use super::*;

            /// # Safety
            /// As [`run`].
            $(#[target_feature(enable = $features)])?
            pub(super) unsafe fn multiply<P: Panel>(job: &Job) {
                // SAFETY: passed on.
                unsafe { run::<lanes::$lanes, P>(job) }
            }

            /// # Safety
            /// As [`convert`].
            $(#[target_feature(enable = $features)])?
            pub(super) unsafe fn prepare(
                x: Rows,
                act: Activations,
                out: *mut u8,
                part: usize,
                parts: usize,
            ) {
                // SAFETY: passed on.
                unsafe { convert::<lanes::$lanes>(x, act, out, part, parts) }
            }

            pub(super) fn kernels<P: Panel>() -> Kernels {
                Kernels { convert: prepare, run: multiply::<P> }
            }
        }
    };
}

entry_points!(portable, Portable);
#[cfg(target_arch = "x86_64")]
entry_points!(avx2, Avx2, "avx2,fma,f16c");
#[cfg(target_arch = "x86_64")]
entry_points!(avx512, Avx512, "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni");
#[cfg(target_arch = "aarch64")]
entry_points!(neon, Neon, "neon");

/// Kernels of `P`, or for plain Rust of `Q`, which does the same.
fn of<P: Panel, Q: Panel>(isa: Isa) -> Option<Kernels> {
    if !isa.is_available() {
        return None;
    }
    match isa {
        Isa::Portable => Some(portable::kernels::<Q>()),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => Some(avx2::kernels::<P>()),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => Some(avx512::kernels::<P>()),
        #[cfg(target_arch = "aarch64")]
        Isa::Neon => Some(neon::kernels::<P>()),
        #[allow(unreachable_patterns)]
        _ => None,
    }
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
