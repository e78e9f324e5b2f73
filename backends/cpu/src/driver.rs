//! Enumerating and opening the one CPU device.

use std::sync::Arc;

use foretoken::Result;
use foretoken::device::{Device, DeviceFault, DeviceInfo, Driver};

use crate::device::{Core, CpuDevice};
use crate::host;
use crate::memory::Budget;
use crate::pool::{Pool, default_threads, placement};
use crate::simd::Isa;

/// How to run on the CPU.
#[derive(Clone, Debug, Default)]
pub struct CpuOptions {
    /// Worker threads, the launching one counted; by default one for each physical
    /// core this process may use.
    pub threads: Option<usize>,
    /// Instruction set; by default the best there is.
    pub isa: Option<Isa>,
    /// Most bytes a device may reserve; by default all memory of the machine.
    pub memory_limit: Option<u64>,
}

/// The CPU driver. Each open device has worker threads of its own.
#[derive(Clone, Debug, Default)]
pub struct CpuDriver {
    options: CpuOptions,
}

impl CpuDriver {
    /// Most threads a device may be given.
    pub const MAX_THREADS: usize = 1024;

    /// A driver with these options; they are checked when a device is opened.
    pub fn new(options: CpuOptions) -> Self {
        Self { options }
    }

    fn info(&self) -> DeviceInfo {
        let threads = self.options.threads.unwrap_or_else(default_threads);
        let total = host::memory_total();
        let limit = self.options.memory_limit.or(total).unwrap_or(u64::MAX);
        DeviceInfo {
            driver: self.name(),
            index: 0,
            name: host::cpu_name(),
            arch: std::env::consts::ARCH.to_owned(),
            units: u32::try_from(threads).unwrap_or(u32::MAX),
            warp_width: 1,
            memory_total: total.unwrap_or(limit),
            memory_free: host::memory_available().map_or(limit, |free| free.min(limit)),
            prefill_chunk: 512,
            features: vec![self.options.isa.unwrap_or_else(Isa::detect).name().to_owned()],
        }
    }
}

impl Driver for CpuDriver {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        Ok(vec![self.info()])
    }

    fn score(&self, _info: &DeviceInfo) -> u64 {
        1
    }

    fn open(&self, index: usize) -> Result<Arc<dyn Device>> {
        if index != 0 {
            let (asked, available) = (format!("cpu:{index}"), "cpu:0".to_owned());
            return Err(DeviceFault::NoSuchDevice { asked, available }.into());
        }
        let refuse = |call: &str, message: String| DeviceFault::Failed {
            driver: "cpu",
            call: call.to_owned(),
            message,
        };
        let isa = self.options.isa.unwrap_or_else(Isa::detect);
        if !isa.is_available() {
            let message = format!("this machine has no {}", isa.name());
            return Err(refuse("choosing the instruction set", message).into());
        }
        let threads = self.options.threads.unwrap_or_else(default_threads);
        if threads == 0 || threads > Self::MAX_THREADS {
            let message = format!("{threads} is not in 1..={}", Self::MAX_THREADS);
            return Err(refuse("choosing the number of threads", message).into());
        }
        let mut info = self.info();
        let limit = self.options.memory_limit.unwrap_or(info.memory_total);
        let budget = Budget::new(format!("cpu:{index}"), limit);
        let pool = Pool::new(threads, &placement(threads));
        info.units = u32::try_from(pool.count()).unwrap_or(u32::MAX);
        Ok(Arc::new(CpuDevice::new(Core::new(info, isa, budget, pool))))
    }
}
