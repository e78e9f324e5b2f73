//! Products against f64 references.

use foretoken::device::{Activations, HostTensor};
use foretoken::quant::decode;
use foretoken::tensor::DType;

use super::{BOTH, TYPES, activations, packed, product, weight};
use crate::simd::Isa;

/// Activations as the fast path sees them, from the definition: per 32 values a step
/// of amax / 16256, rounded to nearest even, all zero below 1e-30.
fn quantised(x: &[f32]) -> Vec<f64> {
    let mut out = Vec::new();
    for block in x.chunks(32) {
        let amax = block.iter().fold(0f32, |m, x| m.max(x.abs()));
        let step = amax / 16256.0;
        for x in block {
            let code = if amax < 1e-30 { 0.0 } else { (x * (16256.0 / amax)).round_ties_even() };
            out.push(f64::from(step) * f64::from(code));
        }
    }
    out
}

/// The product and the sum of the magnitudes of its terms, per element.
fn reference(host: &HostTensor, x: &[f64]) -> Vec<(f64, f64)> {
    let mut w = vec![0f32; host.rows * host.cols];
    decode(host.dtype, &host.bytes, &mut w).unwrap();
    let scale = f64::from(host.scale);
    let mut out = Vec::new();
    for x in x.chunks_exact(host.cols) {
        for w in w.chunks_exact(host.cols) {
            let terms = w.iter().zip(x).map(|(&w, &x)| f64::from(w) * x * scale);
            let (sum, size) = terms.fold((0.0, 0.0), |(s, a): (f64, f64), t| (s + t, a + t.abs()));
            out.push((sum, size));
        }
    }
    out
}

/// Odd shapes: partial panels, several chunks, a partial last chunk, and for scalar
/// types inputs that are no multiple of anything.
fn shapes(dtype: DType) -> Vec<(usize, usize)> {
    match dtype.block_len() {
        1 => vec![(1, 1), (15, 31), (17, 100), (40, 515)],
        256 => vec![(1, 256), (17, 512), (31, 768)],
        len => vec![(1, len), (15, 288 / len * len), (33, 320), (16, 512)],
    }
}

#[test]
fn products_match_the_reference_on_the_same_inputs() {
    for dtype in TYPES {
        for (n, k) in shapes(dtype) {
            let host = weight(dtype, n, k, 7);
            for act in BOTH {
                let fast = act == Activations::Fast && dtype.is_block();
                for m in [1, 2, 7, 8, 9, 16, 17, 33, 64] {
                    let x = activations(m, k, 11);
                    let exact =
                        if fast { quantised(&x) } else { x.iter().map(|&x| x.into()).collect() };
                    let got = product(&packed(&host, act, Isa::detect()), &x);
                    for (i, (got, (want, size))) in
                        got.iter().zip(reference(&host, &exact)).enumerate()
                    {
                        // Each of at most 515 sequential f32 roundings is within 2^-24 of a
                        // partial sum that `size` bounds (offset types split a term into two
                        // larger ones); they mostly cancel.
                        let error = (f64::from(*got) - want).abs();
                        assert!(
                            error <= 4e-6 * size + 1e-30,
                            "{dtype} {n}x{k} {act:?} M={m} [{i}]: {got} is not {want} ({size})"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn fast_products_are_near_those_of_unquantised_activations() {
    for dtype in TYPES.into_iter().filter(|t| t.is_block()) {
        let (n, k, m) = (33, 768, 5);
        let host = weight(dtype, n, k, 3);
        let x = activations(m, k, 5);
        let exact: Vec<f64> = x.iter().map(|&x| x.into()).collect();
        let got = product(&packed(&host, Activations::Fast, Isa::detect()), &x);
        let want = reference(&host, &exact);
        let (mut error, mut size) = (0.0, 0.0);
        for (got, (want, _)) in got.iter().zip(&want) {
            error += (f64::from(*got) - want).powi(2);
            size += want * want;
        }
        // Rounding to 1/16256 of a block's largest value: an error of 1/32512/sqrt(3) of it
        // in each input, where inputs are 1/sqrt(3) of it: 3.1e-5 of the result.
        let relative = (error / size).sqrt();
        assert!(relative < 6e-5, "{dtype}: {relative}");
        // The other way round: it is not the F32 path that was tested.
        assert!(relative > 5e-6, "{dtype}: {relative}");
    }
}

#[test]
fn extreme_codes_do_not_saturate() {
    // All codes at the top, all activations at the ends: the largest pair sums there are.
    for dtype in [DType::Q8_0, DType::Q6_K, DType::Q5_1, DType::Q4_K, DType::IQ4_NL] {
        for fill in [0x00u8, 0x7F, 0x80, 0xFF] {
            let (n, k) = (16, 256);
            let mut bytes = weight(dtype, n, k, 1).bytes.to_vec();
            let (at, factors): (usize, &[usize]) = match dtype {
                DType::Q8_0 | DType::IQ4_NL => (2, &[0]),
                DType::Q5_1 => (4, &[0, 2]),
                DType::Q4_K => (4, &[0, 2]),
                _ => (0, &[208]),
            };
            for block in bytes.chunks_exact_mut(dtype.block_bytes()) {
                block[at..].fill(fill);
                for &f in factors {
                    block[f..f + 2].copy_from_slice(&half::f16::from_f32(0.01).to_le_bytes());
                }
            }
            let host = HostTensor { bytes: bytes.into(), ..weight(dtype, n, k, 1) };
            for sign in [1.0, -1.0] {
                let x = vec![sign; 4 * k];
                for &isa in Isa::available() {
                    let got = product(&packed(&host, Activations::Fast, isa), &x);
                    for (got, (want, size)) in got.iter().zip(reference(&host, &quantised(&x))) {
                        let error = (f64::from(*got) - want).abs();
                        assert!(error <= 4e-6 * size, "{dtype} {isa}: {got} is not {want}");
                    }
                }
            }
        }
    }
}

#[test]
fn bad_values_are_seen_in_the_product() {
    for act in BOTH {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for &isa in Isa::available() {
                let host = weight(DType::Q4_K, 20, 512, 1);
                let mut x = activations(3, 512, 2);
                x[512 + 300] = bad;
                let got = product(&packed(&host, act, isa), &x);
                assert!(got[..20].iter().all(|v| v.is_finite()));
                assert!(got[20..40].iter().all(|v| !v.is_finite()), "{act:?} {bad} {isa}");
                assert!(got[40..].iter().all(|v| v.is_finite()));
            }
        }
    }
}

#[test]
fn tiny_and_huge_activations_stay_finite() {
    let host = weight(DType::Q8_0, 16, 64, 1);
    for size in [0.0, 1e-45, 1e-38, 1e-36, 1e-34, 1e30] {
        let x: Vec<f32> = activations(2, 64, 3).iter().map(|x| x.signum() * size).collect();
        let got = product(&packed(&host, Activations::Fast, Isa::detect()), &x);
        for (got, (want, sum)) in got.iter().zip(reference(&host, &quantised(&x))) {
            let error = (f64::from(*got) - want).abs();
            assert!(error <= 4e-6 * sum, "{size}: {got} is not {want}");
        }
    }
}
