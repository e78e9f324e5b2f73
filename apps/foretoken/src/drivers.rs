//! The drivers of this build. Commands see no other place where drivers are
//! named.

use std::sync::Arc;

use foretoken::device::{Device, DeviceInfo, DeviceSpec, Driver};
use foretoken::generate::select_device;
use foretoken_cpu::{CpuDriver, CpuOptions};

/// Settings of the drivers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DriverOptions {
    /// CPU threads; by default the driver's own choice.
    pub(crate) threads: Option<usize>,
    /// Most bytes that a device may reserve; by default all that it has.
    pub(crate) memory: Option<u64>,
}

/// All drivers of this build.
pub(crate) fn drivers(options: DriverOptions) -> Vec<Arc<dyn Driver>> {
    let DriverOptions { threads, memory } = options;
    let cpu = CpuOptions { threads, memory_limit: memory, ..CpuOptions::default() };
    let gpus = [cuda(memory), hip()].into_iter().flatten().map(|gpu| gpu.driver);
    let cpu: Arc<dyn Driver> = Arc::new(CpuDriver::new(cpu));
    std::iter::once(cpu).chain(gpus).collect()
}

/// A GPU driver and what it alone can tell.
pub(crate) struct Gpu {
    /// The driver.
    pub(crate) driver: Arc<dyn Driver>,
    /// Architectures this build has kernels for.
    pub(crate) architectures: &'static [&'static str],
    /// Hash of those kernels; empty where there are none.
    pub(crate) kernels: &'static str,
    /// Asks for the version of the vendor's driver.
    pub(crate) version: Box<dyn Fn() -> Option<String>>,
}

/// The driver for NVIDIA GPUs, if it is in this build; devices reserve at most `memory`
/// bytes.
pub(crate) fn cuda(memory: Option<u64>) -> Option<Gpu> {
    #[cfg(feature = "cuda")]
    {
        use foretoken_cuda::{CudaDriver, CudaOptions};
        let options = CudaOptions { memory_limit: memory, ..CudaOptions::from_environment() };
        let driver = Arc::new(CudaDriver::with_options(options));
        let (architectures, kernels) = (driver.architectures(), driver.kernels_key());
        let asked = Arc::clone(&driver);
        let version = Box::new(move || asked.driver_version());
        Some(Gpu { driver, architectures, kernels, version })
    }
    #[cfg(not(feature = "cuda"))]
    {
        let _ = memory;
        None
    }
}

/// The driver for AMD GPUs, if it is in this build.
pub(crate) fn hip() -> Option<Gpu> {
    #[cfg(feature = "hip")]
    {
        let driver = Arc::new(foretoken_hip::HipDriver::new());
        let (architectures, asked) = (driver.architectures(), Arc::clone(&driver));
        let version = Box::new(move || asked.driver_version());
        Some(Gpu { driver, architectures, kernels: "", version })
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
    let drivers = drivers(options);
    let device = select_device(&drivers, spec)?;
    if *spec == DeviceSpec::Auto {
        warn_of_unused(&drivers, &device.info());
    }
    Ok(device)
}

/// Says which devices `auto` passed over because nothing in this build runs on them.
fn warn_of_unused(drivers: &[Arc<dyn Driver>], chosen: &DeviceInfo) {
    for driver in drivers.iter().filter(|driver| driver.name() != chosen.driver) {
        let devices = driver.devices().unwrap_or_default();
        for unused in devices.iter().filter(|info| driver.score(info) == 0) {
            tracing::warn!(
                "{}:{} ({}, {}) is not used, as this build has no kernels for it; using {}:{}",
                unused.driver,
                unused.index,
                unused.name,
                unused.arch,
                chosen.driver,
                chosen.index
            );
        }
    }
}
