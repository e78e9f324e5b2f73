//! A reusable barrier that spins, then yields, and can be poisoned.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::yield_now;

/// Keeps a value on cache lines of its own.
#[repr(align(128))]
#[derive(Default)]
pub(super) struct Padded<T>(pub(super) T);

/// Polls until `done` says so: a short spin, then giving way to other threads,
/// since the machine may be shared.
pub(super) fn poll(spins: u32, mut done: impl FnMut() -> bool) {
    for _ in 0..spins {
        if done() {
            return;
        }
        spin_loop();
    }
    while !done() {
        yield_now();
    }
}

/// Barrier for a fixed number of workers.
pub(super) struct Barrier {
    count: usize,
    spins: u32,
    arrived: Padded<AtomicUsize>,
    generation: Padded<AtomicUsize>,
    poisoned: Padded<AtomicBool>,
}

impl Barrier {
    pub(super) fn new(count: usize, spins: u32) -> Self {
        Self {
            count,
            spins,
            arrived: Padded::default(),
            generation: Padded::default(),
            poisoned: Padded::default(),
        }
    }

    /// Waits for all workers. What any of them wrote before is seen by all after.
    /// False when a worker failed and will never come.
    #[must_use]
    pub(super) fn wait(&self) -> bool {
        let generation = self.generation.0.load(Ordering::Relaxed);
        // AcqRel: the last arrival has seen the writes of all before it, and hands
        // them on through the generation.
        if self.arrived.0.fetch_add(1, Ordering::AcqRel) + 1 == self.count {
            self.arrived.0.store(0, Ordering::Relaxed);
            self.generation.0.store(generation.wrapping_add(1), Ordering::Release);
        } else {
            poll(self.spins, || {
                self.generation.0.load(Ordering::Acquire) != generation
                    || self.poisoned.0.load(Ordering::Acquire)
            });
        }
        !self.poisoned.0.load(Ordering::Acquire)
    }

    /// Lets every waiter go, now and for good.
    pub(super) fn poison(&self) {
        self.poisoned.0.store(true, Ordering::Release);
    }
}
