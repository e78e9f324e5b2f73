//! The same bits for every instruction set, row count and split of the work.

use foretoken::device::{Activations, HostTensor};
use foretoken::tensor::DType;

use super::{BOTH, TYPES, activations, bits, packed, product, weight};
use crate::linear::rows::{Record, Rows, row_bytes};
use crate::simd::Isa;

const ROWS: [usize; 9] = [1, 2, 7, 8, 9, 16, 17, 33, 64];

#[test]
fn instruction_sets_agree_to_the_bit() {
    for dtype in TYPES {
        let k = if dtype.is_block() { 768 } else { 333 };
        let host = weight(dtype, 37, k, 21);
        for act in BOTH {
            for m in [1, 2, 9, 16, 23] {
                let x = activations(m, k, 22);
                let want = product(&packed(&host, act, Isa::Portable), &x);
                for &isa in Isa::available() {
                    let got = product(&packed(&host, act, isa), &x);
                    assert_eq!(bits(&got), bits(&want), "{dtype} {act:?} {isa} M={m}");
                }
            }
        }
    }
}

/// Rows of `x` whose product differs, in any bit, from the same row's in `all`.
fn differing(product: impl Fn(&[f32]) -> Vec<f32>, x: &[f32], k: usize, all: &[u32]) -> usize {
    let n = all.len() / (x.len() / k);
    let mut count = 0;
    for m in ROWS {
        let got = bits(&product(&x[..m * k]));
        count += got.chunks(n).zip(all.chunks(n)).filter(|(a, b)| a != b).count();
        // The same rows further down a call: other places in other tiles.
        let got = bits(&product(&x[(64 - m) * k..]));
        let there = &all[(64 - m) * n..];
        count += got.chunks(n).zip(there.chunks(n)).filter(|(a, b)| a != b).count();
    }
    count
}

#[test]
fn a_row_has_the_same_bits_among_any_number_of_rows() {
    for dtype in TYPES {
        let k = if dtype.is_block() { 512 } else { 301 };
        let host = weight(dtype, 35, k, 31);
        let x = activations(64, k, 32);
        for act in BOTH {
            for &isa in Isa::available().iter().filter(|i| **i != Isa::Portable) {
                let w = packed(&host, act, isa);
                let all = bits(&product(&w, &x));
                let wrong = differing(|x| product(&w, x), &x, k, &all);
                assert_eq!(wrong, 0, "{dtype} {act:?} {isa}");
            }
        }
    }
}

#[test]
fn an_order_that_depends_on_the_row_count_is_noticed() {
    // The same product as two halves of the inputs, added up: from nine rows on.
    let (n, k) = (35, 512);
    let host = weight(DType::Q8_0, n, k, 31);
    let half = |from: usize| {
        let rows = host.bytes.chunks_exact(k / 32 * 34);
        let bytes: Vec<u8> = rows.flat_map(|r| &r[from * 34..][..8 * 34]).copied().collect();
        let part = HostTensor { cols: k / 2, bytes: bytes.into(), ..host.clone() };
        packed(&part, Activations::Fast, Isa::detect())
    };
    let (whole, low, high) = (packed(&host, Activations::Fast, Isa::detect()), half(0), half(8));
    let halves = |x: &[f32]| {
        let part = |w, from: usize| {
            let x: Vec<f32> = x.chunks(k).flat_map(|r| &r[from..][..k / 2]).copied().collect();
            product(w, &x)
        };
        let sums = part(&low, 0).into_iter().zip(part(&high, k / 2));
        sums.map(|(a, b)| a + b).collect()
    };
    let x = activations(64, k, 32);
    let all = bits(&product(&whole, &x));
    let wavering = |x: &[f32]| if x.len() / k > 8 { halves(x) } else { product(&whole, x) };
    assert!(differing(wavering, &x, k, &all) > 0);
}

#[test]
fn splits_of_the_work_give_the_same_bits() {
    for (dtype, k) in [(DType::Q4_K, 512), (DType::Q6_K, 256), (DType::BF16, 101)] {
        let n = 85;
        let w = packed(&weight(dtype, n, k, 41), Activations::Fast, Isa::detect());
        for m in [1, 3, 16, 21, 64] {
            let x = activations(m, k, 42);
            let whole = product(&w, &x);
            for parts in [2, 3, 5, 8] {
                let size = m * row_bytes(w.activations(), k);
                let mut acts = vec![Record::default(); size.div_ceil(size_of::<Record>())];
                let mut out = vec![f32::NAN; m * n];
                let from = Rows { first: x.as_ptr(), stride: k, rows: m, k };
                let kernels = w.kernels();
                let to = acts.as_mut_ptr().cast();
                // SAFETY: sizes as the shapes say; parts are converted and multiplied one
                // after another.
                unsafe {
                    for part in 0..parts {
                        let act = w.activations();
                        (kernels.convert)(from, act, to, part, parts);
                    }
                    for part in 0..parts {
                        let panels = w.panels() * part / parts..w.panels() * (part + 1) / parts;
                        w.run(panels, to, m, out.as_mut_ptr(), n, false);
                    }
                }
                assert_eq!(bits(&out), bits(&whole), "{dtype} M={m} in {parts} parts");
            }
        }
    }
}

#[test]
fn accumulating_adds_the_rounded_product() {
    for n in [16, 21] {
        let k = 256;
        let w = packed(&weight(DType::Q5_K, n, k, 51), Activations::Fast, Isa::detect());
        let x = activations(3, k, 52);
        let whole = product(&w, &x);
        let old = activations(3, n, 53);
        let mut out = old.clone();
        let mut acts = vec![Record::default(); 3 * k / 32];
        let to = acts.as_mut_ptr().cast();
        let from = Rows { first: x.as_ptr(), stride: k, rows: 3, k };
        // SAFETY: sizes as the shapes say, one thread.
        unsafe {
            (w.kernels().convert)(from, w.activations(), to, 0, 1);
            w.run(0..w.panels(), to, 3, out.as_mut_ptr(), n, true);
        }
        let want: Vec<f32> = old.iter().zip(&whole).map(|(a, b)| a + b).collect();
        assert_eq!(bits(&out), bits(&want));
    }
}
