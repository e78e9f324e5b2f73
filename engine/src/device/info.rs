//! What a device says of itself, and how a user names one.

use std::fmt;
use std::str::FromStr;

use super::DeviceFault;

/// Properties of one device, read from the driver, never assumed.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceInfo {
    /// Driver name, for example `cpu`.
    pub driver: &'static str,
    /// Index within the driver.
    pub index: usize,
    /// Marketing name.
    pub name: String,
    /// Architecture, for example `x86_64`, `sm_86`, `gfx1151`.
    pub arch: String,
    /// Parallel units: threads, streaming multiprocessors or compute units.
    pub units: u32,
    /// Lanes that run in lockstep (1 on a CPU).
    pub warp_width: u32,
    /// Bytes of memory in all.
    pub memory_total: u64,
    /// Bytes of memory free when asked.
    pub memory_free: u64,
    /// Tokens of a prefill chunk that suit it, a multiple of 64: where more would not make a
    /// prompt notably faster. A wish, not a limit.
    pub prefill_chunk: usize,
    /// Instruction-set features in use, for example `avx512_vnni`.
    pub features: Vec<String>,
}

/// A device by driver and index: `cpu`, `cuda:0`, or `auto` for the best there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceSpec {
    /// The device with the highest score.
    Auto,
    /// A certain device.
    Named {
        /// Driver name.
        driver: String,
        /// Index within the driver.
        index: usize,
    },
}

impl FromStr for DeviceSpec {
    type Err = DeviceFault;

    fn from_str(s: &str) -> Result<Self, DeviceFault> {
        let bad = || DeviceFault::NoSuchDevice {
            asked: s.to_owned(),
            available: "auto, or NAME or NAME:INDEX as `foretoken devices` prints them".to_owned(),
        };
        if s == "auto" {
            return Ok(Self::Auto);
        }
        let (driver, index) = match s.split_once(':') {
            Some((d, i)) => (d, i.parse().map_err(|_| bad())?),
            None => (s, 0),
        };
        if driver.is_empty() || !driver.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            return Err(bad());
        }
        Ok(Self::Named { driver: driver.to_owned(), index })
    }
}

impl fmt::Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Named { driver, index } => write!(f, "{driver}:{index}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_parse_and_nonsense_is_refused() {
        assert_eq!("auto".parse(), Ok(DeviceSpec::Auto));
        assert_eq!("cuda:1".parse(), Ok(DeviceSpec::Named { driver: "cuda".into(), index: 1 }));
        assert_eq!("cpu".parse::<DeviceSpec>().unwrap().to_string(), "cpu:0");
        for bad in ["", ":0", "cuda:", "cuda:x", "cuda:-1", "a b"] {
            assert!(bad.parse::<DeviceSpec>().is_err(), "{bad:?}");
        }
    }
}
