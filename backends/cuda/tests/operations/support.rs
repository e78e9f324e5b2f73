//! A device, tensors on it, launches.

use std::sync::Arc;

use foretoken::Error;
use foretoken::device::{Device, DeviceFault, Driver};
use foretoken::kernel::{Control, KvPair, Op};
use foretoken::tensor::{DType, Shape, Tensor};
use foretoken_cuda::CudaDriver;

/// The first GPU that this build has code for.
pub(crate) fn device() -> Option<Arc<dyn Device>> {
    let driver = CudaDriver::new();
    let devices = driver.devices().unwrap();
    let Some(info) = devices.iter().find(|info| driver.score(info) > 0) else {
        let problems = driver.problems();
        println!("skipped: {}", problems.first().map_or("no device for this build", |p| p));
        return None;
    };
    Some(driver.open(info.index).unwrap())
}

/// A tensor of zeros.
pub(crate) fn tensor(device: &dyn Device, dtype: DType, dims: &[usize]) -> Tensor {
    let shape = Shape::new(dims).unwrap();
    let bytes = dtype.bytes_for(shape.elements()).unwrap();
    let buffer = device.allocate(bytes, "test").unwrap();
    let mut stream = device.stream().unwrap();
    stream.fill(&buffer, 0, bytes, 0).unwrap();
    stream.synchronize().unwrap();
    Tensor::new(&buffer, 0, dtype, shape).unwrap()
}

pub(crate) fn write(device: &dyn Device, tensor: &Tensor, bytes: &[u8]) {
    let mut stream = device.stream().unwrap();
    stream.write(tensor.buffer(), 0, bytes).unwrap();
    stream.synchronize().unwrap();
}

pub(crate) fn read(device: &dyn Device, tensor: &Tensor) -> Vec<u8> {
    let mut bytes = vec![0; tensor.bytes()];
    device.stream().unwrap().read(tensor.buffer(), 0, &mut bytes).unwrap();
    bytes
}

pub(crate) fn words_of(device: &dyn Device, tensor: &Tensor) -> Vec<u32> {
    read(device, tensor).as_chunks().0.iter().map(|b| u32::from_le_bytes(*b)).collect()
}

pub(crate) fn f32(device: &dyn Device, dims: &[usize]) -> Tensor {
    tensor(device, DType::F32, dims)
}

pub(crate) fn floats(device: &dyn Device, dims: &[usize], values: &[f32]) -> Tensor {
    let tensor = f32(device, dims);
    let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
    write(device, &tensor, &bytes);
    tensor
}

pub(crate) fn ints(device: &dyn Device, dims: &[usize]) -> Tensor {
    tensor(device, DType::I32, dims)
}

pub(crate) fn words(device: &dyn Device, words: &[i32]) -> Tensor {
    let tensor = ints(device, &[words.len()]);
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    write(device, &tensor, &bytes);
    tensor
}

pub(crate) fn control(device: &dyn Device, rows: i32, committed: i32) -> Control {
    Control(words(device, &[rows, committed, 0, rows]))
}

pub(crate) fn cache(device: &dyn Device, context: usize) -> KvPair {
    KvPair { k: f32(device, &[context, 2, 16]), v: f32(device, &[context, 2, 16]) }
}

/// Runs an operation; what the launch was refused for, if it was.
pub(crate) fn launch(device: &dyn Device, op: impl Into<Op>) -> Option<String> {
    let kernel = device.prepare(&op.into()).unwrap();
    let mut stream = device.stream().unwrap();
    match stream.launch(&*kernel).and_then(|()| stream.synchronize()) {
        Ok(()) => None,
        Err(Error::Device(DeviceFault::Failed { message, .. })) => Some(message),
        Err(other) => panic!("{other}"),
    }
}

/// A generator of words (xorshift).
pub(crate) struct Words(pub(crate) u64);

impl Words {
    pub(crate) fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as u32
    }
}
