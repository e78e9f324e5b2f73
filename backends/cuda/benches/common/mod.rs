//! What the benches share: their arguments, and the GPU they run on.

use std::sync::Arc;

use foretoken::device::{Device, Driver};
use foretoken_cuda::{CudaDriver, CudaOptions};

/// Arguments that are not cargo's.
pub(crate) fn arguments() -> Vec<String> {
    std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect()
}

/// The first GPU with code for it, named; with the portable code of `FORETOKEN_FORCE_PTX`
/// when that is set. None, and why is said, when there is no such GPU.
pub(crate) fn open() -> Option<Arc<dyn Device>> {
    let force_ptx = std::env::var("FORETOKEN_FORCE_PTX").ok().filter(|arch| !arch.is_empty());
    let driver = CudaDriver::with_options(CudaOptions { force_ptx, ..CudaOptions::default() });
    let devices = driver.devices().unwrap_or_default();
    let Some(info) = devices.first().filter(|info| driver.score(info) > 0) else {
        println!("no device: {:?}", driver.problems());
        return None;
    };
    let device = driver.open(info.index).expect("a device");
    println!("{} ({})", info.name, info.arch);
    Some(device)
}
