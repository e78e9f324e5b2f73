//! Dynamic sharing of work.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::Worker;

/// Hands out chunk numbers `0..n` to whichever worker asks first.
///
/// It rewinds itself: every worker asks until it is told there is no more, so
/// ticket `n + count - 1` is the last of a run and whoever draws it resets the
/// counter. A barrier must lie between two runs (there is one between kernels).
#[derive(Default)]
pub(crate) struct ChunkCounter(AtomicUsize);

impl ChunkCounter {
    /// A counter at its start.
    pub(crate) const fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// The chunks of `0..n` that fall to this worker. Every worker must call this
    /// once per run, with the same `n`, and use the iterator up.
    pub(crate) fn chunks<'a>(&'a self, worker: &Worker<'_>, n: usize) -> Chunks<'a> {
        Chunks { counter: Some(&self.0), n, count: worker.count }
    }
}

/// Iterator over claimed chunks.
pub(crate) struct Chunks<'a> {
    counter: Option<&'a AtomicUsize>,
    n: usize,
    count: usize,
}

impl Iterator for Chunks<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let counter = self.counter?;
        // Relaxed: the tickets order nothing but themselves; data moves by barriers.
        let ticket = counter.fetch_add(1, Ordering::Relaxed);
        if ticket < self.n {
            return Some(ticket);
        }
        self.counter = None;
        if ticket == self.n + self.count - 1 {
            counter.store(0, Ordering::Relaxed);
        }
        None
    }
}
