//! What a device says of itself, as plain data, and what follows from it.

use foretoken::device::DeviceInfo;

/// Architectures whose code is embedded in this build, in nvcc's notation (`86`,
/// `90a`). There are no CUDA kernels yet.
pub(crate) const EMBEDDED: &[&str] = &[];

/// Properties of one device, read one attribute at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Marketing name.
    pub(crate) name: String,
    /// Compute capability, major.
    pub(crate) major: u32,
    /// Compute capability, minor.
    pub(crate) minor: u32,
    /// Streaming multiprocessors.
    pub(crate) units: u32,
    /// Lanes of a warp.
    pub(crate) warp_width: u32,
    /// Bytes of memory.
    pub(crate) memory_total: u64,
    /// Shares the host's memory.
    pub(crate) integrated: bool,
    /// Can launch a grid whose blocks wait for each other.
    pub(crate) cooperative_launch: bool,
}

impl Facts {
    /// As the engine wants it.
    pub(crate) fn info(&self, index: usize, memory_free: u64) -> DeviceInfo {
        let flags =
            [(self.integrated, INTEGRATED), (self.cooperative_launch, "cooperative_launch")];
        DeviceInfo {
            driver: "cuda",
            index,
            name: self.name.clone(),
            arch: format!("sm_{}{}", self.major, self.minor),
            units: self.units,
            warp_width: self.warp_width,
            memory_total: self.memory_total,
            memory_free,
            features: flags.iter().filter(|f| f.0).map(|f| f.1.to_owned()).collect(),
        }
    }
}

/// Feature name of a device that shares the host's memory.
const INTEGRATED: &str = "integrated";

/// How good a device is, on a scale shared with the driver for AMD GPUs (where a
/// compute unit, which has half the lanes of a multiprocessor, counts 10): more units
/// win, then more memory; an integrated device lives on the host's memory bandwidth
/// and counts half.
pub(crate) fn preference(info: &DeviceInfo) -> u64 {
    let memory_gib = (info.memory_total >> 30).min(256);
    let score = u64::from(info.units) * 20 + memory_gib;
    let integrated = info.features.iter().any(|f| f == INTEGRATED);
    (if integrated { score / 2 } else { score }).max(1)
}

/// Whether code for one of `embedded` runs on `arch` (`sm_86`). Code for a plain
/// target runs on the same major version with an equal or higher minor one; code for
/// an architecture-specific target (`90a`) runs on that one only. Source: CUDA C++
/// Programming Guide, binary compatibility.
pub(crate) fn covered(arch: &str, embedded: &[&str]) -> bool {
    let Some(device) = arch.strip_prefix("sm_").and_then(capability) else { return false };
    embedded.iter().any(|target| match target.strip_suffix('a') {
        Some(exact) => capability(exact) == Some(device),
        None => {
            capability(target).is_some_and(|(major, minor)| major == device.0 && minor <= device.1)
        }
    })
}

/// `86` is (8, 6), `121` is (12, 1).
fn capability(digits: &str) -> Option<(u32, u32)> {
    let number: u32 = digits.parse().ok()?;
    Some((number / 10, number % 10))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn h200() -> Facts {
        Facts {
            name: "NVIDIA H200".into(),
            major: 9,
            minor: 0,
            units: 132,
            warp_width: 32,
            memory_total: 140 << 30,
            integrated: false,
            cooperative_launch: true,
        }
    }

    fn scored(units: u32, gib: u64, integrated: bool) -> u64 {
        let facts = Facts { units, memory_total: gib << 30, integrated, ..h200() };
        preference(&facts.info(0, 0))
    }

    #[test]
    fn facts_become_an_info() {
        let info = h200().info(3, 7);
        assert_eq!((info.driver, info.index, info.arch.as_str()), ("cuda", 3, "sm_90"));
        assert_eq!((info.units, info.warp_width, info.memory_free), (132, 32, 7));
        assert_eq!(info.features, ["cooperative_launch"]);
        let jetson = Facts { major: 12, minor: 1, integrated: true, ..h200() }.info(0, 0);
        assert_eq!(jetson.arch, "sm_121");
        assert_eq!(jetson.features, ["integrated", "cooperative_launch"]);
    }

    #[test]
    fn more_units_win_then_memory_and_sharing_memory_costs() {
        assert!(scored(132, 140, false) > scored(82, 24, false));
        assert!(scored(82, 24, false) > scored(82, 12, false));
        assert!(scored(46, 8, false) > scored(48, 119, true));
        // Anything beats a CPU, and no lie about sizes overflows.
        assert!(scored(16, 8, true) > 1);
        assert_eq!(scored(0, 0, true), 1);
        assert!(scored(u32::MAX, u64::MAX >> 30, false) > scored(132, 140, false));
    }

    #[test]
    fn code_runs_on_its_major_version_from_its_minor_version_on() {
        assert!(covered("sm_86", &["75", "80"]));
        assert!(covered("sm_89", &["86"]));
        assert!(!covered("sm_80", &["86"]));
        assert!(!covered("sm_90", &["75", "80", "86", "89"]));
        assert!(covered("sm_90", &["90a"]));
        assert!(!covered("sm_121", &["120a"]));
        assert!(covered("sm_121", &["121a"]));
        assert!(!covered("sm_90", &[]) && !covered("gfx90", &["90"]) && !covered("sm_90", &["x"]));
    }
}
