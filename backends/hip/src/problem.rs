//! What can stand between this driver and a GPU, in one line each, with the remedy.

use crate::calls::Fault;

/// A reason why there are no, or fewer, devices.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Problem {
    /// No file of the names looked for.
    #[error(
        "the HIP runtime was not found (tried {}): install ROCm 6 or newer, or set ROCM_PATH",
        tried.join(", ")
    )]
    LibraryMissing {
        /// File names.
        tried: Vec<String>,
    },
    /// The file is there, and the system's loader refuses it.
    #[error("{file} does not load: {words}")]
    LibraryBroken {
        /// The library.
        file: String,
        /// The loader's words.
        words: String,
    },
    /// The library is too old, or no HIP runtime at all.
    #[error("{file} has no function {function}: install ROCm 6 or newer")]
    FunctionMissing {
        /// The first that was missed.
        function: &'static str,
        /// The library.
        file: String,
    },
    /// A call about no device in particular failed.
    #[error("{} failed: {}", fault.call, fault.words)]
    Call {
        /// The call and the runtime's words.
        fault: Fault,
    },
    /// A device that could not be asked is left out of the list.
    #[error("hip:{index} is left out: {} failed: {}", fault.call, fault.words)]
    Device {
        /// Which.
        index: usize,
        /// The call and the runtime's words.
        fault: Fault,
    },
    /// The device is listed with 0 bytes free.
    #[error("hip:{index}: free memory is unknown: {} failed: {}", fault.call, fault.words)]
    FreeMemory {
        /// Which.
        index: usize,
        /// The call and the runtime's words.
        fault: Fault,
    },
    /// The runtime works, and knows of no GPU.
    #[error("the HIP runtime found no device")]
    NoDevice,
    /// A device that this build has no code for.
    #[error(
        "hip:{index} ({name}, {arch}) cannot be used: this build has no kernels for it \
         (it has: {})",
        listed(embedded)
    )]
    NoKernels {
        /// Which.
        index: usize,
        /// Marketing name.
        name: String,
        /// `gfx1151`.
        arch: String,
        /// Architectures of this build.
        embedded: &'static [&'static str],
    },
    /// A variable that hides devices.
    #[error("{variable}={value} is set and may hide devices")]
    Hidden {
        /// Its name.
        variable: &'static str,
        /// Its value.
        value: String,
    },
    /// The runtime passes one architecture off as another.
    #[error(
        "HSA_OVERRIDE_GFX_VERSION={value} is in force: the architectures shown are the \
         override's, not the devices' own"
    )]
    Overridden {
        /// Its value.
        value: String,
    },
    /// The kernel's side of the driver is absent.
    #[error(
        "{node} is missing: the amdgpu kernel module is not loaded, or the container was \
         started without it"
    )]
    NodeMissing {
        /// Path of the device node.
        node: &'static str,
    },
    /// It is there, but not for this user.
    #[error(
        "{node} may not be opened by this user: add the user to the group that owns it (render)"
    )]
    NodeDenied {
        /// Path of the device node.
        node: &'static str,
    },
}

/// 60443484 is `6.4.43484`.
pub(crate) fn version(number: i32) -> String {
    format!("{}.{}.{}", number / 10_000_000, number / 100_000 % 100, number % 100_000)
}

/// A list in words; `none` if it is empty.
pub(crate) fn listed(items: &[&str]) -> String {
    if items.is_empty() { "none".to_owned() } else { items.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_lists_read_well() {
        let versions = (version(60_443_484), version(70_051_831));
        assert_eq!(versions, ("6.4.43484".into(), "7.0.51831".into()));
        assert_eq!((listed(&[]), listed(&["gfx1100"])), ("none".into(), "gfx1100".into()));
    }

    #[test]
    fn each_problem_is_one_line() {
        let fault = Fault { call: "hipInit", status: 3, words: "hipErrorNotInitialized".into() };
        let node = "/dev/kfd";
        let problems = [
            Problem::LibraryMissing { tried: vec!["libamdhip64.so.7".into()] },
            Problem::LibraryBroken { file: "libamdhip64.so.7".into(), words: "bad".into() },
            Problem::FunctionMissing { function: "hipInit", file: "libamdhip64.so.5".into() },
            Problem::Call { fault: fault.clone() },
            Problem::Device { index: 1, fault: fault.clone() },
            Problem::FreeMemory { index: 1, fault },
            Problem::NoDevice,
            Problem::NoKernels {
                index: 0,
                name: "Radeon 8060S Graphics".into(),
                arch: "gfx1151".into(),
                embedded: &["gfx1100"],
            },
            Problem::Hidden { variable: "HIP_VISIBLE_DEVICES", value: "-1".into() },
            Problem::Overridden { value: "11.0.0".into() },
            Problem::NodeMissing { node },
            Problem::NodeDenied { node },
        ];
        let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
        for line in &lines {
            assert!(!line.contains('\n') && !line.contains("  "), "{line:?}");
        }
        assert!(lines[0].contains("libamdhip64.so.7"), "{}", lines[0]);
        assert_eq!(lines[3], "hipInit failed: hipErrorNotInitialized");
        assert!(lines[7].contains("Graphics, gfx1151)") && lines[7].contains("it has: gfx1100"));
        assert!(lines[9].starts_with("HSA_OVERRIDE_GFX_VERSION=11.0.0 is in force"));
    }
}
