//! What a device says of itself, as plain data, and what follows from it.

use foretoken::device::DeviceInfo;

/// Architectures whose code is embedded in this build (`gfx1100`). There are no HIP
/// kernels yet.
pub(crate) const EMBEDDED: &[&str] = &[];

/// Properties of one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Marketing name.
    pub(crate) name: String,
    /// Architecture and its modes: `gfx1151`, `gfx90a:sramecc+:xnack-`.
    pub(crate) isa: String,
    /// Compute units.
    pub(crate) units: u32,
    /// Lanes of a wave.
    pub(crate) warp_width: u32,
    /// Bytes of memory.
    pub(crate) memory_total: u64,
    /// Shares the host's memory.
    pub(crate) integrated: bool,
    /// Can launch a grid whose blocks wait for each other.
    pub(crate) cooperative_launch: bool,
}

impl Facts {
    /// As the engine wants it. Modes of the architecture that are on become features.
    pub(crate) fn info(&self, index: usize, memory_free: u64) -> DeviceInfo {
        let mut isa = self.isa.split(':');
        let arch = isa.next().unwrap_or_default().to_owned();
        let flags =
            [(self.integrated, INTEGRATED), (self.cooperative_launch, "cooperative_launch")];
        let flags = flags.into_iter().filter(|f| f.0).map(|f| f.1);
        let features = flags.chain(isa.filter_map(|mode| mode.strip_suffix('+')));
        DeviceInfo {
            driver: "hip",
            index,
            name: if self.name.is_empty() { arch.clone() } else { self.name.clone() },
            features: features.map(str::to_owned).collect(),
            arch,
            units: self.units,
            warp_width: self.warp_width,
            memory_total: self.memory_total,
            memory_free,
            prefill_chunk: 512,
        }
    }
}

/// Feature name of a device that shares the host's memory.
const INTEGRATED: &str = "integrated";

/// Integrated devices with fewer compute units do not beat the CPU beside them, which
/// reads the same memory. Strix Halo (gfx1151) has 32 or 40, the next smaller one 16.
const SMALLEST_INTEGRATED: u32 = 24;

/// How good a device is, on a scale shared with the driver for NVIDIA GPUs (where a
/// multiprocessor, which has twice the lanes of a compute unit, counts 20): more units
/// win, then more memory; an integrated device lives on the host's memory bandwidth
/// and counts half, or no more than a CPU if it is small.
pub(crate) fn preference(info: &DeviceInfo) -> u64 {
    let memory_gib = (info.memory_total >> 30).min(256);
    let score = u64::from(info.units) * 10 + memory_gib;
    let integrated = info.features.iter().any(|f| f == INTEGRATED);
    match (integrated, info.units < SMALLEST_INTEGRATED) {
        (true, true) => 1,
        (true, false) => (score / 2).max(1),
        (false, _) => score.max(1),
    }
}

/// Whether code for one of `embedded` runs on `arch`: code objects are made for one
/// architecture and run on no other.
pub(crate) fn covered(arch: &str, embedded: &[&str]) -> bool {
    embedded.contains(&arch)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn strix_halo() -> Facts {
        Facts {
            name: "Radeon 8060S Graphics".into(),
            isa: "gfx1151".into(),
            units: 40,
            warp_width: 32,
            memory_total: 96 << 30,
            integrated: true,
            cooperative_launch: true,
        }
    }

    fn scored(units: u32, gib: u64, integrated: bool) -> u64 {
        let facts = Facts { units, memory_total: gib << 30, integrated, ..strix_halo() };
        preference(&facts.info(0, 0))
    }

    #[test]
    fn facts_become_an_info() {
        let info = strix_halo().info(1, 9);
        assert_eq!((info.driver, info.index, info.arch.as_str()), ("hip", 1, "gfx1151"));
        assert_eq!((info.units, info.warp_width, info.memory_free), (40, 32, 9));
        assert_eq!(info.features, ["integrated", "cooperative_launch"]);
        let isa = "gfx90a:sramecc+:xnack-".into();
        let info = Facts { isa, integrated: false, name: String::new(), ..strix_halo() }.info(0, 0);
        assert_eq!((info.arch.as_str(), info.name.as_str()), ("gfx90a", "gfx90a"));
        assert_eq!(info.features, ["cooperative_launch", "sramecc"]);
    }

    #[test]
    fn discrete_beats_integrated_and_small_integrated_is_no_better_than_a_cpu() {
        let (xtx, gre, halo) = (scored(96, 24, false), scored(80, 16, false), scored(40, 96, true));
        assert!(xtx > gre && gre > halo && halo > 1);
        assert!(scored(32, 8, false) > halo, "a small discrete card has memory of its own");
        assert!(scored(32, 64, true) > 1, "the smaller Strix Halo is wanted too");
        assert!(scored(60, 16, false) > scored(60, 12, false));
        for small in [1, 2, 12, 16] {
            assert_eq!(scored(small, 96, true), 1);
        }
        assert_eq!(scored(0, 0, false), 1);
        assert!(scored(u32::MAX, u64::MAX >> 30, false) > xtx);
    }

    #[test]
    fn code_runs_on_its_own_architecture_only() {
        assert!(covered("gfx1151", &["gfx1100", "gfx1151"]));
        assert!(!covered("gfx1101", &["gfx1100"]) && !covered("gfx1151", &[]));
    }
}
