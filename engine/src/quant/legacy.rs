//! Blocks of 32 with one scale: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0.

use super::codec::f16_at;

/// Splits 16 bytes into 32 nibbles: the low ones first, then the high ones.
pub(super) fn nibbles(packed: &[u8], codes: &mut [u8]) {
    let (low, high) = codes.split_at_mut(packed.len());
    for ((&byte, low), high) in packed.iter().zip(low).zip(high) {
        *low = byte & 15;
        *high = byte >> 4;
    }
}

/// Adds bit `j` of the little-endian word at `at` as bit 4 of code `j`.
fn fifth_bits<const B: usize>(block: &[u8; B], at: usize, codes: &mut [u8; 32]) {
    let word = u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]);
    for (j, code) in codes.iter_mut().enumerate() {
        *code |= (((word >> j) & 1) as u8) << 4;
    }
}

/// d, 16 bytes of nibbles.
pub(super) fn q4_0(block: &[u8; 18], codes: &mut [u8; 32], scales: &mut [f32; 1]) {
    scales[0] = f16_at(block, 0);
    nibbles(&block[2..], codes);
}

/// d, m, 16 bytes of nibbles; the value is `d * code + m`.
pub(super) fn q4_1(
    block: &[u8; 20],
    codes: &mut [u8; 32],
    scales: &mut [f32; 1],
    offsets: &mut [f32; 1],
) {
    scales[0] = f16_at(block, 0);
    offsets[0] = -f16_at(block, 2);
    nibbles(&block[4..], codes);
}

/// d, 32 fifth bits, 16 bytes of nibbles.
pub(super) fn q5_0(block: &[u8; 22], codes: &mut [u8; 32], scales: &mut [f32; 1]) {
    scales[0] = f16_at(block, 0);
    nibbles(&block[6..], codes);
    fifth_bits(block, 2, codes);
}

/// d, m, 32 fifth bits, 16 bytes of nibbles; the value is `d * code + m`.
pub(super) fn q5_1(
    block: &[u8; 24],
    codes: &mut [u8; 32],
    scales: &mut [f32; 1],
    offsets: &mut [f32; 1],
) {
    scales[0] = f16_at(block, 0);
    offsets[0] = -f16_at(block, 2);
    nibbles(&block[8..], codes);
    fifth_bits(block, 4, codes);
}

/// d, 32 signed bytes; the code is the byte plus 128.
pub(super) fn q8_0(block: &[u8; 34], codes: &mut [u8; 32], scales: &mut [f32; 1]) {
    scales[0] = f16_at(block, 0);
    for (code, &byte) in codes.iter_mut().zip(&block[2..]) {
        // Two's complement: flipping the sign bit adds 128.
        *code = byte ^ 0x80;
    }
}
