//! Super-blocks of 256: Q2_K to Q6_K. Sub-block scales are small integers times
//! the block's `f16` factors, so every scale below is exact in `f32`.

use super::codec::f16_at;

/// Where the 2-bit fields of a super-block lie: element `128h + 32j + l` is the
/// field at bit `2j` of byte `32h + l`.
fn two_bit_fields(packed: &[u8], codes: &mut [u8; 256]) {
    for (half, bytes) in codes.chunks_exact_mut(128).zip(packed.chunks_exact(32)) {
        for (j, run) in half.chunks_exact_mut(32).enumerate() {
            for (code, &byte) in run.iter_mut().zip(bytes) {
                *code = (byte >> (2 * j)) & 3;
            }
        }
    }
}

/// Nibbles in runs of 32: of each 32 bytes the low nibbles come first.
fn nibble_runs(packed: &[u8], codes: &mut [u8; 256]) {
    for (run, bytes) in codes.chunks_exact_mut(64).zip(packed.chunks_exact(32)) {
        super::legacy::nibbles(bytes, run);
    }
}

/// scales\[16\] (low nibble scale, high nibble min), 64 bytes of 2-bit codes, d, dmin.
pub(super) fn q2_k(
    block: &[u8; 84],
    codes: &mut [u8; 256],
    scales: &mut [f32; 16],
    offsets: &mut [f32; 16],
) {
    let (d, dmin) = (f16_at(block, 80), f16_at(block, 82));
    for ((&packed, scale), offset) in block.iter().zip(scales).zip(offsets) {
        *scale = d * f32::from(packed & 15);
        *offset = dmin * f32::from(packed >> 4);
    }
    two_bit_fields(&block[16..80], codes);
}

/// 32 bytes of third bits, 64 bytes of 2-bit codes, 12 bytes of 6-bit scales, d.
/// A clear third bit subtracts 4, so the code is all three bits and its zero is 4.
pub(super) fn q3_k(block: &[u8; 110], codes: &mut [u8; 256], scales: &mut [f32; 16]) {
    let d = f16_at(block, 108);
    let packed = &block[96..108];
    for (i, scale) in scales.iter_mut().enumerate() {
        let low = (packed[i % 8] >> (4 * (i / 8))) & 15;
        let high = (packed[8 + i % 4] >> (2 * (i / 4))) & 3;
        *scale = d * f32::from(i16::from(low | (high << 4)) - 32);
    }
    two_bit_fields(&block[32..96], codes);
    for (bit, run) in codes.chunks_exact_mut(32).enumerate() {
        for (code, &mask) in run.iter_mut().zip(&block[..32]) {
            *code |= ((mask >> bit) & 1) << 2;
        }
    }
}

/// The eight 6-bit scales and mins that Q4_K and Q5_K pack into 12 bytes.
fn six_bit_pairs(packed: &[u8], factors: (f32, f32), scales: &mut [f32], offsets: &mut [f32]) {
    for j in 0..4 {
        let (low, mid, high) = (packed[j], packed[j + 4], packed[j + 8]);
        scales[j] = factors.0 * f32::from(low & 63);
        offsets[j] = factors.1 * f32::from(mid & 63);
        scales[j + 4] = factors.0 * f32::from((high & 15) | ((low >> 6) << 4));
        offsets[j + 4] = factors.1 * f32::from((high >> 4) | ((mid >> 6) << 4));
    }
}

/// d, dmin, 12 bytes of scales and mins, 128 bytes of nibbles.
pub(super) fn q4_k(
    block: &[u8; 144],
    codes: &mut [u8; 256],
    scales: &mut [f32; 8],
    offsets: &mut [f32; 8],
) {
    let factors = (f16_at(block, 0), f16_at(block, 2));
    six_bit_pairs(&block[4..16], factors, scales, offsets);
    nibble_runs(&block[16..], codes);
}

/// As Q4_K, with 32 bytes of fifth bits before the nibbles.
pub(super) fn q5_k(
    block: &[u8; 176],
    codes: &mut [u8; 256],
    scales: &mut [f32; 8],
    offsets: &mut [f32; 8],
) {
    let factors = (f16_at(block, 0), f16_at(block, 2));
    six_bit_pairs(&block[4..16], factors, scales, offsets);
    nibble_runs(&block[48..], codes);
    for (bit, run) in codes.chunks_exact_mut(32).enumerate() {
        for (code, &mask) in run.iter_mut().zip(&block[16..48]) {
            *code |= ((mask >> bit) & 1) << 4;
        }
    }
}

/// 128 bytes of low nibbles, 64 bytes of high 2-bit fields, 16 signed scales, d.
pub(super) fn q6_k(block: &[u8; 210], codes: &mut [u8; 256], scales: &mut [f32; 16]) {
    let d = f16_at(block, 208);
    for (scale, &byte) in scales.iter_mut().zip(&block[192..208]) {
        *scale = d * f32::from(byte as i8);
    }
    two_bit_fields(&block[128..192], codes);
    // The nibbles of 64 bytes cover 128 elements: all low ones, then all high ones.
    let mut low = [0; 128];
    for (half, bytes) in codes.chunks_exact_mut(128).zip(block[..128].chunks_exact(64)) {
        super::legacy::nibbles(bytes, &mut low);
        for (code, &low) in half.iter_mut().zip(&low) {
            *code = (*code << 4) | low;
        }
    }
}
