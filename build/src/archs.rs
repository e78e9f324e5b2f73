//! Which architectures to compile for.

use std::fmt;

use crate::BuildFault;

/// The variable that limits the CUDA architectures.
pub const CUDA_VARIABLE: &str = "FORETOKEN_CUDA_ARCHS";

/// The variable that limits the HIP architectures.
pub const HIP_VARIABLE: &str = "FORETOKEN_HIP_ARCHS";

/// Compiled for unless [`CUDA_VARIABLE`] says otherwise.
const CUDA_DEFAULT: &str = "75,80,86,89,90a,100a,110a,120a,121a";

/// Compiled for unless [`HIP_VARIABLE`] says otherwise.
const HIP_DEFAULT: &str = "gfx1100,gfx1151";

/// Real architectures of CUDA 13.0 (`nvcc --list-gpu-code`).
const CUDA_KNOWN: &[u32] = &[75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121];

/// Wave32 architectures with matrix instructions: RDNA 3, 3.5 and 4.
const HIP_KNOWN: &[&str] = &[
    "gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153",
    "gfx1200", "gfx1201",
];

/// A CUDA architecture: `86`, or `90a` with the instructions of that one only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CudaArch {
    /// Ten times the major plus the minor compute capability.
    pub number: u32,
    /// Whether architecture-specific instructions are used.
    pub specific: bool,
}

impl CudaArch {
    /// nvcc's arguments for machine code of this architecture.
    pub fn machine_code(self) -> String {
        format!("-gencode=arch=compute_{self},code=sm_{self}")
    }

    /// nvcc's arguments for PTX, which newer devices compile for themselves.
    pub fn portable_code(self) -> String {
        format!("-gencode=arch=compute_{self},code=compute_{self}")
    }

    fn parse(item: &str) -> Option<Self> {
        let (digits, specific) = match item.strip_suffix('a') {
            Some(digits) => (digits, true),
            None => (item, false),
        };
        let number = digits.parse().ok().filter(|n| CUDA_KNOWN.contains(n))?;
        // There are no specific targets before Hopper.
        (!specific || number >= 90).then_some(Self { number, specific })
    }
}

impl fmt::Display for CudaArch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.number, if self.specific { "a" } else { "" })
    }
}

/// The CUDA architectures to compile for, each once, in order. `setting` is the value
/// of [`CUDA_VARIABLE`]; without one it is the list of all that are shipped.
///
/// # Errors
/// An entry that is none, or an empty list.
pub fn cuda(setting: Option<&str>) -> Result<Vec<CudaArch>, BuildFault> {
    list(CUDA_VARIABLE, setting.unwrap_or(CUDA_DEFAULT), "86,90a", CudaArch::parse)
}

/// The HIP architectures to compile for, each once, in order. `setting` is the value of
/// [`HIP_VARIABLE`].
///
/// # Errors
/// An entry that is none, or an empty list.
pub fn hip(setting: Option<&str>) -> Result<Vec<&'static str>, BuildFault> {
    let known = |item: &str| HIP_KNOWN.iter().copied().find(|known| *known == item);
    list(HIP_VARIABLE, setting.unwrap_or(HIP_DEFAULT), "gfx1100,gfx1151", known)
}

fn list<T: PartialEq>(
    variable: &'static str,
    setting: &str,
    example: &'static str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Vec<T>, BuildFault> {
    let mut archs = Vec::new();
    for item in setting.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        let bad = || BuildFault::BadArch { variable, item: item.to_owned(), example };
        let arch = parse(item).ok_or_else(bad)?;
        if !archs.contains(&arch) {
            archs.push(arch);
        }
    }
    if archs.is_empty() {
        return Err(BuildFault::NoArch { variable, example });
    }
    Ok(archs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(setting: Option<&str>) -> Vec<String> {
        cuda(setting).unwrap().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn lists_are_read_in_order_and_once() {
        assert_eq!(shown(Some("86,90a")), ["86", "90a"]);
        assert_eq!(shown(Some(" 121a, 75 ,,121a,90,90a")), ["121a", "75", "90", "90a"]);
        assert_eq!(shown(None).join(","), CUDA_DEFAULT);
        assert_eq!(hip(Some("gfx1151,gfx1151")).unwrap(), ["gfx1151"]);
        assert_eq!(hip(None).unwrap(), ["gfx1100", "gfx1151"]);
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        for bad in ["sm_86", "85", "86a", "90b", "9", "-86", "86 90", "a", "１２０"] {
            let fault = cuda(Some(bad)).unwrap_err().to_string();
            assert!(fault.contains(&format!("'{bad}'")) && fault.contains("86,90a"), "{fault}");
        }
        for bad in ["1100", "gfx90a", "gfx906", "gfx1151:xnack-", "GFX1100"] {
            assert!(matches!(hip(Some(bad)), Err(BuildFault::BadArch { .. })), "{bad}");
        }
        for empty in ["", " ", ",,"] {
            let fault = cuda(Some(empty)).unwrap_err();
            assert!(matches!(fault, BuildFault::NoArch { .. }) && hip(Some(empty)).is_err());
        }
    }

    #[test]
    fn arguments_name_both_halves() {
        let arch = CudaArch { number: 90, specific: true };
        assert_eq!(arch.machine_code(), "-gencode=arch=compute_90a,code=sm_90a");
        let arch = CudaArch { number: 75, specific: false };
        assert_eq!(arch.portable_code(), "-gencode=arch=compute_75,code=compute_75");
    }
}
