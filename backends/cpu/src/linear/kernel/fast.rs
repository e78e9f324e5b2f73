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
                let (low, high) = ([w[0], w[1], w[2], w[3]], [w[4], w[5], w[6], w[7]]);
                unroll!(T, M, {
                    let record = records.add(M).cast::<u8>();
                    let product = if layout.sets == 1 {
                        L::mul(dot::<L, 8>(layout, &w, record, WHOLE), scales[0])
                    } else {
                        let first = L::mul(dot::<L, 4>(layout, &low, record, LOW), scales[0]);
                        L::fma(dot::<L, 4>(layout, &high, record, HIGH), scales[1], first)
                    };
                    let step = L::splat(record.add(offset_of!(Record, scale)).cast());
                    let mut sum = L::fma(product, step, sums[M]);
                    if layout.zero.is_none() && layout.sets == 1 {
                        sum = L::fma(shifts[0], L::splat(record.add(WHOLE.sum).cast()), sum);
                    } else if layout.zero.is_none() {
                        sum = L::fma(shifts[0], L::splat(record.add(LOW.sum).cast()), sum);
                        sum = L::fma(shifts[1], L::splat(record.add(HIGH.sum).cast()), sum);
                    }
                    sums[M] = sum;
                });
            });
            sums
        }
    }
}

/// Where in a record the high parts and the sums of (half) a sub-block lie.
#[derive(Clone, Copy)]
struct Part {
    codes: usize,
    minus: usize,
    sum: usize,
}

// The low parts are found from the high ones.
const _: () = assert!(offset_of!(Record, low) == offset_of!(Record, high) + SUB);

const WHOLE: Part = Part {
    codes: offset_of!(Record, high),
    minus: offset_of!(Record, minus),
    sum: offset_of!(Record, sum),
};
const LOW: Part = Part {
    codes: offset_of!(Record, high),
    minus: offset_of!(Record, half_minus),
    sum: offset_of!(Record, half_sums),
};
const HIGH: Part = Part { codes: LOW.codes + 16, minus: LOW.minus + 4, sum: LOW.sum + 4 };

/// The exact sum over (half) a sub-block of one row.
///
/// # Safety
/// `record` is a whole record.
#[inline(always)]
unsafe fn dot<L: Lanes, const N: usize>(
    layout: Layout,
    w: &[L::B; N],
    record: *const u8,
    part: Part,
) -> L::F {
    // SAFETY: fields of the record.
    unsafe {
        let (codes, minus) = (record.add(part.codes).cast(), record.add(part.minus).cast());
        L::dot::<N>(w, codes, minus, layout.codes.max(), i32::from(layout.zero.unwrap_or(0)))
    }
}
