//! The vector operations that the kernels are written in, once per instruction set.
//!
//! A [`Lanes`] type computes on the 16 output rows of a panel at a time. Every
//! operation is defined to the bit (integer sums are exact, `fma` rounds once), so
//! the kernels of all instruction sets give the same bits by construction.

mod portable;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;

use super::layout::SUB;

#[cfg(target_arch = "x86_64")]
pub(super) use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub(super) use avx512::Avx512;
#[cfg(target_arch = "aarch64")]
pub(super) use neon::Neon;
pub(super) use portable::Portable;

/// Sixteen lanes of `f32` or `i32`, or 64 bytes, and what kernels do with them.
///
/// # Safety
/// All functions require the instruction set of the type, and pointers valid for the
/// bytes named; no alignment is required.
pub(super) trait Lanes: Copy + 'static {
    /// 16 `f32`.
    type F: Copy;
    /// 16 `i32`.
    type I: Copy;
    /// 64 bytes, four to a lane.
    type B: Copy;
    /// Heights of the tiles whose sums the register file can hold, at most 8: a sum of
    /// powers of two, 1 among them. Fewer heights, less code.
    const HEIGHTS: usize;
    /// The same for `f32` activations.
    const F32_HEIGHTS: usize;

    /// All zero.
    unsafe fn zero() -> Self::F;
    /// Reads 16 `f32`.
    unsafe fn load(p: *const f32) -> Self::F;
    /// Writes 16 `f32`.
    unsafe fn store(p: *mut f32, v: Self::F);
    /// One `f32` in every lane.
    unsafe fn splat(p: *const f32) -> Self::F;
    /// `a + b`.
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F;
    /// `a * b`.
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`, rounded once.
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;

    /// Reads 16 `f16` as `f32`.
    unsafe fn load_f16(p: *const u8) -> Self::F;
    /// Reads 16 `bf16` as `f32`.
    unsafe fn load_bf16(p: *const u8) -> Self::F;
    /// Reads 16 unsigned bytes as `f32`.
    unsafe fn load_u8(p: *const u8) -> Self::F;
    /// Reads 16 signed bytes as `f32`.
    unsafe fn load_i8(p: *const u8) -> Self::F;

    /// The lanes minus a constant.
    unsafe fn minus_i32(v: Self::I, by: i32) -> Self::I;
    /// To `f32`.
    unsafe fn to_f32(v: Self::I) -> Self::F;

    /// Reads 64 bytes.
    unsafe fn bytes(p: *const u8) -> Self::B;
    /// `(byte >> RIGHT) & MASK` (`<< -RIGHT` when negative). The mask covers no bit
    /// that the neighbouring byte's bits could be shifted into.
    unsafe fn field<const RIGHT: i32, const MASK: u8>(v: Self::B) -> Self::B;
    /// `a | b`.
    unsafe fn or(a: Self::B, b: Self::B) -> Self::B;
    /// `table[byte]`; all bytes are below 16.
    unsafe fn lookup(table: &'static [u8; 16], v: Self::B) -> Self::B;
    /// Byte `J` of each lane, zero-extended.
    unsafe fn byte<const J: u32>(v: Self::B) -> Self::I;

    /// `sum over g, j of (w[g][lane][j] - zero) * v[4 g + j]`, an exact integer, as `f32`
    /// (rounded to nearest even from 2^24 on). `v = 128 * high + low` as in a
    /// [`Record`](super::rows::Record): high parts at `a`, low ones [`SUB`] bytes on. Codes
    /// are at most `max`; `minus` is minus the sum of `v`.
    unsafe fn dot<const N: usize>(
        w: &[Self::B; N],
        a: *const i8,
        minus: *const i32,
        max: u32,
        zero: i32,
    ) -> Self::F;

    /// The largest magnitude among 32 `f32`, as bits: above those of any finite number
    /// when there is an infinity or a NaN.
    unsafe fn largest(x: *const f32) -> u32;
    /// Rounds `x[i] * by` to the nearest integer `v` (ties to even), for 32 values, writes
    /// `(v + 64) >> 7` and what is left of `v`, and returns the sums of the first and the
    /// last sixteen `v`. Magnitudes are at most 16256; where a product is not a number, its
    /// parts are unspecified.
    unsafe fn round(x: *const f32, by: f32, high: &mut [i8; SUB], low: &mut [i8; SUB]) -> [i32; 2];

    /// Asks for the cache line at `p`, which need not be mapped.
    unsafe fn prefetch(p: *const u8);
}
