//! Blocks whose nibbles index a table of 16 small integers: IQ4_NL, IQ4_XS,
//! MXFP4, NVFP4. Codes are the table's values shifted to start at zero.

use super::codec::f16_at;
use super::legacy::nibbles;

/// What is added to the IQ4 values, -127 to 113, to make codes.
pub(super) const IQ4_ZERO: u8 = 127;

/// The IQ4 values -127 -104 -83 -65 -49 -35 -22 -10 1 13 25 38 53 69 89 113, plus 127.
const IQ4_CODES: [u8; 16] =
    [0, 23, 44, 62, 78, 92, 105, 117, 128, 140, 152, 165, 180, 196, 216, 240];

/// What is added to doubled E2M1 values, -12 to 12, to make codes.
pub(super) const E2M1_ZERO: u8 = 12;

/// E2M1 (0 .5 1 1.5 2 3 4 6 and their negatives) doubled, plus 12.
/// Both zeros are code 12: these formats decode minus zero as plus zero.
const E2M1_CODES: [u8; 16] = [12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0];

fn look_up(table: &[u8; 16], codes: &mut [u8]) {
    for code in codes {
        *code = table[usize::from(*code & 15)];
    }
}

/// d, 16 bytes of nibbles.
pub(super) fn iq4_nl(block: &[u8; 18], codes: &mut [u8; 32], scales: &mut [f32; 1]) {
    scales[0] = f16_at(block, 0);
    nibbles(&block[2..], codes);
    look_up(&IQ4_CODES, codes);
}

/// d, 16 bits of high scale bits, 4 bytes of low scale nibbles, 128 bytes of nibbles.
pub(super) fn iq4_xs(block: &[u8; 136], codes: &mut [u8; 256], scales: &mut [f32; 8]) {
    let d = f16_at(block, 0);
    let high = u16::from_le_bytes([block[2], block[3]]);
    for (j, scale) in scales.iter_mut().enumerate() {
        let low = i16::from((block[4 + j / 2] >> (4 * (j % 2))) & 15);
        let high = ((high >> (2 * j)) & 3) as i16;
        *scale = d * f32::from((low | (high << 4)) - 32);
    }
    for (run, bytes) in codes.chunks_exact_mut(32).zip(block[8..].chunks_exact(16)) {
        nibbles(bytes, run);
    }
    look_up(&IQ4_CODES, codes);
}

/// E8M0 exponent, 16 bytes of nibbles. The scale is 2^(e-128): half of the
/// format's own, because codes are doubled. 255 (NaN in OCP MX) is 2^127 here, as
/// ggml reads it.
pub(super) fn mxfp4(block: &[u8; 17], codes: &mut [u8; 32], scales: &mut [f32; 1]) {
    let exponent = u32::from(block[0]);
    scales[0] = f32::from_bits(match exponent {
        // 2^-128 and 2^-127 are subnormal.
        0 | 1 => 0x0020_0000 << exponent,
        _ => (exponent - 1) << 23,
    });
    nibbles(&block[1..], codes);
    look_up(&E2M1_CODES, codes);
}

/// Half the value of an unsigned E4M3 byte (bias 7); the sign bit is not looked
/// at, 0x7F (NaN) is zero.
fn half_ue4m3(byte: u8) -> f32 {
    let (exponent, mantissa) = ((byte >> 3) & 15, f32::from(byte & 7));
    match (byte, exponent) {
        (0x7F, _) => 0.0,
        // Subnormal: steps of 2^-9.
        (_, 0) => mantissa / 1024.0,
        // 2^(e - 7) built from its bits; no rounding anywhere.
        _ => (1.0 + mantissa / 8.0) * f32::from_bits((u32::from(exponent) + 119) << 23),
    }
}

/// 4 UE4M3 scales, then for each of 4 runs of 16 elements 8 bytes of nibbles. The
/// tensor's own factor (`<name>.scale`) is applied by whoever holds it.
pub(super) fn nvfp4(block: &[u8; 36], codes: &mut [u8; 64], scales: &mut [f32; 4]) {
    for (scale, &byte) in scales.iter_mut().zip(block) {
        *scale = half_ue4m3(byte);
    }
    for (run, bytes) in codes.chunks_exact_mut(16).zip(block[4..].chunks_exact(8)) {
        nibbles(bytes, run);
    }
    look_up(&E2M1_CODES, codes);
}
