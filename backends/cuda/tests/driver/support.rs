//! Faults, tensors and patterns.

use foretoken::Error;
use foretoken::device::{Device, DeviceFault};
use foretoken::tensor::{DType, Shape, Tensor};

pub(crate) use crate::common::open;

/// The device's own fault.
pub(crate) fn fault<T>(result: foretoken::Result<T>) -> DeviceFault {
    match result.err() {
        Some(Error::Device(fault)) => fault,
        other => panic!("not a device fault: {other:?}"),
    }
}

/// A tensor in a buffer of its own.
pub(crate) fn tensor(device: &dyn Device, dtype: DType, dims: &[usize]) -> Tensor {
    let shape = Shape::new(dims).unwrap();
    let buffer = device.allocate(dtype.bytes_for(shape.elements()).unwrap(), "test").unwrap();
    Tensor::new(&buffer, 0, dtype, shape).unwrap()
}

/// Bytes that repeat late and at odd places.
pub(crate) fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 7 + i / 251) as u8).collect()
}

pub(crate) fn is_foreign(fault: DeviceFault) -> bool {
    matches!(fault, DeviceFault::ForeignBuffer { .. })
}
