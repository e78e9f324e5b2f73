//! What all tests on a device begin with.

use std::sync::Arc;

use foretoken::device::{Device, Driver};
use foretoken_cuda::CudaDriver;

/// Opens the first device, or says why the test is skipped.
#[allow(clippy::print_stdout)] // tests say why they are skipped
pub(crate) fn open() -> Option<Arc<dyn Device>> {
    let driver = CudaDriver::new();
    let devices = driver.devices().unwrap();
    if devices.first().is_some_and(|info| driver.score(info) > 0) {
        return Some(driver.open(0).unwrap());
    }
    let problems = driver.problems();
    println!("skipped: no CUDA device to run on: {}", problems.first().map_or("", |p| p));
    None
}
