//! The first GPU, as the tests of `backends/conformance` ask for a driver.

use std::sync::Arc;

use foretoken::device::{Device, Driver};
use foretoken_cuda::CudaDriver;

use crate::common::Bounds;

/// Requests compared with plain decoding in all, over both targets: as many as take some
/// ten seconds.
pub(crate) const REQUESTS: usize = 400;

/// What the fast path is held to: activations are rounded to binary16.
pub(crate) const FAST: Bounds = Bounds { logprob: 2e-2, gap: 0.05 };

/// The first GPU, when this build has code for it.
///
/// # Panics
/// A GPU is there, and `FORETOKEN_FORCE_PTX` asks for code that cannot be had: no test
/// would run, and none would fail.
pub(crate) fn open() -> Option<Arc<dyn Device>> {
    let driver = CudaDriver::new();
    let devices = driver.devices().unwrap();
    let usable = devices.first().is_some_and(|info| driver.score(info) > 0);
    if usable || (!devices.is_empty() && std::env::var_os("FORETOKEN_FORCE_PTX").is_some()) {
        return Some(driver.open(0).unwrap());
    }
    let problems = driver.problems();
    println!("skipped: no CUDA device: {}", problems.first().map_or("", |problem| problem));
    None
}
