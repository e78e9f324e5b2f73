//! The CPU, as the tests of `backends/conformance` ask for a driver.
// Each program uses some of it.
#![allow(dead_code)]

use std::sync::Arc;

use foretoken::device::{Device, Driver};
use foretoken_cpu::{CpuDriver, CpuOptions};

use crate::common::Bounds;

/// Requests compared with plain decoding in all, over both targets.
pub(crate) const REQUESTS: usize = 2000;

/// What the fast path is held to.
pub(crate) const FAST: Bounds = Bounds { logprob: 5e-2, gap: 0.1 };

/// A device with all threads there are: `None` never.
pub(crate) fn open() -> Option<Arc<dyn Device>> {
    Some(CpuDriver::new(CpuOptions::default()).open(0).unwrap())
}

/// A device with so many threads.
pub(crate) fn with_threads(threads: usize) -> Arc<dyn Device> {
    let options = CpuOptions { threads: Some(threads), ..CpuOptions::default() };
    CpuDriver::new(options).open(0).unwrap()
}
