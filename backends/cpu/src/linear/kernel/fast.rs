//! Block weights times quantised rows, in integers within a sub-block.

use std::marker::PhantomData;
use std::mem::offset_of;

use foretoken::device::Activations;

use super::sub_block::{self, SubScales, each_sub};
use super::{AHEAD, Block, Job, Panel, unroll};
use crate::linear::lanes::Lanes;
use crate::linear::layout::{CHUNK_SUBS, Layout, SUB};
use crate::linear::rows::Record;

/// Block weights times quantised activations.
pub(in crate::linear) struct Fast<B>(PhantomData<B>);

impl<B: Block> Panel for Fast<B> {
    const ACTIVATIONS: Activations = Activations::Fast;

    #[inline(always)]
    unsafe fn tile<L: Lanes, const T: usize>(
        job: &Job,
        panel: *const u8,
        acts: *const u8,
    ) -> [L::F; T] {
        let layout = B::layout(job);
        // SAFETY: whole sub-blocks of the panel and whole records of the tile, by contract.
        unsafe {
            let mut sums = [L::zero(); T];
            each_sub!(L, layout, panel, job.k / SUB, |sub, sub_scales, p| {
                let SubScales { scales, shifts } = sub_scales;
                for line in 0..layout.codes.vectors() {
                    L::prefetch(p.wrapping_add(AHEAD + 64 * line));
                }
                let w = sub_block::codes::<L>(layout, p);
                let records = acts.cast::<Record>().add(sub * T);
                let halves = ([w[0], w[1], w[2], w[3]], [w[4], w[5], w[6], w[7]]);
                unroll!(T, M, {
                    let record = records.add(M).cast::<u8>();
                    if layout.sets == 1 {
                        sums[M] =
                            step::<L, 8>(layout, sums[M], &w, record, WHOLE, scales[0], shifts[0]);
                    } else {
                        let (low, high) = &halves;
                        let sum =
                            step::<L, 4>(layout, sums[M], low, record, LOW, scales[0], shifts[0]);
                        sums[M] =
                            step::<L, 4>(layout, sum, high, record, HIGH, scales[1], shifts[1]);
                    }
                });
            });
            sums
        }
    }
}

/// Where in a record the codes and sums of (half) a sub-block lie.
#[derive(Clone, Copy)]
struct Part {
    codes: usize,
    minus: usize,
    sum: usize,
}

const WHOLE: Part = Part {
    codes: offset_of!(Record, codes),
    minus: offset_of!(Record, minus),
    sum: offset_of!(Record, sum),
};
const LOW: Part = Part {
    codes: offset_of!(Record, codes),
    minus: offset_of!(Record, half_minus),
    sum: offset_of!(Record, half_sums),
};
const HIGH: Part = Part { codes: LOW.codes + 16, minus: LOW.minus + 4, sum: LOW.sum + 4 };

/// One row's (half) sub-block: the sums so far and this one's part.
///
/// # Safety
/// `record` is a whole record.
#[inline(always)]
unsafe fn step<L: Lanes, const N: usize>(
    layout: Layout,
    sums: L::F,
    w: &[L::B; N],
    record: *const u8,
    part: Part,
    scale: L::F,
    shift: L::F,
) -> L::F {
    // SAFETY: fields of the record.
    unsafe {
        let zero = i32::from(layout.zero.unwrap_or(0));
        let minus = record.add(part.minus).cast();
        let codes = record.add(part.codes).cast();
        let dot = L::dot::<N>(w, codes, minus, layout.codes.max(), zero);
        let ascale = L::splat(record.add(offset_of!(Record, scale)).cast());
        let sums = L::fma(L::mul(L::to_f32(dot), scale), ascale, sums);
        match layout.zero {
            Some(_) => sums,
            None => L::fma(shift, L::splat(record.add(part.sum).cast()), sums),
        }
    }
}
