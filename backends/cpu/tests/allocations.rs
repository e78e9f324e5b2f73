//! After warm-up a token costs no allocation: neither in the driver nor in the loop
//! that chooses tokens and says them.

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use foretoken::device::Driver;
use foretoken::generate::{
    Cancel, Engine, EngineOptions, GenerateRequest, SessionOptions, StreamEvent, WantLogits,
};
use foretoken::sample::SamplingParams;
use foretoken_cpu::{CpuDriver, CpuOptions};

struct Counting;

static COUNT: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system allocator as it came; only a counter is added.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's contract is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's contract is the system allocator's.
        unsafe { System.realloc(ptr, layout, size) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract is the system allocator's.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count() -> usize {
    COUNT.load(Ordering::Relaxed)
}

/// One test, so that no other runs beside it and is counted.
#[test]
fn decoding_allocates_nothing_per_token() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/nano/nano-code-Q4_K_M.gguf");
    let device = CpuDriver::new(CpuOptions::default()).open(0).unwrap();
    let engine = Engine::load(&path, device, &EngineOptions::default(), None, &mut |_| {}).unwrap();
    let mut session = engine.session(SessionOptions::new(512)).unwrap();

    // Steps and their results.
    let steps = |session: &mut foretoken::generate::Session, n: usize| {
        for _ in 0..n {
            let id = session.argmax(0).unwrap_or(300);
            session.step(&[id], WantLogits::Last).unwrap();
            session.read_logits().unwrap();
        }
    };
    steps(&mut session, 4);
    let before = count();
    steps(&mut session, 64);
    assert_eq!(count() - before, 0, "allocations in 64 steps");

    // Whole requests, greedy and sampled with every filter and penalty: counted once the
    // window of the penalties (64 tokens) has filled.
    let sampled = SamplingParams {
        repetition_penalty: 1.1,
        frequency_penalty: 0.1,
        seed: 3,
        ..SamplingParams::default()
    };
    for sampling in [SamplingParams::greedy(), sampled] {
        let request = GenerateRequest {
            max_tokens: Some(200),
            ignore_eos: true,
            sampling,
            stop_strings: vec![b"never said".to_vec()],
            ..GenerateRequest::greedy(vec![316, 283, 2979, 263])
        };
        let (mut pieces, mut warm, mut last) = (0, 0, 0);
        engine
            .generate(&mut session, &request, &Cancel::default(), &mut |event| {
                if let StreamEvent::Text(_) = event {
                    pieces += 1;
                    last = count();
                    if pieces == 80 {
                        warm = last;
                    }
                }
            })
            .unwrap();
        assert!(pieces > 150, "{pieces} pieces");
        assert_eq!(last - warm, 0, "allocations between the 80th and the last of {pieces} pieces");
    }

    // The counter counts.
    let before = count();
    drop(std::hint::black_box(vec![1u8; 100]));
    assert_eq!(count() - before, 1);
}
