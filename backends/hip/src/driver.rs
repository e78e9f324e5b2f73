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

/// AMD GPUs.
///
/// Making one touches neither the runtime nor a device. Devices are listed by their own
/// attributes; for the question of free memory a device is made current for a moment.
#[derive(Debug, Default)]
pub struct HipDriver {
    last: Mutex<Option<Survey>>,
}

impl HipDriver {
    /// A driver that has not looked at the machine yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Version of the installed HIP runtime, for example `6.4.43484`; none if there is
    /// no runtime or it does not answer. Belongs to the last call of
    /// [`devices`](Driver::devices), or makes one.
    pub fn driver_version(&self) -> Option<String> {
        self.known().version
    }

    /// Architectures this build has kernels for, as ROCm names them: `gfx1151`.
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

impl Driver for HipDriver {
    fn name(&self) -> &'static str {
        "hip"
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
    /// no HIP kernels.
    fn open(&self, index: usize) -> Result<Arc<dyn Device>> {
        Err(refusal(index, &self.look()).into())
    }
}

/// Why a device cannot be opened.
fn refusal(index: usize, survey: &Survey) -> DeviceFault {
    match survey.devices.iter().find(|info| info.index == index) {
        Some(info) => DeviceFault::NoKernels {
            driver: "hip",
            arch: info.arch.clone(),
            built: listed(EMBEDDED),
        },
        None => {
            let mut names: Vec<String> =
                survey.devices.iter().map(|info| format!("hip:{}", info.index)).collect();
            if names.is_empty() {
                names.extend(survey.problems.first().map(ToString::to_string));
            }
            DeviceFault::NoSuchDevice { asked: format!("hip:{index}"), available: names.join(", ") }
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
            DeviceFault::NoKernels { driver: "hip", arch: "gfx1151".into(), built: "none".into() };
        assert_eq!(fault, expected);
        assert!(fault.to_string().contains("no hip kernels for gfx1151"), "{fault}");
        assert_eq!(HipDriver::new().score(&survey.devices[0]), 0);
    }

    #[test]
    fn a_device_that_is_not_there_is_refused_with_what_is() {
        let survey = Survey::take(Ok(&Fake::with(2)), &quiet());
        assert!(matches!(
            refusal(7, &survey),
            DeviceFault::NoSuchDevice { asked, available }
                if asked == "hip:7" && available == "hip:0, hip:1"
        ));
        let missing = Err(Problem::LibraryMissing { tried: vec!["libamdhip64.so.7".into()] });
        let fault = refusal(0, &Survey::take(missing, &quiet()));
        assert!(fault.to_string().contains("libamdhip64.so.7"), "{fault}");
    }

    /// On any machine: with a driver, devices have sane properties; without one,
    /// nothing is listed, something is said, and nothing panics.
    #[test]
    fn the_machine_is_told_as_it_is() {
        let driver = HipDriver::new();
        let devices = driver.devices().unwrap();
        if devices.is_empty() {
            assert!(!driver.problems().is_empty());
            assert!(driver.open(0).is_err());
        }
        for info in &devices {
            assert!(info.arch.starts_with("gfx") && info.units > 0, "{info:?}");
            assert!([32, 64].contains(&info.warp_width) && info.memory_total > 1 << 28, "{info:?}");
            assert!(info.memory_free <= info.memory_total, "{info:?}");
        }
        if api().is_err() {
            assert!(devices.is_empty() && driver.driver_version().is_none());
            assert!(driver.problems()[0].contains("runtime"), "{:?}", driver.problems());
        }
    }
}
