//! The affine form against decoding.

use foretoken::Error;
use foretoken::quant::{AffineLayout, QuantFault, affine_layout, decode, is_computable, to_affine};
use foretoken::tensor::DType;
use proptest::prelude::*;

fn blocks() -> Vec<DType> {
    DType::ALL.iter().copied().filter(|t| t.is_block() && is_computable(*t)).collect()
}

fn split(dtype: DType, bytes: &[u8]) -> (AffineLayout, Vec<u8>, Vec<f32>, Vec<f32>) {
    let layout = affine_layout(dtype).unwrap();
    let elements = bytes.len() / dtype.block_bytes() * dtype.block_len();
    let subs = elements / layout.sub_block;
    // Poison, so that whatever is not written shows.
    let (mut codes, mut scales) = (vec![0xAA; elements], vec![f32::NAN; subs]);
    let mut offsets = vec![f32::NAN; subs];
    to_affine(dtype, bytes, &mut codes, &mut scales, &mut offsets).unwrap();
    (layout, codes, scales, offsets)
}

fn fault(result: foretoken::Result<()>) -> QuantFault {
    match result {
        Err(Error::Quant(fault)) => fault,
        other => panic!("expected a fault of blocks, got {other:?}"),
    }
}

#[test]
fn layouts_are_as_documented() {
    use DType::*;
    let table = [
        (Q4_0, 32, 4, 15, Some(8)),
        (Q4_1, 32, 4, 15, None),
        (Q5_0, 32, 8, 31, Some(16)),
        (Q5_1, 32, 8, 31, None),
        (Q8_0, 32, 8, 255, Some(128)),
        (Q2_K, 16, 4, 3, None),
        (Q3_K, 16, 4, 7, Some(4)),
        (Q4_K, 32, 4, 15, None),
        (Q5_K, 32, 8, 31, None),
        (Q6_K, 16, 8, 63, Some(32)),
        (IQ4_NL, 32, 8, 240, Some(127)),
        (IQ4_XS, 32, 8, 240, Some(127)),
        (MXFP4, 32, 8, 24, Some(12)),
        (NVFP4, 16, 8, 24, Some(12)),
    ];
    assert_eq!(table.len(), blocks().len());
    for (dtype, sub_block, code_bits, max_code, zero) in table {
        let want = AffineLayout { sub_block, code_bits, max_code, zero };
        assert_eq!(affine_layout(dtype), Some(want), "{dtype}");
    }
}

#[test]
fn the_largest_code_occurs() {
    for dtype in blocks() {
        // Every byte value in every place of the block.
        let size = dtype.block_bytes();
        let bytes: Vec<u8> = (0..=255).flat_map(|b| std::iter::repeat_n(b, size)).collect();
        let (layout, codes, ..) = split(dtype, &bytes);
        assert_eq!(codes.iter().max(), Some(&layout.max_code), "{dtype}");
        assert_eq!(codes.iter().min(), Some(&0), "{dtype}");
    }
}

#[test]
fn wrong_lengths_and_types_are_named() {
    let dtype = DType::Q6_K;
    let call = |bytes, codes, scales, offsets| {
        let (mut s, mut o) = (vec![0.0; scales], vec![0.0; offsets]);
        fault(to_affine(dtype, &vec![0; bytes], &mut vec![0; codes], &mut s, &mut o))
    };
    assert_eq!(call(209, 256, 16, 16), QuantFault::PartialBlock { dtype, bytes: 209 });
    let length = |what, expected, actual| QuantFault::Length { dtype, what, expected, actual };
    assert_eq!(call(210, 255, 16, 16), length("the codes", 256, 255));
    assert_eq!(call(210, 256, 17, 16), length("the scales", 16, 17));
    assert_eq!(call(210, 256, 16, 15), length("the offsets", 16, 15));
    for &dtype in DType::ALL {
        if !blocks().contains(&dtype) {
            assert_eq!(affine_layout(dtype), None);
            let got = fault(to_affine(dtype, &[], &mut [], &mut [], &mut []));
            assert_eq!(got, QuantFault::NotAffine(dtype));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Exactly the decoded values: the products fit an `f32` significand, so nothing
    /// but the last subtraction rounds, and `decode` rounds that one too. `==` lets
    /// zeros differ in sign.
    #[test]
    fn affine_form_reproduces_decode(
        dtype in proptest::sample::select(blocks()),
        seed in proptest::collection::vec(any::<u8>(), 2 * 210),
    ) {
        let bytes = &seed[..2 * dtype.block_bytes()];
        let (layout, codes, scales, offsets) = split(dtype, bytes);
        let mut values = vec![0.0; codes.len()];
        decode(dtype, bytes, &mut values).unwrap();
        for (i, (&code, &value)) in codes.iter().zip(&values).enumerate() {
            let (scale, offset) = (scales[i / layout.sub_block], offsets[i / layout.sub_block]);
            let affine = scale * f32::from(code) - offset;
            prop_assert!(code <= layout.max_code);
            if let Some(zero) = layout.zero {
                prop_assert!(offset == f32::from(zero) * scale || !scale.is_finite());
            }
            let absurd = dtype == DType::MXFP4 && scale >= 2f32.powi(124);
            let overflow = !affine.is_finite() && (absurd || !value.is_finite());
            prop_assert!(affine == value || overflow, "{dtype}[{i}]: {affine:e}, {value:e}");
        }
    }
}
