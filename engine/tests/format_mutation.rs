//! Sound files with bytes changed at random: whatever comes out, nothing panics and no
//! more memory is taken than a small multiple of the file.

mod format_support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;

use foretoken::format::{Array, GgufWriter, TensorSource, Value};
use foretoken::tensor::{DType, Shape};
use format_support::{gguf, safetensors, safetensors_bytes};
use proptest::prelude::*;

/// Counts the bytes that each thread has taken since it last asked.
struct Counting;

thread_local! {
    static TAKEN: Cell<usize> = const { Cell::new(0) };
}

fn count(bytes: usize) {
    // Fails only while a thread ends, when nobody asks any more.
    let _ = TAKEN.try_with(|t| t.set(t.get().saturating_add(bytes)));
}

// SAFETY: every call goes to the system's allocator as it came; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from `System` with this layout.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new: usize) -> *mut u8 {
        count(new);
        // SAFETY: the pointer came from `System` with this layout.
        unsafe { System.realloc(ptr, layout, new) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes taken by `f`, freed or not.
fn taken(f: impl FnOnce()) -> usize {
    TAKEN.with(|t| t.set(0));
    f();
    TAKEN.with(Cell::get)
}

/// The most that parsing `len` bytes may take. Records are larger in memory than in the
/// file, and growing vectors and tables are counted each time; messages are short.
fn budget(len: usize) -> usize {
    64 * len + 16 * 1024
}

fn sound_gguf() -> Vec<u8> {
    let mut w = GgufWriter::new(Path::new("seed"));
    w.metadata("general.alignment", Value::U32(16)).unwrap();
    w.metadata("s", Value::string("text")).unwrap();
    w.metadata("tokens", Value::Array(Array::strings(["a", "bc", ""]))).unwrap();
    w.metadata("types", Value::Array(Array::i32s(&[1, 2, 3]))).unwrap();
    w.metadata("flags", Value::Array(Array::bools(&[true, false]))).unwrap();
    w.metadata("eps", Value::F32(1e-6)).unwrap();
    for (name, dtype, dims) in
        [("x", DType::Q8_0, &[2, 32][..]), ("y", DType::F32, &[3]), ("z", DType::BF16, &[1, 2, 2])]
    {
        w.tensor(name, dtype, Shape::new(dims).unwrap()).unwrap();
    }
    let mut body = w.begin(Vec::new()).unwrap();
    while let Some((_, n)) = body.pending() {
        body.data(&vec![7; n]).unwrap();
    }
    body.finish().unwrap()
}

fn sound_safetensors() -> Vec<u8> {
    let header = r#"{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"b":{"dtype":"U8","shape":[4],"data_offsets":[24,28]}}"#;
    safetensors_bytes(header, 28)
}

/// Opens a file and uses all of it.
fn use_gguf(bytes: Vec<u8>) -> bool {
    let len = bytes.len();
    let mut opened = false;
    let cost = taken(|| {
        let Ok(file) = gguf(bytes) else { return };
        opened = true;
        for (_, v) in file.metadata().iter() {
            if let Value::Array(a) = v {
                assert_eq!(a.iter().count(), a.len());
            }
        }
        for t in file.tensors() {
            assert_eq!(file.data(t).len(), t.bytes());
            assert_eq!(t.dtype().bytes_for(t.shape().elements()), Some(t.bytes()));
        }
    });
    assert!(cost <= budget(len), "{cost} bytes taken for a file of {len}");
    opened
}

fn use_safetensors(bytes: Vec<u8>) -> bool {
    let len = bytes.len();
    let mut opened = false;
    let cost = taken(|| {
        let Ok(model) = safetensors(bytes) else { return };
        opened = true;
        for t in model.tensors() {
            assert_eq!(model.data(t).len(), t.bytes());
            assert_eq!(t.dtype().bytes_for(t.shape().elements()), Some(t.bytes()));
        }
    });
    assert!(cost <= budget(len), "{cost} bytes taken for a file of {len}");
    opened
}

#[test]
fn the_unchanged_files_open_and_the_counter_counts() {
    assert!(use_gguf(sound_gguf()) && use_safetensors(sound_safetensors()));
    assert!(taken(|| drop(Vec::<u8>::with_capacity(1 << 20))) >= 1 << 20);
}

/// Every byte set to values that flip signs, sizes and text.
#[test]
fn every_byte_changed_alone() {
    for (sound, open) in
        [(sound_gguf(), use_gguf as fn(Vec<u8>) -> bool), (sound_safetensors(), use_safetensors)]
    {
        let mut refused = 0;
        for at in 0..sound.len() {
            for value in [0, 1, 0x20, 0x7f, 0x80, 0xff, sound[at] ^ 1, sound[at].wrapping_add(1)] {
                let mut bytes = sound.clone();
                bytes[at] = value;
                refused += usize::from(!open(bytes));
            }
        }
        assert!(refused > sound.len(), "only {refused} of the changes were noticed");
    }
}

/// Every eight bytes overwritten with the numbers that break arithmetic.
#[test]
fn every_word_made_huge() {
    let sound = sound_gguf();
    for at in 0..sound.len() - 8 {
        for value in [1u64 << 31, 1 << 32, 1 << 40, 1 << 62, 1 << 63, u64::MAX - 30, u64::MAX] {
            let mut bytes = sound.clone();
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
            use_gguf(bytes);
        }
    }
}

fn changes() -> impl Strategy<Value = Vec<(prop::sample::Index, u8)>> {
    prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn bytes_changed_at_random(changes in changes(), cut in any::<prop::sample::Index>(), keep: bool) {
        for (mut bytes, open) in
            [(sound_gguf(), use_gguf as fn(Vec<u8>) -> bool), (sound_safetensors(), use_safetensors)]
        {
            for (at, value) in &changes {
                let at = at.index(bytes.len());
                bytes[at] = *value;
            }
            if !keep {
                bytes.truncate(cut.index(bytes.len()));
            }
            open(bytes);
        }
    }

    #[test]
    fn noise_behind_a_true_start(noise in prop::collection::vec(any::<u8>(), 0..300)) {
        use_gguf([&b"GGUF\x03\0\0\0"[..], &noise].concat());
        use_gguf([&sound_gguf()[..24], &noise].concat());
        let mut header = (noise.len() as u64).to_le_bytes().to_vec();
        header.extend_from_slice(&noise);
        use_safetensors(header);
    }
}
