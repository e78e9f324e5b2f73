//! Plain scalars to `f32`.

use crate::tensor::DType;

/// Decodes whole elements of a plain type; `None` when the type is not plain.
/// Lengths have been checked by the caller.
pub(super) fn decode(dtype: DType, bytes: &[u8], out: &mut [f32]) -> Option<()> {
    fn each<const N: usize>(bytes: &[u8], out: &mut [f32], read: impl Fn([u8; N]) -> f32) {
        for (y, x) in out.iter_mut().zip(bytes.as_chunks().0) {
            *y = read(*x);
        }
    }
    match dtype {
        DType::F32 => each(bytes, out, f32::from_le_bytes),
        DType::F16 => each(bytes, out, |x| half::f16::from_le_bytes(x).to_f32()),
        DType::BF16 => each(bytes, out, |x| half::bf16::from_le_bytes(x).to_f32()),
        DType::F64 => each(bytes, out, |x| f64::from_le_bytes(x) as f32),
        DType::I8 => each(bytes, out, |x| f32::from(i8::from_le_bytes(x))),
        DType::I16 => each(bytes, out, |x| f32::from(i16::from_le_bytes(x))),
        DType::I32 => each(bytes, out, |x| i32::from_le_bytes(x) as f32),
        DType::I64 => each(bytes, out, |x| i64::from_le_bytes(x) as f32),
        _ => return None,
    }
    Some(())
}
