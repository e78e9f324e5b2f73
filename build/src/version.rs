//! Versions, and how compilers tell theirs.

use std::fmt;

/// `major.minor.patch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// First number.
    pub major: u32,
    /// Second.
    pub minor: u32,
    /// Third, 0 where none is told.
    pub patch: u32,
}

impl Version {
    /// From its numbers.
    pub const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self { major, minor, patch }
    }

    /// Reads `13.0.88`, `13.0`, or the same with anything after it; none if the text
    /// does not begin with two numbers and a dot between them.
    pub fn leading(text: &str) -> Option<Self> {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let mut numbers = text.get(..end)?.split('.').map_while(|n| n.parse().ok());
        let (major, minor) = (numbers.next()?, numbers.next()?);
        Some(Self { major, minor, patch: numbers.next().unwrap_or(0) })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// From `nvcc --version`: `... release 13.0, V13.0.88`.
pub fn of_nvcc(text: &str) -> Option<Version> {
    let (_, rest) = text.split_once("release ")?;
    let full = rest.split_once(", V").and_then(|(_, full)| Version::leading(full));
    full.or_else(|| Version::leading(rest))
}

/// From `clang --version`: `Debian clang version 19.1.7 (...)`.
pub fn of_clang(text: &str) -> Option<Version> {
    after(text, "clang version ")
}

/// From `hipcc --version`, whose first line is `HIP version: 6.4.43484-...`.
pub fn of_hipcc(text: &str) -> Option<Version> {
    after(text, "HIP version: ")
}

fn after(text: &str, words: &str) -> Option<Version> {
    text.split_once(words).and_then(|(_, rest)| Version::leading(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NVCC: &str = "nvcc: NVIDIA (R) Cuda compiler driver\n\
        Copyright (c) 2005-2025 NVIDIA Corporation\n\
        Built on Wed_Aug_20_01:58:59_PM_PDT_2025\n\
        Cuda compilation tools, release 13.0, V13.0.88\n\
        Build cuda_13.0.r13.0/compiler.36424714_0\n";
    const CLANG: &str = "Debian clang version 19.1.7 (3~deb12u1)\nTarget: x86_64-pc-linux-gnu\n";
    const HIPCC: &str = "HIP version: 6.4.43484-123eb5128\n\
        AMD clang version 19.0.0git (https://github.com/RadeonOpenCompute/llvm-project)\n";

    #[test]
    fn compilers_tell_their_versions() {
        assert_eq!(of_nvcc(NVCC), Some(Version::new(13, 0, 88)));
        assert_eq!(of_nvcc("release 12.8\n"), Some(Version::new(12, 8, 0)));
        assert_eq!(of_clang(CLANG), Some(Version::new(19, 1, 7)));
        assert_eq!(of_hipcc(HIPCC), Some(Version::new(6, 4, 43484)));
        assert_eq!(of_clang(HIPCC), Some(Version::new(19, 0, 0)));
    }

    #[test]
    fn other_texts_tell_none() {
        for text in ["", "bash: nvcc: command not found", CLANG, "release ", "release x, Vy"] {
            assert_eq!(of_nvcc(text), None, "{text:?}");
        }
        assert_eq!(of_clang(NVCC), None);
        assert_eq!(of_hipcc("HIP version: \n"), None);
        assert_eq!(Version::leading("99999999999.1"), None);
        assert_eq!(Version::leading("7"), None);
    }

    #[test]
    fn versions_are_ordered_by_number() {
        assert!(Version::new(9, 9, 99) < Version::new(13, 0, 0));
        assert!(Version::new(13, 0, 88) < Version::new(13, 1, 0));
        assert_eq!(Version::new(13, 0, 88).to_string(), "13.0.88");
    }
}
