//! What a device says of itself, as plain data, and how good that is.

use foretoken::device::DeviceInfo;

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
    /// Most shared memory of a block, in bytes.
    pub(crate) shared_bytes: u32,
    /// Second-level cache, in bytes.
    pub(crate) l2_bytes: u32,
    /// Can launch a grid whose blocks wait for each other.
    pub(crate) cooperative_launch: bool,
}

impl Facts {
    /// As the engine wants it.
    pub(crate) fn info(&self, index: usize, memory_free: u64) -> DeviceInfo {
        let flags =
            [(self.integrated, INTEGRATED), (self.cooperative_launch, "cooperative_launch")];
        let sizes = [
            format!("shared_{}k", self.shared_bytes >> 10),
            format!("l2_{}m", self.l2_bytes >> 20),
        ];
        let flags = flags.iter().filter(|f| f.0).map(|f| f.1.to_owned());
        DeviceInfo {
            driver: "cuda",
            index,
            name: self.name.clone(),
            arch: format!("sm_{}{}", self.major, self.minor),
            units: self.units,
            warp_width: self.warp_width,
            memory_total: self.memory_total,
            memory_free,
            prefill_chunk: if self.major == 9 { HOPPER_CHUNK } else { 512 },
            features: flags.chain(sizes).collect(),
        }
    }
}

/// Prompts on Hopper are multiplied as dense matrices, once each weight is decoded
/// (`ops/linear/dense.rs`): of so many rows that this is a small part of the time.
const HOPPER_CHUNK: usize = 2048;

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
            shared_bytes: 227 << 10,
            l2_bytes: 60 << 20,
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
        assert_eq!((info.prefill_chunk, info.prefill_chunk % 64), (2048, 0));
        assert_eq!(info.features, ["cooperative_launch", "shared_227k", "l2_60m"]);
        let jetson = Facts { major: 12, minor: 1, integrated: true, ..h200() }.info(0, 0);
        assert_eq!((jetson.arch.as_str(), jetson.prefill_chunk), ("sm_121", 512));
        assert_eq!(jetson.features[..2], ["integrated", "cooperative_launch"]);
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
}
