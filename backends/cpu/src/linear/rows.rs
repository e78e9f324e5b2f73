//! Activations, converted once for all the products that share them.
//!
//! Rows are grouped into *tiles* (up to 16 rows, powers of two, greedily), because a kernel
//! keeps the sums of one tile in registers. Within a tile, data of the same inputs lie
//! side by side: a tile is one linear stream for the kernel.
//!
//! - Fast: [`Record`]s, `[tile][sub-block][row]`.
//! - F32: `f32`, `[tile][input][row]`.

use foretoken::device::Activations;

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

/// 1.5 * 2^23: adding it leaves the nearest integer (ties to even) in the low mantissa
/// bits, for magnitudes up to 2^22.
const ROUND: f32 = 12_582_912.0;

impl Record {
    /// Quantises 32 values.
    #[inline(always)]
    pub(super) fn quantise(&mut self, x: &[f32; SUB]) {
        // Magnitudes compare as integers; an infinity or NaN is above all of them.
        let largest = x.iter().fold(0, |m: u32, x| m.max(x.to_bits() & 0x7FFF_FFFF));
        let amax = f32::from_bits(largest);
        let (scale, inverse) = if !amax.is_finite() {
            (f32::NAN, 0.0)
        } else if amax < 1e-35 {
            (0.0, 0.0)
        } else {
            (amax / 127.0, 127.0 / amax)
        };
        let mut halves = [0i32; 2];
        for ((x, codes), sum) in
            x.as_chunks::<16>().0.iter().zip(self.codes.as_chunks_mut::<16>().0).zip(&mut halves)
        {
            for (x, code) in x.iter().zip(codes) {
                let rounded = (x * inverse + ROUND).to_bits() as i32 - ROUND.to_bits() as i32;
                // Only beside a NaN or an infinity can it be out of range.
                let rounded = rounded.clamp(-127, 127);
                *sum += rounded;
                *code = rounded as i8;
            }
        }
        self.scale = scale;
        self.half_sums = halves.map(|sum| scale * sum as f32);
        self.half_minus = halves.map(|sum| -sum);
        self.sum = scale * (halves[0] + halves[1]) as f32;
        self.minus = -(halves[0] + halves[1]);
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
/// aligned, and no other call converts the same part at the same time.
#[inline(always)]
unsafe fn convert(
    x: Rows,
    act: Activations,
    heights: usize,
    out: *mut u8,
    part: usize,
    parts: usize,
) {
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
                            (*to).quantise(&*from.cast());
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

/// [`convert`] compiled for each instruction set; the bits are the same.
pub(super) mod by_isa {
    use super::*;

    /// Signature of the converters.
    pub(in crate::linear) type Convert = unsafe fn(Rows, Activations, usize, *mut u8, usize, usize);

    /// # Safety
    /// As [`convert`].
    pub(in crate::linear) unsafe fn portable(
        x: Rows,
        act: Activations,
        heights: usize,
        out: *mut u8,
        part: usize,
        parts: usize,
    ) {
        // SAFETY: passed on.
        unsafe { convert(x, act, heights, out, part, parts) }
    }

    /// # Safety
    /// As [`convert`], on a machine with AVX2.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    pub(in crate::linear) unsafe fn avx2(
        x: Rows,
        act: Activations,
        heights: usize,
        out: *mut u8,
        part: usize,
        parts: usize,
    ) {
        // SAFETY: passed on.
        unsafe { convert(x, act, heights, out, part, parts) }
    }

    /// # Safety
    /// As [`convert`], on a machine with AVX-512.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub(in crate::linear) unsafe fn avx512(
        x: Rows,
        act: Activations,
        heights: usize,
        out: *mut u8,
        part: usize,
        parts: usize,
    ) {
        // SAFETY: passed on.
        unsafe { convert(x, act, heights, out, part, parts) }
    }
}
