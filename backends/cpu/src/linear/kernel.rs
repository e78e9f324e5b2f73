//! The kernels, written once over [`Lanes`].
//!
//! Order of one output element, the same for every row count, thread split and
//! instruction set. `s` runs over the sub-blocks of 32 inputs, ascending; where the
//! type has sub-blocks of 16, over those instead.
//!
//! - Fast, types with a zero: `acc = fma(f32(sum_s (code - zero) * a) * scale_s, ascale_s, acc)`.
//! - Fast, types with offsets: `acc = fma(f32(sum_s code * a) * scale_s, ascale_s, acc)`, then
//!   `acc = fma(shift_s, ascale_s * f32(sum_s a), acc)`, where `shift` is minus the offset.
//! - F32: `acc = fma(w_k, x_k, acc)` for each input `k`, ascending, with `w` decoded to `f32`.
//!
//! All sums of codes are exact integers. Last, `out = acc * weight scale`, or
//! `out = out + (acc * weight scale)` when accumulating.

use std::marker::PhantomData;
use std::mem::offset_of;

use foretoken::device::Activations;
use foretoken::tensor::DType;

use super::lanes::Lanes;
use super::layout::{CHUNK_SUBS, Codes, Layout, PANEL, SUB, Scales, VECTOR};
use super::rows::{Record, tiles};

/// One call: some panels of a weight times all converted rows.
#[derive(Clone, Copy)]
pub(super) struct Job {
    /// First panel.
    pub(super) panels: *const u8,
    /// Bytes from one panel to the next.
    pub(super) panel_bytes: usize,
    /// Block layout; `None` for scalar types.
    pub(super) layout: Option<Layout>,
    /// Inputs.
    pub(super) k: usize,
    /// Converted rows.
    pub(super) acts: *const u8,
    /// Bytes of converted activations per row.
    pub(super) row_bytes: usize,
    /// Number of rows.
    pub(super) rows: usize,
    /// Output element of row 0 and the first panel's first lane.
    pub(super) out: *mut f32,
    /// Elements from one output row to the next.
    pub(super) out_stride: usize,
    /// Output features from the first panel on, at most 16 per panel.
    pub(super) features: usize,
    /// Factor on the product.
    pub(super) scale: f32,
    /// Add to the output instead of overwriting it.
    pub(super) accumulate: bool,
}

/// Runs `$body` for `$m` in `0..T`, unrolled so that arrays indexed by `$m` live in
/// registers.
macro_rules! unroll {
    ($t:ident, $m:ident, $body:block) => {
        unroll!(@ $t, $m, $body, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
    };
    (@ $t:ident, $m:ident, $body:block, $($i:literal)*) => {
        $(if $t > $i {
            const $m: usize = $i;
            $body
        })*
    };
}

/// How a panel of one type meets a tile of rows.
pub(super) trait Panel {
    /// The sums of `T` rows by 16 features.
    ///
    /// # Safety
    /// `panel` is a whole panel of the job's inputs, `acts` a whole converted tile of `T` rows.
    unsafe fn tile<L: Lanes, const T: usize>(
        job: &Job,
        panel: *const u8,
        acts: *const u8,
    ) -> [L::F; T];

    /// How its activations are converted.
    const ACTIVATIONS: Activations;
}

/// Runs a job: tiles outside, panels inside, so that a tile of activations stays in
/// the first-level cache while the panels stream by.
///
/// # Safety
/// All that `job` points to is as it says; the machine has the instruction set of `L`.
#[inline(always)]
pub(super) unsafe fn run<L: Lanes, P: Panel>(job: &Job) {
    for (row, height) in tiles(job.rows, heights::<L>(P::ACTIVATIONS)) {
        for at in 0..job.features.div_ceil(PANEL) {
            // SAFETY: within what the job describes; tiles of `height` rows are `row_bytes`
            // per row from their first row's place.
            unsafe {
                let panel = job.panels.add(at * job.panel_bytes);
                let acts = job.acts.add(row * job.row_bytes);
                let out = job.out.add(row * job.out_stride + at * PANEL);
                let width = PANEL.min(job.features - at * PANEL);
                // Tiles that are not in use are not compiled.
                macro_rules! at {
                    ($t:literal) => {
                        if const { heights::<L>(P::ACTIVATIONS) & $t != 0 } {
                            if height == $t {
                                finish::<L, $t>(
                                    job,
                                    P::tile::<L, $t>(job, panel, acts),
                                    out,
                                    width,
                                );
                            }
                        }
                    };
                }
                at!(16);
                at!(8);
                at!(4);
                at!(2);
                at!(1);
            }
        }
    }
}

/// Tile heights in use, as a sum of powers of two.
pub(super) const fn heights<L: Lanes>(activations: Activations) -> usize {
    match activations {
        Activations::Fast => L::HEIGHTS,
        Activations::F32 => L::F32_HEIGHTS,
    }
}

/// Scales the sums and writes or adds them.
///
/// # Safety
/// `out` is valid for `T` rows of `width` elements.
#[inline(always)]
unsafe fn finish<L: Lanes, const T: usize>(
    job: &Job,
    sums: [L::F; T],
    out: *mut f32,
    width: usize,
) {
    for (row, sum) in sums.into_iter().enumerate() {
        // SAFETY: the full-width path touches 16 elements, the other `width` of them.
        unsafe {
            let out = out.add(row * job.out_stride);
            let scaled = L::mul(sum, L::splat(&job.scale));
            if width == PANEL {
                let old = if job.accumulate { Some(L::load(out)) } else { None };
                L::store(out, old.map_or(scaled, |old| L::add(old, scaled)));
            } else {
                let mut lanes = [0.0f32; PANEL];
                L::store(lanes.as_mut_ptr(), scaled);
                for (i, &lane) in lanes.iter().enumerate().take(width) {
                    let old = if job.accumulate { *out.add(i) } else { 0.0 };
                    *out.add(i) = if job.accumulate { old + lane } else { lane };
                }
            }
        }
    }
}

/// A block type.
pub(super) trait Block: 'static {
    /// Its layout: a constant, or that of the job.
    fn layout(job: &Job) -> Layout;
}

/// Whatever block type the job says: one slow kernel for all of them.
pub(super) struct AnyBlock;

impl Block for AnyBlock {
    #[inline(always)]
    fn layout(job: &Job) -> Layout {
        // A job without a layout is not given to this kernel.
        job.layout.unwrap_or(const { Layout::of(DType::Q8_0).unwrap() })
    }
}

/// `field` of one vector at several places.
macro_rules! fields {
    ($l:ident, $v:expr, $mask:literal, $($right:literal)*) => {
        [$($l::field::<$right, $mask>($v)),*]
    };
}

/// Eight code vectors of a sub-block, one per group of four inputs.
///
/// # Safety
/// `p` is valid for the codes of a sub-block.
#[inline(always)]
unsafe fn codes<L: Lanes>(layout: Layout, p: *const u8) -> [L::B; 8] {
    // SAFETY: vectors of the sub-block, by contract.
    unsafe {
        match layout.codes {
            Codes::Bits2 => pairs::<L>(p),
            Codes::Bits3 => {
                let thirds = fields!(L, L::bytes(p.add(2 * VECTOR)), 4, -2 -1 0 1 2 3 4 5);
                or::<L>(pairs::<L>(p), thirds)
            }
            Codes::Bits4 => nibbles::<L>(p),
            Codes::Table(table, _) => {
                let mut v = nibbles::<L>(p);
                for v in &mut v {
                    *v = L::lookup(table, *v);
                }
                v
            }
            Codes::Bits5 => {
                let fifths = fields!(L, L::bytes(p.add(4 * VECTOR)), 16, -4 -3 -2 -1 0 1 2 3);
                or::<L>(nibbles::<L>(p), fifths)
            }
            Codes::Bits6 => {
                let low = fields!(L, L::bytes(p.add(4 * VECTOR)), 48, -4 -2 0 2);
                let high = fields!(L, L::bytes(p.add(5 * VECTOR)), 48, -4 -2 0 2);
                or::<L>(nibbles::<L>(p), concat::<L, 4>(&[low, high]))
            }
            Codes::Bits8 => {
                let mut v = [L::bytes(p); 8];
                for (i, v) in v.iter_mut().enumerate() {
                    *v = L::bytes(p.add(i * VECTOR));
                }
                v
            }
        }
    }
}

/// # Safety
/// `p` is valid for four vectors.
#[inline(always)]
unsafe fn nibbles<L: Lanes>(p: *const u8) -> [L::B; 8] {
    // SAFETY: passed on.
    unsafe {
        concat::<L, 2>(&[
            fields!(L, L::bytes(p), 15, 0 4),
            fields!(L, L::bytes(p.add(VECTOR)), 15, 0 4),
            fields!(L, L::bytes(p.add(2 * VECTOR)), 15, 0 4),
            fields!(L, L::bytes(p.add(3 * VECTOR)), 15, 0 4),
        ])
    }
}

/// # Safety
/// `p` is valid for two vectors.
#[inline(always)]
unsafe fn pairs<L: Lanes>(p: *const u8) -> [L::B; 8] {
    // SAFETY: passed on.
    unsafe {
        concat::<L, 4>(&[
            fields!(L, L::bytes(p), 3, 0 2 4 6),
            fields!(L, L::bytes(p.add(VECTOR)), 3, 0 2 4 6),
        ])
    }
}

#[inline(always)]
fn concat<L: Lanes, const N: usize>(parts: &[[L::B; N]]) -> [L::B; 8] {
    let mut all = [parts[0][0]; 8];
    for (i, v) in all.iter_mut().enumerate() {
        *v = parts[i / N][i % N];
    }
    all
}

/// # Safety
/// The machine has the instruction set of `L`.
#[inline(always)]
unsafe fn or<L: Lanes>(mut a: [L::B; 8], b: [L::B; 8]) -> [L::B; 8] {
    for (a, b) in a.iter_mut().zip(b) {
        // SAFETY: passed on.
        *a = unsafe { L::or(*a, b) };
    }
    a
}

/// The scales of a sub-block, and what is added to every value (minus the offsets).
struct SubScales<L: Lanes> {
    scales: [L::F; 2],
    shifts: [L::F; 2],
}

/// # Safety
/// `head` is the head of a chunk that has a sub-block `sub`; `factors` are the chunk's.
#[inline(always)]
unsafe fn scales<L: Lanes>(
    layout: Layout,
    head: *const u8,
    factors: [L::F; 2],
    sub: usize,
) -> SubScales<L> {
    // SAFETY: inside the head, by contract.
    unsafe {
        let first = head.add(layout.factor_bytes() + sub * layout.scale_bytes());
        let scales = sets::<L>(layout, first, factors[0]);
        let shifts = match layout.zero {
            Some(_) => [L::zero(); 2],
            None => sets::<L>(layout, first.add(layout.sets * layout.set_bytes()), factors[1]),
        };
        SubScales { scales, shifts }
    }
}

/// One set of scales or both; the same twice when there is one.
///
/// # Safety
/// `p` is valid for the sets.
#[inline(always)]
unsafe fn sets<L: Lanes>(layout: Layout, p: *const u8, factor: L::F) -> [L::F; 2] {
    // SAFETY: passed on.
    unsafe {
        let first = set::<L>(layout, p, factor);
        match layout.sets {
            1 => [first; 2],
            _ => [first, set::<L>(layout, p.add(layout.set_bytes()), factor)],
        }
    }
}

/// # Safety
/// `p` is valid for a set of scales.
#[inline(always)]
unsafe fn set<L: Lanes>(layout: Layout, p: *const u8, factor: L::F) -> L::F {
    // SAFETY: passed on.
    unsafe {
        match layout.scales {
            Scales::F16 => L::load_f16(p),
            Scales::Bf16 => L::load_bf16(p),
            Scales::Super { signed: true, .. } => L::mul(factor, L::load_i8(p)),
            Scales::Super { signed: false, .. } => L::mul(factor, L::load_u8(p)),
        }
    }
}

/// The factors at the start of a chunk's head: for scales and for shifts.
///
/// # Safety
/// `head` is the head of a chunk.
#[inline(always)]
unsafe fn factors<L: Lanes>(layout: Layout, head: *const u8) -> [L::F; 2] {
    // SAFETY: inside the head, by contract.
    unsafe {
        match (layout.scales, layout.zero) {
            (Scales::Super { .. }, None) => [L::load_f16(head), L::load_f16(head.add(2 * PANEL))],
            (Scales::Super { .. }, Some(_)) => [L::load_f16(head); 2],
            _ => [L::zero(); 2],
        }
    }
}

/// Walks the sub-blocks of a panel: number, scales and codes of each. A macro, not a
/// function with a closure: a closure could end up outside the code that is compiled
/// for the instruction set. To be used where a panel of `$subs` sub-blocks is vouched for.
macro_rules! each_sub {
    ($l:ident, $layout:ident, $panel:ident, $subs:expr, |$sub:ident, $scales:ident, $codes:ident| $work:block) => {
        let (mut head, mut left) = ($panel, $subs);
        let mut $sub = 0;
        while left > 0 {
            let count = left.min(CHUNK_SUBS);
            let factors = factors::<$l>($layout, head);
            let mut $codes = head.add($layout.head_bytes(count));
            for i in 0..count {
                let $scales = scales::<$l>($layout, head, factors, i);
                $work
                $codes = $codes.add($layout.code_bytes());
                $sub += 1;
            }
            head = head.add($layout.chunk_bytes(count));
            left -= count;
        }
    };
}

/// Block weights times quantised activations.
pub(super) struct Fast<B>(PhantomData<B>);

/// Block weights, decoded, times `f32` activations.
pub(super) struct Decoded<B>(PhantomData<B>);

/// How far ahead of the codes in use memory is asked for.
const AHEAD: usize = 2048;

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
                let w = codes::<L>(layout, p);
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
        let minus = L::splat_i32(record.add(part.minus).cast());
        let start = L::scale_i32(minus, i32::from(layout.zero.unwrap_or(0)));
        let max = layout.codes.max();
        let dot = L::dot::<N>(start, w, record.add(part.codes).cast(), max);
        let ascale = L::splat(record.add(offset_of!(Record, scale)).cast());
        let sums = L::fma(L::mul(L::to_f32(dot), scale), ascale, sums);
        match layout.zero {
            Some(_) => sums,
            None => L::fma(shift, L::splat(record.add(part.sum).cast()), sums),
        }
    }
}

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
                let codes = codes::<L>(layout, p);
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

/// A scalar type known at compile time.
pub(super) trait Scalar: 'static {
    const BYTES: usize;

    /// Sixteen values as `f32`.
    ///
    /// # Safety
    /// `p` is valid for `16 * BYTES` bytes.
    unsafe fn load<L: Lanes>(p: *const u8) -> L::F;
}

/// Scalar weights, `[k][16]`, times `f32` activations.
pub(super) struct Plain<S>(PhantomData<S>);

impl<S: Scalar> Panel for Plain<S> {
    const ACTIVATIONS: Activations = Activations::F32;

    #[inline(always)]
    unsafe fn tile<L: Lanes, const T: usize>(
        job: &Job,
        panel: *const u8,
        acts: *const u8,
    ) -> [L::F; T] {
        // SAFETY: `k` vectors of the panel and a whole tile of inputs, by contract.
        unsafe {
            let mut sums = [L::zero(); T];
            let x = acts.cast::<f32>();
            for i in 0..job.k {
                let p = panel.add(i * PANEL * S::BYTES);
                L::prefetch(p.wrapping_add(AHEAD));
                let w = S::load::<L>(p);
                let x = x.add(i * T);
                unroll!(T, M, { sums[M] = L::fma(w, L::splat(x.add(M)), sums[M]) });
            }
            sums
        }
    }
}
