//! Stored bytes to `f32`.

use super::codec::{self, Visit};
use super::{QuantFault, scalar};
use crate::Result;
use crate::tensor::DType;

/// Whether weights of this type can be computed with: F32, F16, BF16 and the block
/// types that [`decode`] reads. (`decode` reads F64 and the integers too, but
/// nothing multiplies by them.)
pub fn is_computable(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::BF16) || codec::is_known_block(dtype)
}

/// Decodes `bytes`, whole blocks of `dtype`, into `out`, one `f32` per element.
///
/// Values are those of the GGUF block definitions, each product and sum rounded to
/// `f32` once, in the order in which the `gguf` Python package takes them: the bits
/// are the same. Where a stored scale is infinite or NaN so are the values.
/// Factors held outside the blocks (NVFP4's `<name>.scale`) are left to the caller
/// or to [`decode_scaled`].
///
/// # Errors
/// [`QuantFault::NoCodec`] for a type without a codec, [`QuantFault::PartialBlock`]
/// when `bytes` is not whole blocks, [`QuantFault::Length`] when `out` is not
/// exactly as long as the elements stored.
pub fn decode(dtype: DType, bytes: &[u8], out: &mut [f32]) -> Result<()> {
    check_known(dtype)?;
    let elements = elements_in(dtype, bytes)?;
    check_length(dtype, "the output", elements, out.len())?;
    if scalar::decode(dtype, bytes, out).is_none() {
        codec::visit(dtype, Decode { bytes, out })?;
    }
    Ok(())
}

/// [`decode`], then every value times `scale`: the tensor-level factor that NVFP4
/// tensors may carry beside them.
///
/// # Errors
/// Those of [`decode`].
pub fn decode_scaled(dtype: DType, bytes: &[u8], scale: f32, out: &mut [f32]) -> Result<()> {
    decode(dtype, bytes, out)?;
    if scale != 1.0 {
        out.iter_mut().for_each(|y| *y *= scale);
    }
    Ok(())
}

/// Decodes row `row` of a matrix of `dtype` whose rows, `out.len()` elements each,
/// lie one after another in `bytes`.
///
/// # Errors
/// Those of [`decode`], [`QuantFault::Length`] when `out` is not whole blocks, and
/// [`QuantFault::NoSuchRow`] when the row lies beyond `bytes`.
pub fn decode_row(dtype: DType, bytes: &[u8], row: usize, out: &mut [f32]) -> Result<()> {
    check_known(dtype)?;
    let row_bytes = dtype.bytes_for(out.len()).ok_or(QuantFault::Length {
        dtype,
        what: "a row",
        expected: out.len().next_multiple_of(dtype.block_len()),
        actual: out.len(),
    })?;
    let start = row.checked_mul(row_bytes);
    let row_of = |start: usize| bytes.get(start..start.checked_add(row_bytes)?);
    let bytes =
        start.and_then(row_of).ok_or(QuantFault::NoSuchRow { dtype, row, bytes: bytes.len() })?;
    decode(dtype, bytes, out)
}

fn check_known(dtype: DType) -> Result<(), QuantFault> {
    match is_computable(dtype) || !dtype.is_block() {
        true => Ok(()),
        false => Err(QuantFault::NoCodec(dtype)),
    }
}

/// Elements stored in `bytes`.
pub(super) fn elements_in(dtype: DType, bytes: &[u8]) -> Result<usize, QuantFault> {
    let fault = QuantFault::PartialBlock { dtype, bytes: bytes.len() };
    if !bytes.len().is_multiple_of(dtype.block_bytes()) {
        return Err(fault);
    }
    (bytes.len() / dtype.block_bytes()).checked_mul(dtype.block_len()).ok_or(fault)
}

pub(super) fn check_length(
    dtype: DType,
    what: &'static str,
    expected: usize,
    actual: usize,
) -> Result<(), QuantFault> {
    match expected == actual {
        true => Ok(()),
        false => Err(QuantFault::Length { dtype, what, expected, actual }),
    }
}

struct Decode<'a> {
    bytes: &'a [u8],
    out: &'a mut [f32],
}

impl Visit for Decode<'_> {
    type Out = ();

    fn centred<const B: usize, const E: usize, const S: usize>(
        self,
        _max_code: u8,
        zero: u8,
        unpack: impl Fn(&[u8; B], &mut [u8; E], &mut [f32; S]),
    ) {
        let (mut codes, mut scales) = ([0; E], [0.0; S]);
        for (block, out) in self.bytes.as_chunks().0.iter().zip(self.out.chunks_exact_mut(E)) {
            unpack(block, &mut codes, &mut scales);
            let runs = out.chunks_exact_mut(E / S).zip(codes.chunks_exact(E / S));
            for ((out, codes), &scale) in runs.zip(&scales) {
                for (y, &code) in out.iter_mut().zip(codes) {
                    *y = scale * f32::from(i16::from(code) - i16::from(zero));
                }
            }
        }
    }

    fn shifted<const B: usize, const E: usize, const S: usize>(
        self,
        _max_code: u8,
        unpack: impl Fn(&[u8; B], &mut [u8; E], &mut [f32; S], &mut [f32; S]),
    ) {
        let (mut codes, mut scales, mut offsets) = ([0; E], [0.0; S], [0.0; S]);
        for (block, out) in self.bytes.as_chunks().0.iter().zip(self.out.chunks_exact_mut(E)) {
            unpack(block, &mut codes, &mut scales, &mut offsets);
            let runs = out.chunks_exact_mut(E / S).zip(codes.chunks_exact(E / S));
            for (((out, codes), &scale), &offset) in runs.zip(&scales).zip(&offsets) {
                for (y, &code) in out.iter_mut().zip(codes) {
                    *y = scale * f32::from(code) - offset;
                }
            }
        }
    }
}
