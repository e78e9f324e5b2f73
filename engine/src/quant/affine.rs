//! Blocks as unsigned codes with a scale and an offset per sub-block: what integer
//! kernels multiply with.

use super::QuantFault;
use super::codec::{self, Visit};
use super::decode::{check_length, elements_in};
use crate::Result;
use crate::tensor::DType;

/// Shape of the affine form of a block type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AffineLayout {
    /// Consecutive elements that share a scale and an offset: 16 or 32.
    pub sub_block: usize,
    /// 4 when every code fits in a nibble, else 8.
    pub code_bits: u8,
    /// Largest code there is. A kernel that adds products of codes and signed bytes
    /// in 16 bits must know it.
    pub max_code: u8,
    /// `Some(z)` when every offset is `z * scale`, so that zero is code `z`; `None`
    /// when offsets are independent of scales.
    pub zero: Option<u8>,
}

/// The affine form of `dtype`; `None` for plain scalars and for types without a
/// codec.
pub fn affine_layout(dtype: DType) -> Option<AffineLayout> {
    codec::visit(dtype, Layout).ok()
}

/// Splits `bytes`, whole blocks of `dtype`, into codes (one per element, in element
/// order) and a scale and an offset per sub-block of [`AffineLayout::sub_block`]
/// elements, so that `value = scale * code - offset`.
///
/// With each product and the difference rounded to `f32`, the values equal those of
/// [`decode`](super::decode()) exactly, zeros possibly of the other sign: for every
/// type `scale * code` and `zero * scale` fit in the 24 bits of an `f32` significand
/// (widest: Q6_K, 18 bits times 6), so only the last subtraction can round, and then
/// `decode` rounds the same difference. Two exceptions, both absurd as weights: a
/// non-finite scale gives non-finite values that may differ in kind, and MXFP4 blocks
/// with exponents of 252 and up (scales of 2^124 and more) overflow on the way.
///
/// # Errors
/// [`QuantFault::NotAffine`] when [`affine_layout`] is `None`,
/// [`QuantFault::PartialBlock`] when `bytes` is not whole blocks,
/// [`QuantFault::Length`] when a slice is not exactly as long as it must be.
pub fn to_affine(
    dtype: DType,
    bytes: &[u8],
    codes: &mut [u8],
    scales: &mut [f32],
    offsets: &mut [f32],
) -> Result<()> {
    let layout = affine_layout(dtype).ok_or(QuantFault::NotAffine(dtype))?;
    let elements = elements_in(dtype, bytes)?;
    let subs = elements / layout.sub_block;
    check_length(dtype, "the codes", elements, codes.len())?;
    check_length(dtype, "the scales", subs, scales.len())?;
    check_length(dtype, "the offsets", subs, offsets.len())?;
    Ok(codec::visit(dtype, Split { bytes, codes, scales, offsets })?)
}

struct Layout;

impl Layout {
    fn of<const E: usize, const S: usize>(max_code: u8, zero: Option<u8>) -> AffineLayout {
        let code_bits = if max_code < 16 { 4 } else { 8 };
        AffineLayout { sub_block: E / S, code_bits, max_code, zero }
    }
}

impl Visit for Layout {
    type Out = AffineLayout;

    fn centred<const B: usize, const E: usize, const S: usize>(
        self,
        max_code: u8,
        zero: u8,
        _unpack: impl Fn(&[u8; B], &mut [u8; E], &mut [f32; S]),
    ) -> AffineLayout {
        Self::of::<E, S>(max_code, Some(zero))
    }

    fn shifted<const B: usize, const E: usize, const S: usize>(
        self,
        max_code: u8,
        _unpack: impl Fn(&[u8; B], &mut [u8; E], &mut [f32; S], &mut [f32; S]),
    ) -> AffineLayout {
        Self::of::<E, S>(max_code, None)
    }
}

struct Split<'a> {
    bytes: &'a [u8],
    codes: &'a mut [u8],
    scales: &'a mut [f32],
    offsets: &'a mut [f32],
}

impl Visit for Split<'_> {
    type Out = ();

    fn centred<const B: usize, const E: usize, const S: usize>(
        self,
        max_code: u8,
        zero: u8,
        unpack: impl Fn(&[u8; B], &mut [u8; E], &mut [f32; S]),
    ) {
        self.shifted(max_code, |block, codes, scales, offsets| {
            unpack(block, codes, scales);
            for (offset, &scale) in offsets.iter_mut().zip(scales.iter()) {
                *offset = f32::from(zero) * scale;
            }
        });
    }

    fn shifted<const B: usize, const E: usize, const S: usize>(
        self,
        _max_code: u8,
        unpack: impl Fn(&[u8; B], &mut [u8; E], &mut [f32; S], &mut [f32; S]),
    ) {
        let codes = self.codes.as_chunks_mut().0;
        let scales = self.scales.as_chunks_mut().0;
        let offsets = self.offsets.as_chunks_mut().0;
        let blocks = self.bytes.as_chunks().0.iter().zip(codes);
        for (((block, codes), scales), offsets) in blocks.zip(scales).zip(offsets) {
            unpack(block, codes, scales, offsets);
        }
    }
}
