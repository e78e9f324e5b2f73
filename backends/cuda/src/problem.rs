//! What can stand between this driver and a GPU, in one line each, with the remedy.

use crate::calls::Fault;

/// The oldest driver that loads code of the toolkit the kernels are built with.
pub(crate) const OLDEST_DRIVER: i32 = 13000;

/// A reason why there are no, or fewer, devices.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Problem {
    /// No file of the names looked for.
    #[error(
        "the NVIDIA driver's library was not found (tried {}): install the NVIDIA driver, or \
         start the container with its GPUs", tried.join(", ")
    )]
    LibraryMissing {
        /// File names.
        tried: Vec<String>,
    },
    /// The library is too old, or no driver library at all.
    #[error("the NVIDIA driver's library has no function {function}: update the NVIDIA driver")]
    FunctionMissing {
        /// The first that was missed.
        function: &'static str,
    },
    /// The kernels will not load.
    #[error(
        "the NVIDIA driver speaks CUDA {}, older than {}: update it", version(*found),
        version(OLDEST_DRIVER)
    )]
    DriverTooOld {
        /// As the driver numbers it.
        found: i32,
    },
    /// A call about no device in particular failed.
    #[error("{} failed: {}", fault.call, fault.words)]
    Call {
        /// The call and the driver's words.
        fault: Fault,
    },
    /// A device that could not be asked is left out of the list.
    #[error("cuda:{index} is left out: {} failed: {}", fault.call, fault.words)]
    Device {
        /// Which.
        index: usize,
        /// The call and the driver's words.
        fault: Fault,
    },
    /// The device is listed with 0 bytes free.
    #[error("cuda:{index}: free memory is unknown: {} failed: {}", fault.call, fault.words)]
    FreeMemory {
        /// Which.
        index: usize,
        /// The call and the driver's words.
        fault: Fault,
    },
    /// The driver works, and knows of no GPU.
    #[error("the NVIDIA driver found no device")]
    NoDevice,
    /// A device that this build has no code for.
    #[error(
        "cuda:{index} ({name}, {arch}) cannot be used: this build has no kernels for it \
         (it has: {built})"
    )]
    NoKernels {
        /// Which.
        index: usize,
        /// Marketing name.
        name: String,
        /// `sm_90`.
        arch: String,
        /// What this build has.
        built: String,
    },
    /// A variable that hides devices.
    #[error("{variable}={value} is set and may hide devices")]
    Hidden {
        /// Its name.
        variable: &'static str,
        /// Its value.
        value: String,
    },
    /// The kernel's side of the driver is absent.
    #[error(
        "{node} is missing: the nvidia kernel module is not loaded, or the container was \
         started without GPUs"
    )]
    NodeMissing {
        /// Path of the device node.
        node: &'static str,
    },
    /// It is there, but not for this user.
    #[error("{node} may not be opened by this user: see its owner and group")]
    NodeDenied {
        /// Path of the device node.
        node: &'static str,
    },
    /// Half an installation: typical of a container.
    #[error(
        "{node} is there, so a driver is loaded, but its libraries are out of sight of this \
         process: see LD_LIBRARY_PATH or the container's settings"
    )]
    NodeWithoutLibrary {
        /// Path of the device node.
        node: &'static str,
    },
}

/// 13000 is `13.0`.
pub(crate) fn version(number: i32) -> String {
    format!("{}.{}", number / 1000, number % 1000 / 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_read_well() {
        assert_eq!((version(13000), version(12080)), ("13.0".into(), "12.8".into()));
    }

    #[test]
    fn each_problem_is_one_line() {
        let fault = Fault { call: "cuInit", status: 999, words: "CUDA_ERROR_UNKNOWN".into() };
        let node = "/dev/nvidiactl";
        let problems = [
            Problem::LibraryMissing { tried: vec!["libcuda.so".into(), "libcuda.so.1".into()] },
            Problem::FunctionMissing { function: "cuInit" },
            Problem::DriverTooOld { found: 12040 },
            Problem::Call { fault: fault.clone() },
            Problem::Device { index: 1, fault: fault.clone() },
            Problem::FreeMemory { index: 1, fault },
            Problem::NoDevice,
            Problem::NoKernels {
                index: 0,
                name: "NVIDIA H200".into(),
                arch: "sm_90".into(),
                built: "75, 86".into(),
            },
            Problem::Hidden { variable: "CUDA_VISIBLE_DEVICES", value: "-1".into() },
            Problem::NodeMissing { node },
            Problem::NodeDenied { node },
            Problem::NodeWithoutLibrary { node },
        ];
        let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
        for line in &lines {
            assert!(!line.contains('\n') && !line.contains("  "), "{line:?}");
        }
        assert!(lines[0].contains("libcuda.so, libcuda.so.1"), "{}", lines[0]);
        assert!(lines[2].contains("CUDA 12.4, older than 13.0"), "{}", lines[2]);
        assert_eq!(lines[3], "cuInit failed: CUDA_ERROR_UNKNOWN");
        assert!(lines[7].contains("(NVIDIA H200, sm_90)") && lines[7].contains("it has: 75, 86"));
    }
}
