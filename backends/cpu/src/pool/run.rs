//! Launching, sleeping and failing.

use std::any::Any;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use super::affinity::{Placement, pin};
use super::barrier::{Barrier, Padded, poll};
use super::worker::{CpuKernel, Poisoned, Refused, Worker};
use crate::memory::Span;

/// Polls before a waiter in a launch starts to yield.
const SPINS: u32 = 4000;
/// Polls of an idle worker before it sleeps: some tens of microseconds, enough to
/// bridge the host's work between two decode steps.
const IDLE_SPINS: u32 = 2000;

/// Why a launch failed.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// The kernel, as its key prints.
    pub(crate) kernel: String,
    /// What it said.
    pub(crate) message: String,
}

/// What a launch hands to the workers.
#[derive(Clone, Copy)]
struct Job {
    kernels: *const [Arc<dyn CpuKernel>],
    scratch: Span<u8>,
}

pub(super) struct Shared {
    count: usize,
    spins: u32,
    pub(super) barrier: Barrier,
    /// Number of launches so far; a change starts the workers.
    epoch: Padded<AtomicUsize>,
    /// Workers other than the launching thread that are still in the launch.
    running: Padded<AtomicUsize>,
    job: UnsafeCell<Option<Job>>,
    stop: AtomicBool,
    sleepers: AtomicUsize,
    sleep: Mutex<()>,
    wake: Condvar,
    failure: Mutex<Option<Failure>>,
}

// SAFETY: everything but `job` is Sync by itself. `job` is written by the launching
// thread only while no worker is in a launch (`running` is 0 and the launch lock of
// `Pool::run` is held) and read by workers only after the epoch that announces it.
// The kernels it points to are Sync, and outlive the launch since `Pool::run` waits.
unsafe impl Sync for Shared {}
// SAFETY: as above; nothing in it is tied to a thread.
unsafe impl Send for Shared {}

/// The workers of one device.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    /// Starts `count - 1` threads; the thread that launches is the first worker. A
    /// thread that the system refuses leaves the pool smaller by one and is logged.
    pub(crate) fn new(count: usize, placement: &Placement) -> Self {
        let count = count.max(1);
        let spins = if placement.crowded { 1 } else { SPINS };
        // Threads are started against the full count, so find out first how many
        // there will be: park them behind a gate that tells them.
        let gate: Arc<(Mutex<Option<Arc<Shared>>>, Condvar)> = Arc::default();
        let mut threads = Vec::with_capacity(count - 1);
        for index in 1..count {
            let gate = Arc::clone(&gate);
            let cpu = placement.cpus.get(index).copied();
            let body = move || {
                if let Some(cpu) = cpu {
                    pin(cpu);
                }
                let (lock, ready) = &*gate;
                let mut slot = lock.lock().unwrap_or_else(PoisonError::into_inner);
                let shared = loop {
                    if let Some(shared) = &*slot {
                        break Arc::clone(shared);
                    }
                    slot = ready.wait(slot).unwrap_or_else(PoisonError::into_inner);
                };
                drop(slot);
                serve(&shared, index);
            };
            match thread::Builder::new().name(format!("foretoken-cpu-{index}")).spawn(body) {
                Ok(handle) => threads.push(handle),
                Err(error) => {
                    tracing::warn!(%error, threads = index, "fewer CPU threads than asked for");
                    break;
                }
            }
        }
        let count = threads.len() + 1;
        let shared = Arc::new(Shared {
            count,
            spins,
            barrier: Barrier::new(count, spins),
            epoch: Padded::default(),
            running: Padded::default(),
            job: UnsafeCell::new(None),
            stop: AtomicBool::new(false),
            sleepers: AtomicUsize::new(0),
            sleep: Mutex::new(()),
            wake: Condvar::new(),
            failure: Mutex::new(None),
        });
        *gate.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&shared));
        gate.1.notify_all();
        Self { shared, threads }
    }

    /// Workers, the launching thread counted.
    pub(crate) fn count(&self) -> usize {
        self.shared.count
    }

    /// Runs kernels in order and returns when all are done. `&mut` since one launch
    /// runs at a time. After a failure the pool must not be used again.
    pub(crate) fn run(
        &mut self,
        kernels: &[Arc<dyn CpuKernel>],
        scratch: Span<u8>,
    ) -> Result<(), Failure> {
        let shared = &*self.shared;
        let job = Job { kernels, scratch };
        if shared.count > 1 {
            // SAFETY: no worker is in a launch (this function waits for all of them
            // and takes `&mut self`), so none reads the cell.
            unsafe { *shared.job.get() = Some(job) };
            shared.running.0.store(shared.count - 1, Ordering::Relaxed);
            // SeqCst pairs with the sleepers' own order: either this store is seen by
            // a worker about to sleep, or that worker is seen here.
            shared.epoch.0.fetch_add(1, Ordering::SeqCst);
            if shared.sleepers.load(Ordering::SeqCst) > 0 {
                drop(shared.sleep.lock().unwrap_or_else(PoisonError::into_inner));
                shared.wake.notify_all();
            }
        }
        walk(shared, 0, kernels, scratch);
        poll(shared.spins, || shared.running.0.load(Ordering::Acquire) == 0);
        match shared.failure.lock().unwrap_or_else(PoisonError::into_inner).clone() {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.epoch.0.fetch_add(1, Ordering::SeqCst);
        drop(self.shared.sleep.lock().unwrap_or_else(PoisonError::into_inner));
        self.shared.wake.notify_all();
        for handle in self.threads.drain(..) {
            // A worker catches what its kernels throw; there is nothing to report.
            let _ = handle.join();
        }
    }
}

/// A worker thread's life.
fn serve(shared: &Shared, index: usize) {
    let mut seen = 0;
    loop {
        seen = next_epoch(shared, seen);
        if shared.stop.load(Ordering::SeqCst) {
            return;
        }
        // SAFETY: the epoch announced this job; the launcher does not write the cell
        // until `running` says that this worker is done.
        let job = unsafe { *shared.job.get() };
        if let Some(job) = job {
            // SAFETY: `Pool::run` borrows the kernels until `running` is 0.
            let kernels = unsafe { &*job.kernels };
            walk(shared, index, kernels, job.scratch);
        }
        shared.running.0.fetch_sub(1, Ordering::Release);
    }
}

/// Waits for an epoch other than `seen`, spinning first, then asleep.
fn next_epoch(shared: &Shared, seen: usize) -> usize {
    for _ in 0..IDLE_SPINS.min(shared.spins) {
        let now = shared.epoch.0.load(Ordering::Acquire);
        if now != seen {
            return now;
        }
        std::hint::spin_loop();
    }
    let mut guard = shared.sleep.lock().unwrap_or_else(PoisonError::into_inner);
    shared.sleepers.fetch_add(1, Ordering::SeqCst);
    let now = loop {
        let now = shared.epoch.0.load(Ordering::SeqCst);
        if now != seen {
            break now;
        }
        guard = shared.wake.wait(guard).unwrap_or_else(PoisonError::into_inner);
    };
    shared.sleepers.fetch_sub(1, Ordering::SeqCst);
    now
}

/// One worker's way through the kernels of a launch.
fn walk(shared: &Shared, index: usize, kernels: &[Arc<dyn CpuKernel>], scratch: Span<u8>) {
    let worker = Worker { index, count: shared.count, shared, scratch };
    let mut at = 0;
    let result = catch_unwind(AssertUnwindSafe(|| {
        for (i, kernel) in kernels.iter().enumerate() {
            if i > 0 {
                worker.barrier();
            }
            at = i;
            kernel.run(&worker);
        }
    }));
    let Err(payload) = result else { return };
    if !payload.is::<Poisoned>() {
        let kernel = kernels.get(at).map(|k| k.key().to_string()).unwrap_or_default();
        let failure = Failure { kernel, message: message(&*payload) };
        let mut slot = shared.failure.lock().unwrap_or_else(PoisonError::into_inner);
        slot.get_or_insert(failure);
    }
    shared.barrier.poison();
}

fn message(payload: &(dyn Any + Send)) -> String {
    if let Some(Refused(what)) = payload.downcast_ref() {
        return (*what).to_owned();
    }
    let text = payload.downcast_ref::<&str>().map(|s| (*s).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "the kernel panicked".to_owned())
}
