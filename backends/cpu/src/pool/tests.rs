//! The pool with kernels made for the purpose.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use foretoken::kernel::KernelKey;
use foretoken::tensor::DType;

use super::affinity::{Placement, placement};
use super::{ChunkCounter, CpuKernel, Pool, Worker};
use crate::memory::Span;

/// A kernel from a closure.
struct Do<F>(F);

impl<F: Fn(&Worker<'_>) + Send + Sync> CpuKernel for Do<F> {
    fn run(&self, worker: &Worker<'_>) {
        (self.0)(worker);
    }

    fn key(&self) -> KernelKey {
        KernelKey { op: "test", dtype: DType::F32, regime: None, variant: "closure" }
    }
}

fn kernel(f: impl Fn(&Worker<'_>) + Send + Sync + 'static) -> Arc<dyn CpuKernel> {
    Arc::new(Do(f))
}

fn launch(pool: &mut Pool, kernels: &[Arc<dyn CpuKernel>]) -> Result<(), String> {
    pool.run(kernels, Span::empty()).map_err(|f| format!("{}: {}", f.kernel, f.message))
}

/// Pools of one to nine workers: alone, with company, with more than there are CPUs.
fn pools() -> impl Iterator<Item = Pool> {
    let counts: &[usize] = if cfg!(miri) { &[1, 3] } else { &[1, 2, 3, 9] };
    counts.iter().map(|&n| Pool::new(n, &placement(n)))
}

/// Launches in a row: fewer where each takes seconds.
const LAUNCHES: usize = if cfg!(miri) { 2 } else { 20 };

#[test]
fn kernels_run_in_order_on_every_worker() {
    for mut pool in pools() {
        let n = pool.count();
        let total = Arc::new(AtomicUsize::new(0));
        // Kernel `i` finds that all workers have been through all kernels before it.
        let step = |i: usize| {
            let total = Arc::clone(&total);
            kernel(move |w| {
                let seen = total.load(Ordering::Relaxed);
                assert!((2 * i * n..2 * (i + 1) * n).contains(&seen), "{seen} at kernel {i}");
                total.fetch_add(1, Ordering::Relaxed);
                w.barrier();
                assert!(total.load(Ordering::Relaxed) >= (2 * i + 1) * n);
                total.fetch_add(1, Ordering::Relaxed);
            })
        };
        let kernels: Vec<_> = (0..LAUNCHES).map(step).collect();
        for _ in 0..LAUNCHES {
            total.store(0, Ordering::Relaxed);
            launch(&mut pool, &kernels).unwrap();
            assert_eq!(total.load(Ordering::Relaxed), 2 * LAUNCHES * n);
        }
    }
}

#[test]
fn chunks_are_handed_out_once_in_every_run() {
    for mut pool in pools() {
        let counter = Arc::new(ChunkCounter::new());
        let taken: Arc<Vec<AtomicUsize>> = Arc::new((0..97).map(|_| AtomicUsize::new(0)).collect());
        let (c, t) = (Arc::clone(&counter), Arc::clone(&taken));
        let k = kernel(move |w| {
            for chunk in c.chunks(w, t.len()) {
                t[chunk].fetch_add(1, Ordering::Relaxed);
            }
        });
        for _ in 0..LAUNCHES {
            launch(&mut pool, &vec![Arc::clone(&k); 5]).unwrap();
        }
        assert!(taken.iter().all(|t| t.load(Ordering::Relaxed) == 5 * LAUNCHES));
    }
}

#[test]
fn a_panic_or_refusal_on_any_worker_ends_the_launch() {
    for mut pool in pools() {
        // One worker leaves while the others wait at a barrier.
        let last = pool.count() - 1;
        let k = kernel(move |w| {
            if w.index == last {
                w.refuse("the operands are odd");
            }
            w.barrier();
        });
        let error = launch(&mut pool, &[kernel(|_| {}), k, kernel(|_| {})]).unwrap_err();
        assert_eq!(error, "test/F32/closure: the operands are odd");
    }
    for mut pool in pools() {
        // A panic proper, at the barrier between two kernels. The hook prints it.
        let k = kernel(|w| assert!(w.index != 0, "worker zero gives up"));
        let error = launch(&mut pool, &[k, kernel(|_| {})]).unwrap_err();
        assert!(error.contains("worker zero gives up"), "{error}");
    }
}

#[test]
fn workers_sleep_and_wake() {
    let mut pool = Pool::new(3, &Placement::default());
    let count = Arc::new(AtomicUsize::new(0));
    let c = Arc::clone(&count);
    let k = kernel(move |_| {
        c.fetch_add(1, Ordering::Relaxed);
    });
    for i in 1..=5 {
        // Long enough for idle workers to go to sleep.
        std::thread::sleep(std::time::Duration::from_millis(20));
        launch(&mut pool, &[Arc::clone(&k)]).unwrap();
        assert_eq!(count.load(Ordering::Relaxed), 3 * i);
    }
    std::thread::sleep(std::time::Duration::from_millis(20));
    // Sleeping workers are woken to end.
    drop(pool);
    assert_eq!(Arc::strong_count(&k), 1);
}

#[test]
fn an_empty_launch_is_fine() {
    for mut pool in pools() {
        launch(&mut pool, &[]).unwrap();
        launch(&mut pool, &[]).unwrap();
    }
}
