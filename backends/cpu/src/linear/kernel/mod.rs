//! The kernels, written once over [`Lanes`].
//!
//! Order of one output element, the same for every row count, thread split and
//! instruction set. `s` runs over the sub-blocks of 32 inputs, ascending; `A` is the step
//! of the activations there and `a` their 15-bit integers, `S` the scale of the weights and `c` their
//! codes less the type's zero. Each `fma` rounds once, each product as it stands once.
//!
//! - Fast: `acc = fma(f32(sum a c) * S, A, acc)`.
//! - Fast, two scales in a sub-block (sums over its first and last 16):
//!   `acc = fma(fma(f32(sum a c)_1, S_1, f32(sum a c)_0 * S_0), A, acc)`.
//! - Types with offsets, after that: `acc = fma(-offset, A * f32(sum a), acc)`, with two
//!   scales for each half.
//! - F32: `acc = fma(w, x, acc)` for each input, ascending, with `w` decoded to `f32`.
//!
//! Sums inside `f32(..)` are exact integers. Last, `out = acc * weight scale`, or
//! `out = out + (acc * weight scale)` when accumulating.
//!
//! `sub_block` reads codes and scales, `fast` and `decoded` are the two kernels for
//! block types, `plain` the one for scalar types.

mod decoded;
mod fast;
mod plain;
mod sub_block;

pub(super) use decoded::Decoded;
pub(super) use fast::Fast;
pub(super) use plain::{Plain, Scalar};

use foretoken::device::Activations;
use foretoken::tensor::DType;

use super::lanes::Lanes;
use super::layout::{Layout, PANEL};
use super::rows::tiles;

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
        unroll!(@ $t, $m, $body, 0 1 2 3 4 5 6 7)
    };
    (@ $t:ident, $m:ident, $body:block, $($i:literal)*) => {
        $(if $t > $i {
            const $m: usize = $i;
            $body
        })*
    };
}
use unroll;

/// How far ahead memory is asked for.
const AHEAD: usize = 2048;

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
    // SAFETY: the full-width path touches 16 elements, the other `width` of them.
    unsafe {
        let scale = L::splat(&job.scale);
        unroll!(T, M, {
            let out = out.add(M * job.out_stride);
            let scaled = L::mul(sums[M], scale);
            if width < PANEL {
                let mut lanes = [0.0f32; PANEL];
                L::store(lanes.as_mut_ptr(), scaled);
                write_part(out, &lanes[..width], job.accumulate);
            } else if job.accumulate {
                L::store(out, L::add(L::load(out), scaled));
            } else {
                L::store(out, scaled);
            }
        });
    }
}

/// Writes or adds the lanes of a partial panel.
///
/// # Safety
/// `out` is valid for as many elements.
unsafe fn write_part(out: *mut f32, lanes: &[f32], accumulate: bool) {
    for (i, &lane) in lanes.iter().enumerate() {
        // SAFETY: passed on.
        unsafe { *out.add(i) = if accumulate { *out.add(i) + lane } else { lane } }
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
