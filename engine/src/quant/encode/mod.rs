//! `f32` to stored bytes: the reference encoders.
//!
//! `scalar` holds F32, F16 and BF16, `legacy` Q8_0 and Q4_0 (the bits of ggml's
//! reference), `q4_k` and `q6_k` searches of our own for the super-blocks. Each
//! encodes one block; this file checks what goes in and walks the blocks.

mod legacy;
mod q4_k;
mod q6_k;
mod scalar;
mod search;

use super::QuantFault;
use super::decode::check_length;
use crate::Result;
use crate::tensor::DType;

/// A factor of the block does not fit in an `f16`.
struct OutOfRange;

/// Whether [`encode`] knows the type.
pub fn is_encodable(dtype: DType) -> bool {
    use DType::*;
    matches!(dtype, F32 | F16 | BF16 | Q8_0 | Q4_0 | Q4_K | Q6_K)
}

/// Encodes `values`, whole blocks of `dtype`, into `out`.
///
/// F16 and BF16 round to nearest, ties to even. Q8_0 and Q4_0 give the bits of the
/// `gguf` Python package. Q4_K and Q6_K search for the scales (and mins) that
/// minimise a weighted squared error; on Gaussian rows their relative RMS error is
/// 0.0707 and 0.0167, where ggml's reference reaches 0.0715 and 0.0178. What succeeds
/// decodes to finite values.
///
/// # Errors
/// [`QuantFault::NoEncoder`] for other types, [`QuantFault::PartialRow`] when
/// `values` is not whole blocks, [`QuantFault::Length`] when `out` is not exactly the
/// bytes needed, [`QuantFault::NotFinite`] when a value is infinite or NaN,
/// [`QuantFault::OutOfRange`] when a value or the scale of a block is too large for
/// the type. After the last two `out` holds blocks up to some point.
pub fn encode(dtype: DType, values: &[f32], out: &mut [u8]) -> Result<()> {
    if !is_encodable(dtype) {
        return Err(QuantFault::NoEncoder(dtype).into());
    }
    let partial = QuantFault::PartialRow { dtype, values: values.len() };
    let bytes = dtype.bytes_for(values.len()).ok_or(partial)?;
    check_length(dtype, "the output", bytes, out.len())?;
    if let Some(index) = values.iter().position(|x| !x.is_finite()) {
        let value = values[index];
        return Err(QuantFault::NotFinite { dtype, index, value }.into());
    }
    match dtype {
        DType::F32 => each(values, out, scalar::f32),
        DType::F16 => each(values, out, scalar::f16),
        DType::BF16 => each(values, out, scalar::bf16),
        DType::Q8_0 => each(values, out, legacy::q8_0),
        DType::Q4_0 => each(values, out, legacy::q4_0),
        DType::Q4_K => each(values, out, q4_k::encode),
        DType::Q6_K => each(values, out, q6_k::encode),
        _ => Ok(()),
    }
    .map_err(|index| QuantFault::OutOfRange { dtype, index }.into())
}

/// Encodes block after block; the error is the index of the first element of the
/// block that failed.
fn each<const E: usize, const B: usize>(
    values: &[f32],
    out: &mut [u8],
    block: impl Fn(&[f32; E], &mut [u8; B]) -> Result<(), OutOfRange>,
) -> Result<(), usize> {
    let pairs = values.as_chunks().0.iter().zip(out.as_chunks_mut().0);
    for (i, (x, y)) in pairs.enumerate() {
        block(x, y).map_err(|OutOfRange| i * E)?;
    }
    Ok(())
}
