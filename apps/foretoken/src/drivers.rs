//! The drivers of this build. Commands see no other place where drivers are
//! named.

use std::sync::Arc;

use foretoken::device::{Device, DeviceSpec, Driver};
use foretoken::generate::select_device;
use foretoken_cpu::{CpuDriver, CpuOptions};

/// Settings of the drivers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DriverOptions {
    /// CPU threads; by default the driver's own choice.
    pub(crate) threads: Option<usize>,
}

/// All drivers of this build.
pub(crate) fn drivers(options: DriverOptions) -> Vec<Arc<dyn Driver>> {
    let cpu = CpuOptions { threads: options.threads, ..CpuOptions::default() };
    let gpus = [cuda(), hip()].into_iter().flatten().map(|gpu| gpu.driver);
    let cpu: Arc<dyn Driver> = Arc::new(CpuDriver::new(cpu));
    std::iter::once(cpu).chain(gpus).collect()
}

/// A GPU driver and what it alone can tell.
pub(crate) struct Gpu {
    /// The driver.
    pub(crate) driver: Arc<dyn Driver>,
    /// Architectures this build has kernels for.
    pub(crate) architectures: &'static [&'static str],
    /// Asks for the version of the vendor's driver.
    pub(crate) version: Box<dyn Fn() -> Option<String>>,
}

/// The driver for NVIDIA GPUs, if it is in this build.
pub(crate) fn cuda() -> Option<Gpu> {
    #[cfg(feature = "cuda")]
    {
        let driver = Arc::new(foretoken_cuda::CudaDriver::new());
        let (architectures, asked) = (driver.architectures(), Arc::clone(&driver));
        let version = Box::new(move || asked.driver_version());
        Some(Gpu { driver, architectures, version })
    }
    #[cfg(not(feature = "cuda"))]
    None
}

/// The driver for AMD GPUs, if it is in this build.
pub(crate) fn hip() -> Option<Gpu> {
    #[cfg(feature = "hip")]
    {
        let driver = Arc::new(foretoken_hip::HipDriver::new());
        let (architectures, asked) = (driver.architectures(), Arc::clone(&driver));
        let version = Box::new(move || asked.driver_version());
        Some(Gpu { driver, architectures, version })
    }
    #[cfg(not(feature = "hip"))]
    None
}

/// Opens the device asked for.
///
/// # Errors
/// `NoSuchDevice`, and what opening it fails with.
pub(crate) fn open(
    spec: &DeviceSpec,
    options: DriverOptions,
) -> foretoken::Result<Arc<dyn Device>> {
    select_device(&drivers(options), spec)
}
