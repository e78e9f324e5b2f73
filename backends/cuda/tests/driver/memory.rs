//! Memory: what the device has, what it refuses, and that it comes back.

use foretoken::device::{Activations, DeviceFault, Driver, HostTensor, WeightRole, WeightSpec};
use foretoken::format::SharedBytes;
use foretoken::tensor::DType;
use foretoken_cuda::{CudaDriver, CudaOptions};

use crate::support::{fault, open};

#[test]
fn the_device_describes_itself() {
    let Some(device) = open() else { return };
    let (driver, info) = (CudaDriver::new(), device.info());
    assert_eq!((info.driver, info.index, info.warp_width), ("cuda", 0, 32));
    assert!(info.arch.starts_with("sm_") && info.units > 0 && !info.name.is_empty());
    assert!(info.memory_free > 0 && info.memory_free <= info.memory_total);
    assert!(info.features.iter().any(|feature| feature.starts_with("shared_")), "{info:?}");
    // A twin of the same GPU is another device.
    assert_ne!(device.id(), driver.open(0).unwrap().id());
    let missing = fault(driver.open(99));
    assert!(matches!(missing, DeviceFault::NoSuchDevice { .. }), "{missing}");
}

#[test]
fn what_does_not_fit_is_refused_and_the_device_goes_on() {
    let Some(device) = open() else { return };
    let (free, total) = (device.info().memory_free as usize, device.info().memory_total as usize);
    for bytes in [usize::MAX, isize::MAX as usize, 1 << 60, total + 1, total, free + (1 << 30)] {
        match fault(device.allocate(bytes, "too much")) {
            DeviceFault::OutOfMemory { device, what, asked, free } => {
                assert_eq!((device.as_str(), what.as_str()), ("cuda:0", "too much"));
                assert!(asked == bytes as u64 && free <= total as u64);
            }
            other => panic!("{bytes}: {other}"),
        }
    }
    for bytes in [0, 1, 63, 4097] {
        assert_eq!(device.allocate(bytes, "small").unwrap().bytes(), bytes);
    }
}

#[test]
fn memory_comes_back() {
    let Some(device) = open() else { return };
    let bytes = 256 << 20;
    let before = device.info().memory_free;
    let buffer = device.allocate(bytes, "the cache").unwrap();
    assert!(device.info().memory_free <= before - (bytes as u64) / 2);
    drop(buffer);
    // Other tests and other programs use the device, too.
    for _ in 0..64 {
        device.allocate(bytes, "again").unwrap();
    }
}

#[test]
fn weights_are_taken_in_as_planned() {
    let Some(device) = open() else { return };
    // Weights for the fast path are laid out anew by kernels, which the stand-in has not.
    let stands_in = device.info().name.starts_with("Fake");
    let activations = if stands_in { Activations::F32 } else { Activations::Fast };
    for (dtype, bytes) in [(DType::F32, 8192), (DType::BF16, 4096), (DType::Q4_0, 1152)] {
        for role in [WeightRole::Linear, WeightRole::Embedding] {
            let (rows, cols) = (32, 64);
            let spec = WeightSpec { dtype, rows, cols, role, activations };
            let host = |bytes: usize| HostTensor {
                dtype,
                rows,
                cols,
                bytes: SharedBytes::from(vec![0; bytes]),
                scale: 1.0,
            };
            let weight = device.load_weight(&host(bytes), &spec).unwrap();
            assert_eq!(weight.bytes(), device.weight_bytes(&spec).unwrap());
            assert_eq!(weight.device(), device.id());
            let other = WeightSpec { rows: 31, ..spec };
            let bad = |f| matches!(f, DeviceFault::BadOperands { .. });
            assert!(bad(fault(device.load_weight(&host(bytes), &other))));
            assert!(bad(fault(device.load_weight(&host(bytes - 1), &spec))));
            assert!(bad(fault(device.weight_bytes(&WeightSpec { cols: 0, ..spec }))));
        }
    }
    let spec = WeightSpec {
        dtype: DType::IQ1_S,
        rows: 1,
        cols: 256,
        role: WeightRole::Linear,
        activations: Activations::Fast,
    };
    let unsupported = fault(device.weight_bytes(&spec));
    assert!(matches!(unsupported, DeviceFault::Unsupported { op: "linear", .. }), "{unsupported}");
}

/// A limit is all the memory there is.
#[test]
fn a_device_reserves_no_more_than_its_limit() {
    if open().is_none() {
        return;
    }
    let limit = 10 << 20;
    let options = CudaOptions { memory_limit: Some(limit), ..CudaOptions::from_environment() };
    let driver = CudaDriver::with_options(options);
    let listed = &driver.devices().unwrap()[0];
    assert_eq!((listed.memory_total, listed.memory_free), (limit, limit));
    let device = driver.open(0).unwrap();
    let first = device.allocate(6 << 20, "first").unwrap();
    assert_eq!((device.info().memory_total, device.info().memory_free), (limit, 4 << 20));
    match fault(device.allocate(5 << 20, "second")) {
        DeviceFault::OutOfMemory { what, asked, free, .. } => {
            assert_eq!((what.as_str(), asked, free), ("second", 5 << 20, 4 << 20));
        }
        other => panic!("{other}"),
    }
    let second = device.allocate(4 << 20, "second").unwrap();
    assert_eq!(device.info().memory_free, 0);
    drop((first, second));
    assert_eq!(device.info().memory_free, limit);
    device.allocate(limit as usize, "all").unwrap();
}
