//! Bytes that may be reserved, and who holds them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use foretoken::device::DeviceFault;

use crate::host;

/// What one device may reserve.
pub(crate) struct Budget {
    device: String,
    limit: u64,
    used: AtomicU64,
}

impl Budget {
    /// At most `limit` bytes at a time, for the device of this name.
    pub(crate) fn new(device: String, limit: u64) -> Arc<Self> {
        Arc::new(Self { device, limit, used: AtomicU64::new(0) })
    }

    /// Bytes that could be reserved now: what is left of the limit, and no more
    /// than what the system has available.
    pub(crate) fn free(&self) -> u64 {
        let left = self.limit.saturating_sub(self.used.load(Ordering::Relaxed));
        host::memory_available().map_or(left, |available| left.min(available))
    }

    /// Reserves bytes for `what`, until the lease is dropped.
    pub(crate) fn lease(self: &Arc<Self>, bytes: u64, what: &str) -> Result<Lease, DeviceFault> {
        let add = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= self.limit);
        let took = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        let lease = took.map(|_| Lease { budget: Arc::clone(self), bytes });
        // Small requests are not worth asking the system about.
        const ASK_FROM: u64 = 16 << 20;
        match lease {
            Ok(lease) if bytes < ASK_FROM => Ok(lease),
            Ok(lease) if host::memory_available().is_none_or(|free| bytes <= free) => Ok(lease),
            _ => Err(self.refusal(bytes, what)),
        }
    }

    /// The error for a request that does not fit.
    pub(crate) fn refusal(&self, asked: u64, what: &str) -> DeviceFault {
        let (device, what) = (self.device.clone(), what.to_owned());
        DeviceFault::OutOfMemory { device, what, asked, free: self.free() }
    }
}

/// Reserved bytes; returned when dropped.
pub(crate) struct Lease {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_come_back_and_the_limit_holds() {
        let budget = Budget::new("cpu:0".into(), 100);
        let first = budget.lease(60, "a").unwrap();
        let fault = budget.lease(41, "the cache").err().unwrap();
        let DeviceFault::OutOfMemory { asked: 41, free: 40, what, .. } = fault else {
            panic!("{fault}")
        };
        assert_eq!(what, "the cache");
        drop(first);
        assert!(budget.lease(100, "b").is_ok());
        assert!(budget.lease(u64::MAX, "overflow").is_err());
        assert_eq!(budget.free(), 100);
    }
}
