//! Decoding against the `gguf` package, bit for bit, and its errors.

use foretoken::Error;
use foretoken::quant::{QuantFault, decode, decode_row, decode_scaled, is_computable};
use foretoken::tensor::DType;
use proptest::prelude::*;

/// The types of the issue that weights may have.
const COMPUTABLE: &[DType] = &[
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

/// Plain types that decode although no weight may have them.
const OTHER_SCALARS: &[DType] = &[DType::F64, DType::I8, DType::I16, DType::I32, DType::I64];

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    digits.map(|d| u8::from_str_radix(std::str::from_utf8(d).unwrap(), 16).unwrap()).collect()
}

fn by_name(name: &str) -> DType {
    *DType::ALL.iter().find(|t| t.name() == name).unwrap()
}

fn decoded(dtype: DType, bytes: &[u8]) -> Vec<f32> {
    let mut out = vec![f32::NAN; bytes.len() / dtype.block_bytes() * dtype.block_len()];
    decode(dtype, bytes, &mut out).unwrap();
    out
}

fn fault(result: foretoken::Result<()>) -> QuantFault {
    match result {
        Err(Error::Quant(fault)) => fault,
        other => panic!("expected a fault of blocks, got {other:?}"),
    }
}

#[test]
fn every_type_equals_gguf_py() {
    let cases: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(include_str!("fixtures/quant/decode.json")).unwrap();
    let mut seen = vec![DType::F32];
    for (name, case) in &cases {
        let dtype = by_name(name);
        let got = decoded(dtype, &unhex(case["blocks"].as_str().unwrap()));
        let want = decoded(DType::F32, &unhex(case["values"].as_str().unwrap()));
        assert_eq!(got.len(), want.len(), "{name}");
        for (i, (got, want)) in got.iter().zip(&want).enumerate() {
            // Which NaN it is depends on the machine.
            let same = got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan());
            assert!(same, "{name}[{i}]: {got:e} is not {want:e}");
        }
        seen.push(dtype);
    }
    seen.sort();
    let mut all = COMPUTABLE.to_vec();
    all.sort();
    assert_eq!(seen, all, "a type has no fixture");
}

#[test]
fn plain_scalars_decode() {
    let bytes = |v: &[f32]| v.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>();
    let values = [1.5, -0.0, f32::MIN_POSITIVE / 4.0, f32::INFINITY];
    let got = decoded(DType::F32, &bytes(&values));
    assert!(got.iter().zip(&values).all(|(a, b)| a.to_bits() == b.to_bits()));
    assert_eq!(decoded(DType::F64, &0.1f64.to_le_bytes()), [0.1f32]);
    assert_eq!(decoded(DType::I8, &[0x80, 5]), [-128.0, 5.0]);
    assert_eq!(decoded(DType::I16, &(-300i16).to_le_bytes()), [-300.0]);
    assert_eq!(decoded(DType::I32, &i32::MIN.to_le_bytes()), [-2147483648.0]);
    assert_eq!(decoded(DType::I64, &(1i64 << 40).to_le_bytes()), [1.0995116e12]);
}

#[test]
fn nvfp4_has_a_factor_beside_it() {
    // 4 scales of 1.0 (0x38), every code 2 (1.0) in the low and 5 (3.0) in the high nibble.
    let mut block = [0x52u8; 36];
    block[..4].fill(0x38);
    let mut out = [0.0; 64];
    decode_scaled(DType::NVFP4, &block, 0.5, &mut out).unwrap();
    for run in out.chunks(16) {
        assert_eq!(run[..8], [0.5; 8]);
        assert_eq!(run[8..], [1.5; 8]);
    }
    decode_scaled(DType::NVFP4, &block, 1.0, &mut out).unwrap();
    assert_eq!(out.to_vec(), decoded(DType::NVFP4, &block));
}

#[test]
fn rows_are_found_and_bounded() {
    let bytes: Vec<u8> = (0..4 * 34).map(|i| (i * 37 % 60) as u8).collect();
    let all = decoded(DType::Q8_0, &bytes);
    let mut row = [0.0; 64];
    for i in 0..2 {
        decode_row(DType::Q8_0, &bytes, i, &mut row).unwrap();
        assert_eq!(row, all[64 * i..64 * i + 64]);
    }
    for bad in [2, usize::MAX / 68, usize::MAX] {
        let want = QuantFault::NoSuchRow { dtype: DType::Q8_0, row: bad, bytes: 136 };
        assert_eq!(fault(decode_row(DType::Q8_0, &bytes, bad, &mut row)), want);
    }
    let want = QuantFault::Length { dtype: DType::Q8_0, what: "a row", expected: 64, actual: 33 };
    assert_eq!(fault(decode_row(DType::Q8_0, &bytes, 0, &mut row[..33])), want);
}

#[test]
fn wrong_lengths_and_types_are_named() {
    let dtype = DType::Q4_K;
    let partial = fault(decode(dtype, &[0; 145], &mut [0.0; 256]));
    assert_eq!(partial, QuantFault::PartialBlock { dtype, bytes: 145 });
    assert_eq!(partial.to_string(), "145 bytes are not whole Q4_K blocks of 144 bytes");
    for actual in [0, 255, 512] {
        let got = fault(decode(dtype, &[0; 144], &mut vec![0.0; actual]));
        let want = QuantFault::Length { dtype, what: "the output", expected: 256, actual };
        assert_eq!(got, want);
    }
    decode(dtype, &[], &mut []).unwrap();
    for &dtype in DType::ALL {
        assert_eq!(is_computable(dtype), COMPUTABLE.contains(&dtype), "{dtype}");
        if !COMPUTABLE.contains(&dtype) && !OTHER_SCALARS.contains(&dtype) {
            let bytes = vec![0; dtype.block_bytes()];
            let mut out = vec![0.0; dtype.block_len()];
            assert_eq!(fault(decode(dtype, &bytes, &mut out)), QuantFault::NoCodec(dtype));
            assert_eq!(fault(decode_row(dtype, &bytes, 0, &mut out)), QuantFault::NoCodec(dtype));
        }
    }
}

proptest! {
    /// Any bytes of any length either decode or are refused; blocks do not look at
    /// their neighbours.
    #[test]
    fn arbitrary_bytes_never_panic(
        dtype in proptest::sample::select(DType::ALL),
        bytes in proptest::collection::vec(any::<u8>(), 0..900),
        len in 0usize..600,
    ) {
        let _ = decode(dtype, &bytes, &mut vec![0.0; len]);
        let _ = decode_row(dtype, &bytes, len, &mut vec![0.0; len]);
        let size = dtype.block_bytes();
        let whole = bytes.len() / size;
        if is_computable(dtype) {
            let all = decoded(dtype, &bytes[..whole * size]);
            for (block, values) in bytes.chunks_exact(size).zip(all.chunks(dtype.block_len())) {
                for (a, b) in decoded(dtype, block).iter().zip(values) {
                    prop_assert!(a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()));
                }
            }
        }
    }
}
