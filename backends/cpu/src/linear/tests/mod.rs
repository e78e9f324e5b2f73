//! Tests of the kernels themselves; those of the operation, through a device, are in
//! the crate's `tests/linear.rs`.

mod bits;
mod refusals;
mod values;

use foretoken::device::{Activations, HostTensor, WeightRole, WeightSpec};
use foretoken::tensor::DType;

use super::{PackedWeight, Scratch};
use crate::simd::Isa;

/// Every type that has kernels.
const TYPES: [DType; 17] = [
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::Q4_0,
    DType::Q4_1,
    DType::Q5_0,
    DType::Q5_1,
    DType::Q8_0,
    DType::Q2_K,
    DType::Q3_K,
    DType::Q4_K,
    DType::Q5_K,
    DType::Q6_K,
    DType::IQ4_NL,
    DType::IQ4_XS,
    DType::MXFP4,
    DType::NVFP4,
];

const BOTH: [Activations; 2] = [Activations::Fast, Activations::F32];

/// A stream of numbers (splitmix64).
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Within -1 .. 1.
    fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}

/// A matrix with every bit of its codes and integer scales random, and floating-point
/// factors of ordinary size and either sign.
fn weight(dtype: DType, rows: usize, cols: usize, seed: u64) -> HostTensor {
    let mut random = Random(seed ^ (u64::from(dtype.ggml_id()) << 32));
    let mut bytes = vec![0u8; dtype.bytes_for(rows * cols).unwrap()];
    bytes.iter_mut().for_each(|b| *b = random.bits() as u8);
    let f16_at: &[usize] = match dtype {
        DType::Q4_0 | DType::Q5_0 | DType::Q8_0 | DType::IQ4_NL | DType::IQ4_XS | DType::F16 => {
            &[0]
        }
        DType::Q4_1 | DType::Q5_1 | DType::Q4_K | DType::Q5_K => &[0, 2],
        DType::Q2_K => &[80, 82],
        DType::Q3_K => &[108],
        DType::Q6_K => &[208],
        _ => &[],
    };
    for block in bytes.chunks_exact_mut(dtype.block_bytes()) {
        for &at in f16_at {
            let value = half::f16::from_f32(random.unit() / 64.0);
            block[at..at + 2].copy_from_slice(&value.to_le_bytes());
        }
        match dtype {
            DType::F32 => block.copy_from_slice(&random.unit().to_le_bytes()),
            DType::BF16 => {
                block.copy_from_slice(&half::bf16::from_f32(random.unit()).to_le_bytes());
            }
            DType::MXFP4 => block[0] = 118 + block[0] % 6,
            DType::NVFP4 => block[..4].iter_mut().for_each(|d| *d %= 0x60),
            _ => {}
        }
    }
    let scale = if dtype == DType::NVFP4 { 0.37 } else { 1.0 };
    HostTensor { dtype, rows, cols, bytes: bytes.into(), scale }
}

/// Rows of activations whose blocks differ widely in size.
fn activations(rows: usize, cols: usize, seed: u64) -> Vec<f32> {
    let mut random = Random(seed);
    let mut x: Vec<f32> = (0..rows * cols).map(|_| random.unit()).collect();
    for block in x.chunks_mut(32) {
        let size = (random.bits() % 9) as i32 - 4;
        block.iter_mut().for_each(|x| *x *= 2f32.powi(size));
    }
    x
}

fn spec(host: &HostTensor, activations: Activations) -> WeightSpec {
    let HostTensor { dtype, rows, cols, .. } = *host;
    WeightSpec { dtype, rows, cols, role: WeightRole::Linear, activations }
}

fn packed(host: &HostTensor, activations: Activations, isa: Isa) -> PackedWeight {
    PackedWeight::pack(host, &spec(host, activations), isa).unwrap()
}

fn product(weight: &PackedWeight, x: &[f32]) -> Vec<f32> {
    let rows = x.len() / weight.spec().cols;
    let mut out = vec![f32::NAN; rows * weight.spec().rows];
    weight.multiply(x, &mut out, &mut Scratch::default()).unwrap();
    out
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}
