//! Every bit that a table or a cache may hold: tables of random bytes, scales of any size
//! among them, decoded to the bits that the engine decodes; floats of any bits rounded to
//! what the `half` library rounds them to.

use foretoken::device::{Activations, Device, HostTensor, WeightRole, WeightSpec};
use foretoken::format::SharedBytes;
use foretoken::kernel::{Embed, KvAppend, KvPair};
use foretoken::quant::{decode_scaled, is_computable};
use foretoken::tensor::DType;
use half::{bf16, f16};

use super::support::{Words, control, device, f32, floats, launch, read, tensor, words, words_of};

/// The same bits, or both NaN.
fn same(got: u32, want: f32) -> bool {
    let value = f32::from_bits(got);
    got == want.to_bits() || (value.is_nan() && want.is_nan())
}

/// Where a decoded table first differs from the engine's decoding of `want`.
fn first_difference(
    device: &dyn Device,
    spec: WeightSpec,
    bytes: &[u8],
    want: &[u8],
    scale: f32,
) -> Option<usize> {
    let WeightSpec { dtype, rows, cols, .. } = spec;
    let host = HostTensor { dtype, rows, cols, bytes: SharedBytes::from(bytes.to_vec()), scale };
    let tokens: Vec<i32> = (0..rows as i32).collect();
    let op = Embed {
        control: control(device, rows as i32, 0),
        tokens: words(device, &tokens),
        table: device.load_weight(&host, &spec).unwrap(),
        out: f32(device, &[rows, cols]),
    };
    assert_eq!(launch(device, op.clone()), None);
    let mut values = vec![0.0; rows * cols];
    decode_scaled(dtype, want, scale, &mut values).unwrap();
    let got = words_of(device, &op.out);
    got.iter().zip(&values).position(|(&got, &want)| !same(got, want))
}

#[test]
fn tables_are_decoded_to_the_bit() {
    let Some(device) = device() else { return };
    let mut random = Words(0x9e37_79b9_7f4a_7c15);
    for &dtype in DType::ALL.iter().filter(|&&dtype| is_computable(dtype)) {
        let (rows, cols) = (33, 1024);
        let (role, activations) = (WeightRole::Embedding, Activations::Fast);
        let spec = WeightSpec { dtype, rows, cols, role, activations };
        let size = dtype.bytes_for(rows * cols).unwrap();
        let mut bytes: Vec<u8> = (0..size).map(|_| random.next() as u8).collect();
        for scale in [1.0, 0.75] {
            let differs = first_difference(&*device, spec, &bytes, &bytes, scale);
            assert_eq!(differs, None, "{dtype} times {scale}");
        }
        // One bit of a quant, which no type keeps apart from the value: the comparison
        // sees it. The byte is the last of a block, or a scalar's exponent.
        let intact = bytes.clone();
        bytes[0] ^= 0x40;
        bytes[size - 1] ^= 0x40;
        assert!(first_difference(&*device, spec, &bytes, &intact, 1.0).is_some(), "{dtype}");
    }
}

#[test]
fn caches_round_to_nearest_even() {
    let Some(device) = device() else { return };
    let mut random = Words(7);
    // Width and rows: whole groups of four, and not.
    for (heads, dim, rows) in [(4, 256, 9), (3, 33, 5)] {
        let count = heads * dim * rows;
        let mut values = || -> Vec<f32> {
            let any = |i: usize, word: u32| match i % 4 {
                0 => word,
                // Halfway between two halves, and beside it; between two bfloats.
                1 => 0x3800_0000 | (word & 0x07ff_e000) | 0x1000 | (word & 1),
                2 => (word & 0xffff_0000) | 0x8000 | (word & 1),
                // Halves that are subnormal or nearly zero.
                _ => 0x3280_0000 + (word & 0x8fff_ffff) % 0x0600_0000,
            };
            (0..count).map(|i| f32::from_bits(any(i, random.next()))).collect()
        };
        let (k, v) = (values(), values());
        let dims = [rows, heads, dim];
        let types = [DType::F32, DType::F16, DType::BF16];
        for (k_type, v_type) in types.iter().flat_map(|k| types.iter().map(move |v| (*k, *v))) {
            let committed = 3;
            let cache = KvPair {
                k: tensor(&*device, k_type, &[committed + rows, heads, dim]),
                v: tensor(&*device, v_type, &[committed + rows, heads, dim]),
            };
            let op = KvAppend {
                control: control(&*device, rows as i32, committed as i32),
                k: floats(&*device, &dims, &k),
                v: floats(&*device, &dims, &v),
                cache: cache.clone(),
            };
            assert_eq!(launch(&*device, op), None);
            for (cache, values) in [(cache.k, &k), (cache.v, &v)] {
                let got = read(&*device, &cache);
                let skipped = committed * heads * dim * cache.dtype().block_bytes();
                assert!(got[..skipped].iter().all(|&byte| byte == 0), "committed slots");
                check(cache.dtype(), &got[skipped..], values);
            }
        }
    }
}

fn check(dtype: DType, got: &[u8], values: &[f32]) {
    let size = dtype.block_bytes();
    assert_eq!(got.len(), values.len() * size);
    for (got, &x) in got.chunks_exact(size).zip(values) {
        let (got, want) = match dtype {
            DType::F16 => {
                (f16::from_le_bytes([got[0], got[1]]).to_f32(), f16::from_f32(x).to_f32())
            }
            DType::BF16 => {
                (bf16::from_le_bytes([got[0], got[1]]).to_f32(), bf16::from_f32(x).to_f32())
            }
            _ => (f32::from_le_bytes([got[0], got[1], got[2], got[3]]), x),
        };
        assert!(same(got.to_bits(), want), "{dtype}: {x:e} became {got:e}, not {want:e}");
    }
}
