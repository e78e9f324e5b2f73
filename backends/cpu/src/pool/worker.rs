//! What a kernel sees of the pool.

use std::ops::Range;
use std::panic::resume_unwind;

use foretoken::kernel::KernelKey;

use super::run::Shared;
use crate::memory::Span;

/// One of the threads that run a kernel together.
pub(crate) struct Worker<'a> {
    /// This worker, `0..count`.
    pub(crate) index: usize,
    /// Workers in the pool.
    pub(crate) count: usize,
    pub(super) shared: &'a Shared,
    pub(super) scratch: Span<u8>,
}

/// An operation bound to its operands, run by all workers at once.
pub(crate) trait CpuKernel: Send + Sync {
    /// Does this worker's part. Every worker calls [`Worker::barrier`] the same
    /// number of times. On return of all workers the outputs are complete; the pool
    /// puts a barrier between two kernels. Must not allocate.
    fn run(&self, worker: &Worker<'_>);

    /// Names the kernel.
    fn key(&self) -> KernelKey;
}

/// Unwinds a worker because another one failed.
pub(super) struct Poisoned;

/// Unwinds a worker because its operands break the contract.
pub(super) struct Refused(pub(super) &'static str);

impl Worker<'_> {
    /// Waits until every worker is here. Writes of any worker before it are visible
    /// to all after it.
    pub(crate) fn barrier(&self) {
        if self.count > 1 && !self.shared.barrier.wait() {
            resume_unwind(Box::new(Poisoned));
        }
    }

    /// This worker's contiguous part of `0..n`, in whole granules (the last one may
    /// be short). Depends on `n`, `granule` and the worker alone.
    pub(crate) fn share(&self, n: usize, granule: usize) -> Range<usize> {
        share(self.index, self.count, n, granule)
    }

    /// Memory of at least the size reserved when the kernel was prepared, shared by
    /// all workers, with undefined content at the start of a kernel. The same memory
    /// serves every kernel of the device.
    pub(crate) fn scratch(&self) -> Span<u8> {
        self.scratch
    }

    /// Ends the launch as failed: values in device memory break the contract.
    pub(crate) fn refuse(&self, what: &'static str) -> ! {
        resume_unwind(Box::new(Refused(what)))
    }
}

fn share(index: usize, count: usize, n: usize, granule: usize) -> Range<usize> {
    let granule = granule.max(1);
    let units = n.div_ceil(granule);
    // units * count stays far from overflow: units is a count of real work items.
    let start = units * index / count * granule;
    let end = units * (index + 1) / count * granule;
    start.min(n)..end.min(n)
}

#[cfg(test)]
mod tests {
    use super::share;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn shares_cover_everything_once(n in 0usize..5000, granule in 0usize..70, count in 1usize..17) {
            let mut next = 0;
            for i in 0..count {
                let r = share(i, count, n, granule);
                prop_assert_eq!(r.start, next);
                prop_assert!(r.start <= r.end);
                prop_assert!(r.end == n || r.end.is_multiple_of(granule.max(1)));
                next = r.end;
            }
            prop_assert_eq!(next, n);
        }
    }
}
