//! What is refused, and with which error.

use foretoken::Error;
use foretoken::device::{Activations, DeviceFault, HostTensor, WeightRole, WeightSpec};
use foretoken::tensor::DType;

use super::{BOTH, TYPES, spec, weight};
use crate::linear::{PackedWeight, Scratch};
use crate::simd::Isa;

fn shape(dtype: DType, rows: usize, cols: usize) -> WeightSpec {
    let (role, activations) = (WeightRole::Linear, Activations::Fast);
    WeightSpec { dtype, rows, cols, role, activations }
}

fn fault<T>(result: foretoken::Result<T>) -> DeviceFault {
    match result {
        Err(Error::Device(fault)) => fault,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("not refused"),
    }
}

#[test]
fn types_without_kernels_are_named() {
    for &dtype in DType::ALL.iter().filter(|t| !TYPES.contains(t)) {
        let DeviceFault::Unsupported { op: "linear", dtype: named, .. } =
            fault(PackedWeight::bytes_for(&shape(dtype, 16, 256)))
        else {
            panic!("{dtype} must be unsupported")
        };
        assert_eq!(named, dtype);
    }
}

#[test]
fn sizes_are_exact_and_stay_near_those_of_the_file() {
    for dtype in TYPES {
        for act in BOTH {
            for (rows, cols) in [(16, 512), (33, 1024), (1, 256)] {
                let host = weight(dtype, rows, cols, 1);
                let spec = spec(&host, act);
                let bytes = PackedWeight::bytes_for(&spec).unwrap();
                let packed = PackedWeight::pack(&host, &spec, Isa::detect()).unwrap();
                assert_eq!(packed.bytes() as u64, bytes);
                let padded = rows.next_multiple_of(16) * cols;
                let file = dtype.block_bytes() as f64 * 8.0 / dtype.block_len() as f64;
                let packed = bytes as f64 * 8.0 / padded as f64;
                // At most half a bit per weight more, for byte-wide integer scales.
                assert!(packed >= file - 0.2 && packed <= file + 0.5, "{dtype}: {packed}");
            }
        }
    }
}

#[test]
fn shapes_that_do_not_fit_are_refused() {
    let bad = |result| matches!(fault(result), DeviceFault::BadOperands { op: "linear", .. });
    assert!(bad(PackedWeight::bytes_for(&shape(DType::Q4_K, 16, 128))));
    assert!(bad(PackedWeight::bytes_for(&shape(DType::Q4_K, 0, 256))));
    assert!(bad(PackedWeight::bytes_for(&shape(DType::F32, 16, 0))));
    for (rows, cols) in [(usize::MAX, 256), (usize::MAX / 128, 256), (64, usize::MAX / 256 * 256)] {
        assert!(bad(PackedWeight::bytes_for(&shape(DType::Q6_K, rows, cols))));
    }
    let host = weight(DType::Q8_0, 4, 64, 1);
    let pack = |host: &HostTensor, spec: &WeightSpec| {
        PackedWeight::pack(host, spec, Isa::Portable).map(|_| 0u64)
    };
    assert!(bad(pack(&host, &shape(DType::Q8_0, 4, 32))));
    assert!(bad(pack(&host, &shape(DType::Q4_0, 4, 64))));
    let short = HostTensor { bytes: host.bytes[1..].to_vec().into(), ..host.clone() };
    assert!(bad(pack(&short, &shape(DType::Q8_0, 4, 64))));
}

#[test]
fn instruction_sets_of_other_machines_are_refused() {
    let host = weight(DType::Q8_0, 4, 64, 1);
    let spec = shape(DType::Q8_0, 4, 64);
    for isa in [Isa::Portable, Isa::Avx2, Isa::Avx512, Isa::Neon] {
        let packed = PackedWeight::pack(&host, &spec, isa);
        if isa.is_available() {
            assert!(packed.is_ok());
        } else {
            assert!(matches!(fault(packed.map(|_| ())), DeviceFault::Unsupported { .. }));
        }
    }
}

#[test]
fn lengths_that_are_not_whole_rows_are_refused() {
    let host = weight(DType::Q8_0, 4, 64, 1);
    let w = PackedWeight::pack(&host, &shape(DType::Q8_0, 4, 64), Isa::Portable).unwrap();
    for (x, out) in [(63, 4), (64, 3), (128, 4), (65, 4)] {
        let (x, mut out) = (vec![0.0; x], vec![0.0; out]);
        let result = w.multiply(&x, &mut out, &mut Scratch::default());
        assert!(matches!(fault(result), DeviceFault::BadOperands { .. }));
    }
}
