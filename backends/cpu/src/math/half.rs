//! Sixteen-bit floats to 32 bits, branch-free so that loops vectorise.

/// IEEE binary16 to binary32, exact; NaN stays NaN.
#[inline(always)]
pub(crate) fn f16_to_f32(bits: u16) -> f32 {
    let sign = u32::from(bits & 0x8000) << 16;
    let rest = u32::from(bits & 0x7fff) << 13;
    // Exponent and mantissa are in place but for the bias: 2^112 makes up for it,
    // for denormals too. The top exponent stands for infinity and NaN.
    let value = f32::from_bits(rest) * f32::from_bits((112 + 127) << 23);
    let special = if rest >= 0x0f80_0000 { 0x7f80_0000 } else { 0 };
    f32::from_bits(value.to_bits() | special | sign)
}

/// bfloat16 to binary32, exact.
#[inline(always)]
pub(crate) fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_converts_as_the_library_does() {
        for bits in 0..=u16::MAX {
            let (got, want) = (f16_to_f32(bits), half::f16::from_bits(bits).to_f32());
            assert!(
                got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan()),
                "{bits:#x}"
            );
            let (got, want) = (bf16_to_f32(bits), half::bf16::from_bits(bits).to_f32());
            assert!(
                got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan()),
                "{bits:#x}"
            );
        }
    }
}
