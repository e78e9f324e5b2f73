//! The list of block types and how each is unpacked.
//!
//! A block of `E` elements in `B` bytes has `S` sub-blocks, each with a scale.
//! *Centred* types mean `scale * (code - zero)`; the others carry an offset of
//! their own and mean `scale * code - offset`.

use super::{QuantFault, kquant, legacy, lookup};
use crate::tensor::DType;

/// Work to be done with the unpacking function of one block type.
pub(super) trait Visit {
    /// What the work gives.
    type Out;

    /// Called for types that mean `scale * (code - zero)`.
    fn centred<const B: usize, const E: usize, const S: usize>(
        self,
        max_code: u8,
        zero: u8,
        unpack: impl Fn(&[u8; B], &mut [u8; E], &mut [f32; S]),
    ) -> Self::Out;

    /// Called for types that mean `scale * code - offset`.
    fn shifted<const B: usize, const E: usize, const S: usize>(
        self,
        max_code: u8,
        unpack: impl Fn(&[u8; B], &mut [u8; E], &mut [f32; S], &mut [f32; S]),
    ) -> Self::Out;
}

/// True when [`visit`] knows the type.
pub(super) fn is_known_block(dtype: DType) -> bool {
    use DType::*;
    matches!(
        dtype,
        Q4_0 | Q4_1
            | Q5_0
            | Q5_1
            | Q8_0
            | Q2_K
            | Q3_K
            | Q4_K
            | Q5_K
            | Q6_K
            | IQ4_NL
            | IQ4_XS
            | MXFP4
            | NVFP4
    )
}

/// Hands the unpacking function of `dtype` to `visitor`.
pub(super) fn visit<V: Visit>(dtype: DType, visitor: V) -> Result<V::Out, QuantFault> {
    Ok(match dtype {
        DType::Q4_0 => visitor.centred(15, 8, legacy::q4_0),
        DType::Q4_1 => visitor.shifted(15, legacy::q4_1),
        DType::Q5_0 => visitor.centred(31, 16, legacy::q5_0),
        DType::Q5_1 => visitor.shifted(31, legacy::q5_1),
        DType::Q8_0 => visitor.centred(255, 128, legacy::q8_0),
        DType::Q2_K => visitor.shifted(3, kquant::q2_k),
        DType::Q3_K => visitor.centred(7, 4, kquant::q3_k),
        DType::Q4_K => visitor.shifted(15, kquant::q4_k),
        DType::Q5_K => visitor.shifted(31, kquant::q5_k),
        DType::Q6_K => visitor.centred(63, 32, kquant::q6_k),
        DType::IQ4_NL => visitor.centred(240, lookup::IQ4_ZERO, lookup::iq4_nl),
        DType::IQ4_XS => visitor.centred(240, lookup::IQ4_ZERO, lookup::iq4_xs),
        DType::MXFP4 => visitor.centred(24, lookup::E2M1_ZERO, lookup::mxfp4),
        DType::NVFP4 => visitor.centred(24, lookup::E2M1_ZERO, lookup::nvfp4),
        other => return Err(QuantFault::NoCodec(other)),
    })
}

/// Reads the `f16` at byte `at` of a block.
pub(super) fn f16_at<const B: usize>(block: &[u8; B], at: usize) -> f32 {
    half::f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}
