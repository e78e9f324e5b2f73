//! Q8_0 and Q4_0. The arithmetic is in `f32` and in the order of the `gguf` Python
//! package, so that the bits agree.

use super::OutOfRange;

/// Writes `scale` as an `f16` and gives the factor that turns values into codes: the
/// inverse of the scale before it was rounded.
fn put_scale(scale: f32, out: &mut [u8]) -> Result<f32, OutOfRange> {
    let stored = half::f16::from_f32(scale);
    out[..2].copy_from_slice(&stored.to_le_bytes());
    if !stored.is_finite() {
        return Err(OutOfRange);
    }
    // A scale so small that its inverse overflows is stored as zero anyway.
    let inverse = 1.0 / scale;
    Ok(if inverse.is_finite() { inverse } else { 0.0 })
}

/// Scale: largest magnitude over 127. Halves are rounded away from zero.
pub(super) fn q8_0(x: &[f32; 32], out: &mut [u8; 34]) -> Result<(), OutOfRange> {
    let largest = x.iter().fold(0.0f32, |a, x| a.max(x.abs()));
    let inverse = put_scale(largest / 127.0, out)?;
    for (code, x) in out[2..].iter_mut().zip(x) {
        *code = (x * inverse).round() as i8 as u8;
    }
    Ok(())
}

/// Scale: the value of the largest magnitude (the first of equals) over -8, so that
/// it has code 0.
pub(super) fn q4_0(x: &[f32; 32], out: &mut [u8; 18]) -> Result<(), OutOfRange> {
    let larger = |a: f32, x: f32| if x.abs() > a.abs() { x } else { a };
    let extreme = x[1..].iter().fold(x[0], |a, &x| larger(a, x));
    let inverse = put_scale(extreme / -8.0, out)?;
    let code = |x: f32| ((x * inverse + 8.5) as u8).min(15);
    for (i, packed) in out[2..].iter_mut().enumerate() {
        *packed = code(x[i]) | (code(x[i + 16]) << 4);
    }
    Ok(())
}
