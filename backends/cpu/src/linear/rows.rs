//! Activations, converted once for all the products that share them.
//!
//! Rows are grouped into *tiles* (up to 8 rows, powers of two, greedily), because a kernel
//! keeps the sums of one tile in registers. Within a tile, data of the same inputs lie
//! side by side: a tile is one linear stream for the kernel.
//!
//! - Fast: [`Record`]s, `[tile][sub-block][row]`.
//! - F32: `f32`, `[tile][input][row]`.

use foretoken::device::Activations;

use super::kernel::heights;
use super::lanes::Lanes;
use super::layout::SUB;

/// One sub-block of one row: 32 values as 15-bit integers with a common scale.
///
/// `scale = amax / 16256`, `v = round to nearest even (x * (16256 / amax))`, kept as two
/// signed bytes: `v = 128 * high + low`, high within -127 ..= 127, low within -64 ..= 63.
/// One byte alone would be 128 times coarser: log-probabilities of a small model were off
/// by 0.14. A block whose largest magnitude is below 1e-30 is all zero; one that holds a
/// NaN or an infinity has scale NaN, so that it is seen in the product.
#[repr(C, align(32))]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Record {
    /// High parts.
    pub(super) high: [i8; SUB],
    /// Low parts, right behind.
    pub(super) low: [i8; SUB],
    /// The values are `scale * v[i]`.
    pub(super) scale: f32,
    /// `scale` times the sum of all `v`.
    pub(super) sum: f32,
    /// `scale` times the sum of `v[0..16]` and `v[16..32]`.
    pub(super) half_sums: [f32; 2],
    /// Minus the sum of all `v`.
    pub(super) minus: i32,
    /// Minus the sum of `v[0..16]` and `v[16..32]`.
    pub(super) half_minus: [i32; 2],
    pad: u32,
}

/// The largest `v`: 127 * 128.
const LARGEST: f32 = 16256.0;

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
        } else if amax < 1e-30 {
            (0.0, 0.0)
        } else {
            (amax / LARGEST, LARGEST / amax)
        };
        // SAFETY: passed on.
        let sums = unsafe { L::round(x, inverse, &mut self.high, &mut self.low) };
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
/// `x` describes readable memory, `out` is valid for `rows * row_bytes`, 32-byte
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
                            let count = SUB.min(x.k - block * SUB);
                            if height == 1 {
                                to.copy_from_nonoverlapping(from, count);
                            } else {
                                for i in 0..count {
                                    *to.add(i * height) = *from.add(i);
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
