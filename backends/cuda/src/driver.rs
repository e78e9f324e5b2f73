//! The engine's seam.

use std::sync::{Arc, Mutex, PoisonError};

use foretoken::Result;
use foretoken::device::{Device, DeviceFault, DeviceInfo, Driver};

use crate::api::api;
use crate::calls::Calls;
use crate::device::{Built, FORCE_PTX, open};
use crate::facts::preference;
use crate::problem::Problem;
use crate::surroundings::Surroundings;
use crate::survey::Survey;

/// How to use the GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CudaOptions {
    /// Load the portable code of this architecture (`86`) instead of the device's own, so
    /// that its source path runs here.
    pub force_ptx: Option<String>,
    /// Most bytes that a device may reserve; by default all of its memory. What the NVIDIA
    /// driver takes for code and contexts is not counted.
    pub memory_limit: Option<u64>,
    /// Give each opened device a context of its own, rather than the primary one, which all
    /// code of the process shares. Takes some hundred MiB for each.
    pub own_context: bool,
}

impl CudaOptions {
    /// From the environment: `FORETOKEN_FORCE_PTX=86`.
    pub fn from_environment() -> Self {
        let force_ptx = std::env::var(FORCE_PTX).ok().filter(|value| !value.is_empty());
        Self { force_ptx, ..Self::default() }
    }
}

/// NVIDIA GPUs.
///
/// Making one touches neither the driver library nor a device. Devices are listed by
/// their own attributes; free memory takes a context, which is created and released
/// for the question.
#[derive(Debug)]
pub struct CudaDriver {
    built: Built,
    options: CudaOptions,
    last: Mutex<Option<Survey>>,
}

impl Default for CudaDriver {
    fn default() -> Self {
        Self::new()
    }
}

impl CudaDriver {
    /// A driver that has not looked at the machine yet, with options from the environment.
    pub fn new() -> Self {
        Self::with_options(CudaOptions::from_environment())
    }

    /// The same with options of one's own.
    pub fn with_options(options: CudaOptions) -> Self {
        let built = Built::new(options.force_ptx.clone());
        Self { built, options, last: Mutex::default() }
    }

    /// The newest CUDA version the installed NVIDIA driver speaks, for example `13.0`;
    /// none if there is no driver or it does not answer. Belongs to the last call of
    /// [`devices`](Driver::devices), or makes one.
    pub fn driver_version(&self) -> Option<String> {
        self.known().version
    }

    /// Architectures this build has kernels for, as nvcc names them: `75`, `90a`.
    pub fn architectures(&self) -> &'static [&'static str] {
        self.built.names()
    }

    /// Hash of the embedded kernels' sources, compiler and arguments; empty without any.
    pub fn kernels_key(&self) -> &'static str {
        foretoken_kernels_cuda::key()
    }

    /// Looks at the machine.
    fn look(&self) -> Survey {
        let api = api().map(|api| api as &dyn Calls);
        let mut survey = Survey::take(api, &Surroundings::here(), &self.built);
        if let Some(limit) = self.options.memory_limit {
            for info in &mut survey.devices {
                info.memory_total = info.memory_total.min(limit);
                info.memory_free = info.memory_free.min(limit);
            }
        }
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

    /// 0 where this build has no kernels for the device, or the installed NVIDIA driver is
    /// too old to load them.
    fn score(&self, info: &DeviceInfo) -> u64 {
        let runs = self.built.code(&info.arch).is_some() && !self.known().too_old;
        if runs { preference(info) } else { 0 }
    }

    /// Fails with `NoSuchDevice`, with `NoKernels` where this build has none for the
    /// device, or with the NVIDIA driver's words.
    fn open(&self, index: usize) -> Result<Arc<dyn Device>> {
        let mut survey = self.look();
        if let Some(fault) = refusal(index, &survey, &self.built) {
            return Err(fault.into());
        }
        survey.devices.retain(|info| info.index == index);
        let info = survey.devices.pop().ok_or_else(|| absent(index, &survey))?;
        Ok(Arc::new(open(info, self.built.clone(), &self.options)?))
    }
}

/// Why a device cannot be opened, as far as a look at the machine tells.
fn refusal(index: usize, survey: &Survey, built: &Built) -> Option<DeviceFault> {
    let Some(info) = survey.devices.iter().find(|info| info.index == index) else {
        return Some(absent(index, survey));
    };
    if built.code(&info.arch).is_none() {
        let (driver, arch, built) = ("cuda", info.arch.clone(), built.listed());
        return Some(DeviceFault::NoKernels { driver, arch, built });
    }
    let old = survey.problems.iter().find(|p| matches!(p, Problem::DriverTooOld { .. }));
    old.map(|problem| DeviceFault::Failed {
        driver: "cuda",
        call: format!("opening cuda:{index}"),
        message: problem.to_string(),
    })
}

/// The device is not there; what is there instead, or why nothing is.
fn absent(index: usize, survey: &Survey) -> DeviceFault {
    let devices = survey.devices.iter();
    let mut names: Vec<String> = devices.map(|info| format!("cuda:{}", info.index)).collect();
    if names.is_empty() {
        names.extend(survey.problems.first().map(ToString::to_string));
    }
    DeviceFault::NoSuchDevice { asked: format!("cuda:{index}"), available: names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::select_tests::{IMAGES, NAMES};
    use crate::survey::tests::{Fake, none, quiet};

    /// A driver that has looked at a machine already.
    fn driver(built: Built, survey: &Survey) -> CudaDriver {
        let options = CudaOptions::default();
        CudaDriver { built, options, last: Mutex::new(Some(survey.clone())) }
    }

    fn all() -> Built {
        Built::of(IMAGES, NAMES, None)
    }

    #[test]
    fn a_device_without_kernels_is_refused_and_never_chosen() {
        let survey = Survey::take(Ok(&Fake::with(1)), &quiet(), &none());
        let fault = refusal(0, &survey, &none()).unwrap();
        let expected =
            DeviceFault::NoKernels { driver: "cuda", arch: "sm_90".into(), built: "none".into() };
        assert_eq!(fault, expected);
        assert!(fault.to_string().contains("no cuda kernels for sm_90"), "{fault}");
        assert_eq!(driver(none(), &survey).score(&survey.devices[0]), 0);
    }

    #[test]
    fn a_device_that_is_not_there_is_refused_with_what_is() {
        let survey = Survey::take(Ok(&Fake::with(2)), &quiet(), &none());
        assert!(matches!(
            refusal(7, &survey, &none()).unwrap(),
            DeviceFault::NoSuchDevice { asked, available }
                if asked == "cuda:7" && available == "cuda:0, cuda:1"
        ));
        let missing = Err(Problem::LibraryMissing { tried: vec!["libcuda.so.1".into()] });
        let fault = absent(0, &Survey::take(missing, &quiet(), &none()));
        assert!(fault.to_string().contains("libcuda.so.1"), "{fault}");
    }

    #[test]
    fn a_driver_older_than_the_kernels_is_refused_and_never_chosen() {
        let new = Survey::take(Ok(&Fake::with(1)), &quiet(), &all());
        assert_eq!(refusal(0, &new, &all()), None);
        assert!(driver(all(), &new).score(&new.devices[0]) > 1000);
        let fake = Fake { version: Ok(12080), ..Fake::with(1) };
        let old = Survey::take(Ok(&fake), &quiet(), &all());
        let line = refusal(0, &old, &all()).unwrap().to_string();
        assert!(line.contains("CUDA 12.8, older than 13.0: update it"), "{line}");
        assert_eq!(driver(all(), &old).score(&old.devices[0]), 0);
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
