//! Plain scalars.

use super::OutOfRange;

pub(super) fn f32(x: &[f32; 1], out: &mut [u8; 4]) -> Result<(), OutOfRange> {
    *out = x[0].to_le_bytes();
    Ok(())
}

pub(super) fn f16(x: &[f32; 1], out: &mut [u8; 2]) -> Result<(), OutOfRange> {
    let y = half::f16::from_f32(x[0]);
    *out = y.to_le_bytes();
    if y.is_finite() { Ok(()) } else { Err(OutOfRange) }
}

pub(super) fn bf16(x: &[f32; 1], out: &mut [u8; 2]) -> Result<(), OutOfRange> {
    let y = half::bf16::from_f32(x[0]);
    *out = y.to_le_bytes();
    if y.is_finite() { Ok(()) } else { Err(OutOfRange) }
}
