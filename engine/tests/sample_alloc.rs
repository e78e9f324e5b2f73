//! Once warm, choosing a token allocates nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use foretoken::sample::{Sampler, SamplingParams, uniform};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is handed to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps `dealloc`'s contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// The only test of this file, so that no other thread allocates meanwhile.
#[test]
fn a_warm_sampler_allocates_nothing() {
    let logits =
        |step: u64| (0..5000).map(|i| (uniform(step, i) * 20.0) as f32).collect::<Vec<_>>();
    let rows: Vec<_> = (0..8).map(logits).collect();
    let history: Vec<u32> = (0..400).map(|i| (i * 37) % 5000).collect();
    let penalised = SamplingParams { repetition_penalty: 1.1, ..SamplingParams::default() };
    let full = SamplingParams { top_k: 0, top_p: 0.9, ..SamplingParams::default() };
    let plain = SamplingParams { temperature: 1.0, ..SamplingParams::greedy() };
    let whole = SamplingParams { penalty_last_n: -1, ..penalised.clone() };
    for params in [SamplingParams::greedy(), plain, full, penalised, whole] {
        let mut sampler = Sampler::new(params, 5000).unwrap();
        // Longest history first: a growing one lets the window double now and then.
        rows.iter().for_each(|row| assert!(sampler.choose(row, &history, 0).is_ok()));
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        let mut sum = 0u64;
        for (position, row) in (0u64..).zip(&rows) {
            let history = &history[..100 + position as usize * 20];
            sum += u64::from(sampler.choose(row, history, position).unwrap().id);
        }
        assert_eq!(ALLOCATIONS.load(Ordering::Relaxed), before, "{:?} {sum}", sampler.params());
    }
}
