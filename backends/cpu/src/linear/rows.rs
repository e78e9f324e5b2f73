//! Activations, converted once for all the products that share them.
//!
//! Rows are grouped into *tiles* (up to 16 rows, powers of two, greedily), because a kernel
//! keeps the sums of one tile in registers. Within a tile, data of the same inputs lie
//! side by side: a tile is one linear stream for the kernel.
//!
//! - Fast: [`Record`]s, `[tile][sub-block][row]`.
//! - F32: `f32`, `[tile][input][row]`.

use foretoken::device::Activations;

use super::kernel::heights;
use super::lanes::Lanes;
use super::layout::SUB;

/// One sub-block of one row: 32 values as signed bytes with a common scale.
///
/// `scale = amax / 127`, `code = round to nearest even (x * (127 / amax))`, within
/// -127 ..= 127. A block whose largest magnitude is below 1e-35 is all zero; one that
/// holds a NaN or an infinity has scale NaN, so that it is seen in the product.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Record {
    /// The values are `scale * codes[i]`.
    pub(super) codes: [i8; SUB],
    /// Size of one step.
    pub(super) scale: f32,
    /// `scale` times the sum of all codes.
    pub(super) sum: f32,
    /// `scale` times the sum of codes 0..16 and 16..32.
    pub(super) half_sums: [f32; 2],
    /// Minus the sum of all codes.
    pub(super) minus: i32,
    /// Minus the sum of codes 0..16 and 16..32.
    pub(super) half_minus: [i32; 2],
    pad: u32,
}

impl Record {
    /// Quantises 32 values.
    ///
    /// # Safety
    /// `x` is valid for 32 values; the machine has the instruction set of `L`.
    #[inline(always)]
    unsafe fn quantise<L: Lanes>(&mut self, x: *const f32) {
        // SAFETY: passed on.
        let amax = f32::from_bits(unsafe { L::largest(x) });
        let (scale, inverse) = if !amax.is_finite() {
            (f32::NAN, 0.0)
        } else if amax < 1e-35 {
            (0.0, 0.0)
        } else {
            (amax / 127.0, 127.0 / amax)
        };
        // SAFETY: passed on; the record has room for 32 codes.
        let sums = unsafe { L::round(x, inverse, self.codes.as_mut_ptr()) };
        self.scale = scale;
        self.half_sums = [scale * sums[0] as f32, scale * sums[1] as f32];
        self.half_minus = [-sums[0], -sums[1]];
        self.sum = scale * (sums[0] + sums[1]) as f32;
        self.minus = -(sums[0] + sums[1]);
    }
}

/// Bytes of converted activations per row of `k` inputs.
pub(super) fn row_bytes(activations: Activations, k: usize) -> usize {
    match activations {
        Activations::Fast => k / SUB * size_of::<Record>(),
        Activations::F32 => k * size_of::<f32>(),
    }
}

/// The tiles that `rows` rows fall into: first row and height. `heights` is a sum of
/// powers of two, 1 among them; the highest that fits comes first.
pub(super) fn tiles(rows: usize, heights: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let fitting = heights & (usize::MAX >> (rows - at).leading_zeros().min(63));
        let height = (at < rows).then(|| 1 << fitting.ilog2())?;
        at += height;
        Some((at - height, height))
    })
}

/// Rows of `k` values, `stride` apart.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    pub(super) first: *const f32,
    pub(super) stride: usize,
    pub(super) rows: usize,
    pub(super) k: usize,
}

/// Converts part `part` of `parts` of all rows into `out`.
///
/// # Safety
/// `x` describes readable memory, `out` is valid for `rows * row_bytes`, 64-byte
/// aligned, no other call converts the same part at the same time; the machine has the
/// instruction set of `L`.
#[inline(always)]
pub(super) unsafe fn convert<L: Lanes>(
    x: Rows,
    act: Activations,
    out: *mut u8,
    part: usize,
    parts: usize,
) {
    let heights = heights::<L>(act);
    let blocks = x.k.div_ceil(SUB);
    // Work is counted in (row, sub-block) pairs, tile by tile.
    let total = x.rows * blocks;
    let (from, to) = (total * part / parts, total * (part + 1) / parts);
    for (row, height) in tiles(x.rows, heights) {
        let first = row * blocks;
        // Pairs of a tile are handed out as whole sub-blocks, `height` pairs each.
        let begin = from.saturating_sub(first).div_ceil(height).min(blocks);
        let end = to.saturating_sub(first).div_ceil(height).min(blocks);
        for block in begin..end {
            for r in 0..height {
                // SAFETY: row + r < rows and block < blocks; the output of a tile starts
                // at its first row's place, and blocks of a tile lie `height` apart.
                unsafe {
                    let from = x.first.add((row + r) * x.stride + block * SUB);
                    match act {
                        Activations::Fast => {
                            let to = out.cast::<Record>().add(first + block * height + r);
                            (*to).quantise::<L>(from);
                        }
                        Activations::F32 => {
                            let to = out.cast::<f32>().add(row * x.k + block * SUB * height + r);
                            for i in 0..SUB.min(x.k - block * SUB) {
                                *to.add(i * height) = *from.add(i);
                            }
                        }
                    }
                }
            }
        }
    }
}
