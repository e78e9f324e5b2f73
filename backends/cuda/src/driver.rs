//! The engine's seam.

use std::sync::{Arc, Mutex, PoisonError};

use foretoken::Result;
use foretoken::device::{Device, DeviceFault, DeviceInfo, Driver};

use crate::api::api;
use crate::calls::Calls;
use crate::facts::{EMBEDDED, covered, preference};
use crate::problem::listed;
use crate::surroundings::Surroundings;
use crate::survey::Survey;

/// NVIDIA GPUs.
///
/// Making one touches neither the driver library nor a device. Devices are listed by
/// their own attributes; free memory takes a context, which is created and released
/// for the question.
#[derive(Debug, Default)]
pub struct CudaDriver {
    last: Mutex<Option<Survey>>,
}

impl CudaDriver {
    /// A driver that has not looked at the machine yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The newest CUDA version the installed NVIDIA driver speaks, for example `13.0`;
    /// none if there is no driver or it does not answer. Belongs to the last call of
    /// [`devices`](Driver::devices), or makes one.
    pub fn driver_version(&self) -> Option<String> {
        self.known().version
    }

    /// Architectures this build has kernels for, as nvcc names them: `75`, `90a`.
    pub fn architectures(&self) -> &'static [&'static str] {
        EMBEDDED
    }

    /// Looks at the machine.
    fn look(&self) -> Survey {
        let api = api().map(|api| api as &dyn Calls);
        let survey = Survey::take(api, &Surroundings::here());
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(survey.clone());
        survey
    }

    /// The last look at the machine, or a first one.
    fn known(&self) -> Survey {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        last.unwrap_or_else(|| self.look())
    }
}

impl Driver for CudaDriver {
    fn name(&self) -> &'static str {
        "cuda"
    }

    /// Asks the driver anew on each call.
    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        Ok(self.look().devices)
    }

    /// Belongs to the last call of [`devices`](Self::devices), or makes one.
    fn problems(&self) -> Vec<String> {
        self.known().problems.iter().map(ToString::to_string).collect()
    }

    /// 0 where this build has no kernels for the device.
    fn score(&self, info: &DeviceInfo) -> u64 {
        if covered(&info.arch, EMBEDDED) { preference(info) } else { 0 }
    }

    /// Fails with `NoSuchDevice`, or with `NoKernels` for every device: this build has
    /// no CUDA kernels.
    fn open(&self, index: usize) -> Result<Arc<dyn Device>> {
        Err(refusal(index, &self.look()).into())
    }
}

/// Why a device cannot be opened.
fn refusal(index: usize, survey: &Survey) -> DeviceFault {
    match survey.devices.iter().find(|info| info.index == index) {
        Some(info) => DeviceFault::NoKernels {
            driver: "cuda",
            arch: info.arch.clone(),
            built: listed(EMBEDDED),
        },
        None => {
            let mut names: Vec<String> =
                survey.devices.iter().map(|info| format!("cuda:{}", info.index)).collect();
            if names.is_empty() {
                names.extend(survey.problems.first().map(ToString::to_string));
            }
            DeviceFault::NoSuchDevice {
                asked: format!("cuda:{index}"),
                available: names.join(", "),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Problem;
    use crate::survey::tests::{Fake, quiet};

    #[test]
    fn a_device_without_kernels_is_refused_and_never_chosen() {
        let survey = Survey::take(Ok(&Fake::with(1)), &quiet());
        let fault = refusal(0, &survey);
        let expected =
            DeviceFault::NoKernels { driver: "cuda", arch: "sm_90".into(), built: "none".into() };
        assert_eq!(fault, expected);
        assert!(fault.to_string().contains("no cuda kernels for sm_90"), "{fault}");
        assert_eq!(CudaDriver::new().score(&survey.devices[0]), 0);
    }

    #[test]
    fn a_device_that_is_not_there_is_refused_with_what_is() {
        let survey = Survey::take(Ok(&Fake::with(2)), &quiet());
        assert!(matches!(
            refusal(7, &survey),
            DeviceFault::NoSuchDevice { asked, available }
                if asked == "cuda:7" && available == "cuda:0, cuda:1"
        ));
        let missing = Err(Problem::LibraryMissing { tried: vec!["libcuda.so.1".into()] });
        let fault = refusal(0, &Survey::take(missing, &quiet()));
        assert!(fault.to_string().contains("libcuda.so.1"), "{fault}");
    }

    /// On any machine: with a driver, devices have sane properties; without one,
    /// nothing is listed, something is said, and nothing panics.
    #[test]
    fn the_machine_is_told_as_it_is() {
        let driver = CudaDriver::new();
        let devices = driver.devices().unwrap();
        if devices.is_empty() {
            assert!(!driver.problems().is_empty());
            assert!(driver.open(0).is_err());
        }
        for info in &devices {
            assert!(info.arch.starts_with("sm_") && info.units > 0, "{info:?}");
            assert!(info.warp_width == 32 && info.memory_total > 1 << 28, "{info:?}");
            assert!(info.memory_free <= info.memory_total, "{info:?}");
        }
        if api().is_err() {
            assert!(devices.is_empty() && driver.driver_version().is_none());
            assert!(driver.problems()[0].contains("library"), "{:?}", driver.problems());
        }
    }
}
