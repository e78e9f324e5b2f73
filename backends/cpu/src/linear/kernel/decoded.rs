//! Block weights, decoded to `f32`, times `f32` rows.

use std::marker::PhantomData;

use foretoken::device::Activations;

use super::sub_block::{self, SubScales, each_sub};
use super::{Block, Job, Panel, unroll};
use crate::linear::lanes::Lanes;
use crate::linear::layout::{CHUNK_SUBS, Layout, SUB};

/// Block weights, decoded, times `f32` activations.
pub(in crate::linear) struct Decoded<B>(PhantomData<B>);

impl<B: Block> Panel for Decoded<B> {
    const ACTIVATIONS: Activations = Activations::F32;

    #[inline(always)]
    unsafe fn tile<L: Lanes, const T: usize>(
        job: &Job,
        panel: *const u8,
        acts: *const u8,
    ) -> [L::F; T] {
        let layout = B::layout(job);
        // SAFETY: whole sub-blocks of the panel and a whole tile of inputs, by contract.
        unsafe {
            let mut sums = [L::zero(); T];
            each_sub!(L, layout, panel, job.k / SUB, |sub, sub_scales, p| {
                let SubScales { scales, shifts } = sub_scales;
                let x = acts.cast::<f32>().add(sub * SUB * T);
                let codes = sub_block::codes::<L>(layout, p);
                for (group, &codes) in codes.iter().enumerate() {
                    let half = group / 4 * (layout.sets - 1);
                    let w = [
                        decoded::<L>(layout, L::byte::<0>(codes), scales[half], shifts[half]),
                        decoded::<L>(layout, L::byte::<1>(codes), scales[half], shifts[half]),
                        decoded::<L>(layout, L::byte::<2>(codes), scales[half], shifts[half]),
                        decoded::<L>(layout, L::byte::<3>(codes), scales[half], shifts[half]),
                    ];
                    for (j, &w) in w.iter().enumerate() {
                        let x = x.add((4 * group + j) * T);
                        unroll!(T, M, { sums[M] = L::fma(w, L::splat(x.add(M)), sums[M]) });
                    }
                }
            });
            sums
        }
    }
}

/// Codes as the values they stand for.
///
/// # Safety
/// The machine has the instruction set of `L`.
#[inline(always)]
unsafe fn decoded<L: Lanes>(layout: Layout, code: L::I, scale: L::F, shift: L::F) -> L::F {
    // SAFETY: passed on.
    unsafe {
        match layout.zero {
            Some(zero) => L::mul(L::to_f32(L::minus_i32(code, i32::from(zero))), scale),
            None => L::fma(L::to_f32(code), scale, shift),
        }
    }
}
