//! The reference encoders: bits where a reference fixes them, error elsewhere.

use foretoken::Error;
use foretoken::quant::{QuantFault, decode, encode, is_encodable};
use foretoken::tensor::DType;
use proptest::prelude::*;

const ENCODABLE: &[DType] =
    &[DType::F32, DType::F16, DType::Q4_0, DType::Q8_0, DType::Q4_K, DType::Q6_K, DType::BF16];

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    digits.map(|d| u8::from_str_radix(std::str::from_utf8(d).unwrap(), 16).unwrap()).collect()
}

fn encoded(dtype: DType, values: &[f32]) -> foretoken::Result<Vec<u8>> {
    // Poison, so that whatever is not written shows.
    let mut out = vec![0xAA; dtype.bytes_for(values.len()).unwrap()];
    encode(dtype, values, &mut out).map(|()| out)
}

fn decoded(dtype: DType, bytes: &[u8]) -> Vec<f32> {
    let mut out = vec![f32::NAN; bytes.len() / dtype.block_bytes() * dtype.block_len()];
    decode(dtype, bytes, &mut out).unwrap();
    out
}

fn there_and_back(dtype: DType, values: &[f32]) -> Vec<f32> {
    decoded(dtype, &encoded(dtype, values).unwrap())
}

fn fault<T: std::fmt::Debug>(result: foretoken::Result<T>) -> QuantFault {
    match result {
        Err(Error::Quant(fault)) => fault,
        other => panic!("expected a fault of blocks, got {other:?}"),
    }
}

/// Normal variables from a fixed seed (splitmix64, Box-Muller).
fn gaussian(n: usize, scale: f64, mut seed: u64) -> Vec<f32> {
    let mut uniform = || {
        seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (seed ^ (seed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (((z ^ (z >> 31)) >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    };
    let normal = |_| {
        let (u, v) = (uniform(), uniform());
        ((-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos() * scale) as f32
    };
    (0..n).map(normal).collect()
}

fn rms<'a>(x: impl IntoIterator<Item = &'a f32>) -> f64 {
    let squares: Vec<f64> = x.into_iter().map(|x| f64::from(*x).powi(2)).collect();
    (squares.iter().sum::<f64>() / squares.len() as f64).sqrt()
}

fn rms_error(x: &[f32], y: &[f32]) -> f64 {
    rms(&x.iter().zip(y).map(|(x, y)| x - y).collect::<Vec<_>>())
}

#[test]
fn bits_equal_gguf_py() {
    let cases: Vec<serde_json::Value> =
        serde_json::from_str(include_str!("fixtures/quant/encode.json")).unwrap();
    assert_eq!(cases.len(), 48);
    for case in &cases {
        let text = |key: &str| case[key].as_str().unwrap();
        let dtype = *DType::ALL.iter().find(|t| t.name() == text("dtype")).unwrap();
        let values = decoded(DType::F32, &unhex(text("values")));
        let got = encoded(dtype, &values).unwrap();
        assert_eq!(got, unhex(text("blocks")), "{dtype} of {}", text("name"));
        assert_eq!(encoded(DType::F32, &values).unwrap(), unhex(text("values")));
    }
}

#[test]
fn scalars_round_to_nearest_even() {
    // Halfway between two neighbours of 1.0: down to even, then up to even.
    for (dtype, ulp) in [(DType::F16, 2f32.powi(-10)), (DType::BF16, 2f32.powi(-7))] {
        let values = [1.0 + ulp / 2.0, 1.0 + 1.5 * ulp, 1.0 + 0.51 * ulp, -1.0 - 1.5 * ulp];
        let want = [1.0, 1.0 + 2.0 * ulp, 1.0 + ulp, -1.0 - 2.0 * ulp];
        assert_eq!(there_and_back(dtype, &values), want, "{dtype}");
    }
}

/// Relative RMS error on Gaussian rows: what ggml's own encoders reach (measured with
/// ggml 0.10.1 on 256 rows of 1024) and the share of it allowed here. A sample of
/// 65536 values scatters by about 0.3%. The searches of Q4_K and Q6_K reach 0.989 and
/// 0.939 of the reference.
#[test]
fn gaussian_rows_are_as_close_as_the_reference_or_closer() {
    let reference = [
        (DType::Q8_0, 0.00537, 1.01),
        (DType::Q4_0, 0.0862, 1.01),
        (DType::Q4_K, 0.0715, 0.995),
        (DType::Q6_K, 0.01778, 0.95),
    ];
    for (seed, scale) in [0.02, 1.0, 30.0, 3e4].into_iter().enumerate() {
        let x = gaussian(65536, scale, seed as u64);
        for (dtype, reached, share) in reference {
            let relative = rms_error(&x, &there_and_back(dtype, &x)) / rms(&x);
            assert!(relative < share * reached, "{dtype} at {scale}: {relative:.5}");
            // Nothing gets far below: that would be an error in this test.
            assert!(relative > 0.9 * reached, "{dtype} at {scale}: {relative:.5}");
        }
        // Factors are subnormal halves here, so a little more is lost.
        let x: Vec<f32> = x.iter().map(|x| (f64::from(*x) / scale * 1e-3) as f32).collect();
        for (dtype, reached, _) in reference {
            let relative = rms_error(&x, &there_and_back(dtype, &x)) / rms(&x);
            assert!(relative < 1.02 * reached, "{dtype} of small values: {relative:.5}");
        }
    }
}

#[test]
fn flat_and_lopsided_rows_stay_close() {
    for dtype in ENCODABLE.iter().copied().filter(|t| t.is_block()) {
        assert_eq!(there_and_back(dtype, &[0.0; 256]), [0.0; 256], "{dtype}");
        for constant in [0.37, -0.37, 1e-3, -2e5] {
            let x = [constant; 256];
            // The one value of a block is the end of its codes, so all that is lost is
            // the rounding of f16 factors: 2^-10 at most, more where they are subnormal.
            let near = if constant == 1e-3 { 0.01 } else { 0.001 };
            for y in there_and_back(dtype, &x) {
                assert!((y - constant).abs() <= near * constant.abs(), "{dtype}: {y}");
            }
        }
        // All of one sign, and far from zero: a min of the wrong sign would show.
        let noise = gaussian(256, 0.1, 7);
        for shift in [5.0, -5.0] {
            let x: Vec<f32> = noise.iter().map(|x| x + shift).collect();
            let y = there_and_back(dtype, &x);
            assert!(rms_error(&x, &y) < 0.08 * f64::from(shift.abs()), "{dtype}");
        }
        // One value that dwarfs the rest of its block.
        let mut x = gaussian(256, 0.02, 8);
        x[77] = -900.0;
        let y = there_and_back(dtype, &x);
        assert!((y[77] + 900.0).abs() < 9.0, "{dtype}: {}", y[77]);
    }
}

#[test]
fn q4_k_uses_the_min() {
    // Below zero only: codes cover the range itself, not that and the way to zero.
    let x: Vec<f32> = gaussian(256, 0.1, 9).iter().map(|x| x - 5.0).collect();
    assert!(rms_error(&x, &there_and_back(DType::Q4_K, &x)) < 0.04);
}

#[test]
fn values_beyond_the_type_are_named() {
    let limits = [
        (DType::F16, 65519.0, 65520.0),
        (DType::BF16, 3.3895e38, f32::MAX),
        (DType::Q8_0, 127.0 * 65504.0, 127.0 * 65536.0),
        (DType::Q4_0, -8.0 * 65504.0, -8.0 * 65536.0),
        (DType::Q4_K, -62.9 * 65504.0, -64.0 * 65504.0),
        (DType::Q4_K, 5e7, 1e8),
        (DType::Q6_K, 2.2e8, 2.8e8),
    ];
    for (dtype, fits, beyond) in limits {
        let mut x = vec![0.0; 2 * 256];
        x[300] = fits;
        let bytes = encoded(dtype, &x).unwrap_or_else(|e| panic!("{dtype} of {fits}: {e}"));
        let y = decoded(dtype, &bytes);
        assert!(y.iter().all(|y| y.is_finite()), "{dtype}");
        assert!((y[300] / fits - 1.0).abs() < 0.01, "{dtype}: {}", y[300]);
        for beyond in [beyond, f32::MAX.copysign(beyond)] {
            x[300] = beyond;
            let index = 300 / dtype.block_len() * dtype.block_len();
            let got = fault(encoded(dtype, &x));
            assert_eq!(got, QuantFault::OutOfRange { dtype, index }, "{dtype}");
        }
    }
}

#[test]
fn bad_input_is_named() {
    for &dtype in DType::ALL {
        assert_eq!(is_encodable(dtype), ENCODABLE.contains(&dtype), "{dtype}");
        if !ENCODABLE.contains(&dtype) {
            assert_eq!(fault(encode(dtype, &[], &mut [])), QuantFault::NoEncoder(dtype));
            continue;
        }
        let elements = 2 * dtype.block_len();
        let mut out = vec![0; 2 * dtype.block_bytes()];
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = vec![0.0; elements];
            x[elements - 1] = bad;
            match fault(encode(dtype, &x, &mut out)) {
                QuantFault::NotFinite { dtype: t, index, value } => {
                    assert_eq!((t, index), (dtype, elements - 1));
                    assert_eq!(value.to_bits(), bad.to_bits());
                }
                other => panic!("{dtype}: {other}"),
            }
        }
        let expected = out.len();
        let actual = expected - 1;
        let got = fault(encode(dtype, &vec![0.0; elements], &mut out[..actual]));
        assert_eq!(got, QuantFault::Length { dtype, what: "the output", expected, actual });
        if dtype.is_block() {
            let got = fault(encode(dtype, &vec![0.0; elements - 1], &mut out));
            assert_eq!(got, QuantFault::PartialRow { dtype, values: elements - 1 });
        }
    }
}

/// Rows of 256 with values of any finite size: within a few powers of two of each
/// other, or all over the place.
fn rows() -> impl Strategy<Value = Vec<f32>> {
    let finite = any::<f32>().prop_filter("finite", |x| x.is_finite());
    let similar = (-140i32..100, proptest::collection::vec(-4.0f32..4.0, 256))
        .prop_map(|(exponent, x)| x.iter().map(|x| x * 2f32.powi(exponent)).collect::<Vec<f32>>());
    let moderate = proptest::collection::vec(prop_oneof![Just(0.0f32), -1e4f32..1e4], 256);
    prop_oneof![proptest::collection::vec(finite, 256), similar, moderate]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// What does not fit is refused; all else decodes to finite values within bounds.
    #[test]
    fn errors_are_bounded(dtype in proptest::sample::select(ENCODABLE), x in rows()) {
        let bytes = match encoded(dtype, &x) {
            Ok(bytes) => bytes,
            Err(error) => {
                let refused = fault::<()>(Err(error));
                prop_assert!(matches!(refused, QuantFault::OutOfRange { .. }), "{refused}");
                let largest = x.iter().fold(0.0f32, |a, x| a.max(x.abs()));
                prop_assert!(dtype != DType::F32 && largest > 6e4, "{dtype} refused {largest}");
                return Ok(());
            }
        };
        let y = decoded(dtype, &bytes);
        prop_assert!(y.iter().all(|y| y.is_finite()));
        let blocks = x.chunks(dtype.block_len()).zip(y.chunks(dtype.block_len()));
        for (x, y) in blocks {
            let low = x.iter().fold(0.0f32, |a, &x| a.min(x));
            let high = x.iter().fold(0.0f32, |a, &x| a.max(x));
            let largest = f64::from(high.max(-low));
            let range = f64::from(high) - f64::from(low);
            let worst = x.iter().zip(y).map(|(&x, &y)| (f64::from(x) - f64::from(y)).abs());
            let worst = worst.fold(0.0, f64::max);
            // The last term of each is what the least f16 scale, 2^-24, can lose.
            let (error, bound) = match dtype {
                DType::F16 => (worst, largest * 2f64.powi(-11) + 2f64.powi(-25)),
                DType::BF16 => (worst, largest * 2f64.powi(-8) + f64::from(f32::from_bits(1 << 15))),
                // Half a step, and the rounding of the scale.
                DType::Q8_0 => {
                    (worst, largest * (0.5001 / 127.0 + 2f64.powi(-11)) + 127.0 * 2f64.powi(-25))
                }
                // A whole step: there is no code for +8.
                DType::Q4_0 => {
                    (worst, largest * (1.0001 / 8.0 + 2f64.powi(-11)) + 8.0 * 2f64.powi(-25))
                }
                // Half a step is range/30 at most and rounding scale and min to 6 bits
                // about as much again; weights within a sub-block differ by up to
                // 1 + sqrt(32), which may raise the RMS by the root of that.
                DType::Q4_K => (rms_error(x, y), range / 6.0 + 1e-6),
                // Likewise: half a step is largest/62, weights up to 1 + sqrt(16).
                DType::Q6_K => (rms_error(x, y), largest / 20.0 + 2e-6),
                _ => (worst, 0.0),
            };
            prop_assert!(error <= bound, "{dtype}: {error:e} > {bound:e} in {x:?}");
        }
    }

    /// Q8_0 and Q4_0 always use the end of their code range, so a second pass finds
    /// the same scale and codes. Where the scale vanished all values are zero, and
    /// only those need agree.
    #[test]
    fn a_second_pass_changes_nothing(
        dtype in proptest::sample::select(vec![DType::Q8_0, DType::Q4_0]),
        x in rows(),
    ) {
        if let Ok(first) = encoded(dtype, &x) {
            let once = decoded(dtype, &first);
            let second = encoded(dtype, &once).unwrap();
            prop_assert_eq!(&once, &decoded(dtype, &second));
            let size = dtype.block_bytes();
            for (a, b) in first.chunks(size).zip(second.chunks(size)) {
                let vanished = a[0] == 0 && a[1] & 0x7F == 0;
                prop_assert!(a == b || vanished);
            }
        }
    }
}
