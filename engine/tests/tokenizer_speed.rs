//! Ten megabytes on one line: time grows with the text, and the stack does not.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use foretoken::format::{GgufFile, OpenOptions};
use foretoken::tokenizer::{Special, Tokenizer};

/// The large vocabulary if it is at hand: it has the longer merges.
fn tokenizer() -> Tokenizer {
    let path = match std::env::var_os("FORETOKEN_TEST_DATA") {
        Some(root) => Path::new(&root).join("tokenizer/qwen35-vocab.gguf"),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/nano/nano-code-Q4_K_M.gguf"),
    };
    let file = GgufFile::open(&path, &OpenOptions::default()).unwrap();
    Tokenizer::from_gguf(file.metadata()).unwrap()
}

/// Letters from a small generator, so that no word repeats.
fn letters(bytes: usize) -> String {
    let mut state = 35u64;
    let mut letter = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        char::from(b'a' + ((state >> 33) % 26) as u8)
    };
    (0..bytes).map(|_| letter()).collect()
}

fn repeat(part: &str, bytes: usize) -> String {
    part.repeat(bytes / part.len())
}

const CODE: &str =
    "for (int i = 0; i < n; ++i) { sum += w[i] * f(\"x\", i); } // naïve 中文 é\u{301} ";

/// Texts by name: one endless word of each kind, and one line of code.
fn texts(bytes: usize) -> [(&'static str, String); 8] {
    [
        ("random letters", letters(bytes)),
        ("one letter", repeat("a", bytes)),
        ("spaces", repeat(" ", bytes)),
        ("digits", repeat("7", bytes)),
        ("symbols", repeat("=", bytes)),
        ("marks", repeat("\u{301}", bytes)),
        ("chinese", repeat("中文字符", bytes)),
        ("code", repeat(CODE, bytes)),
    ]
}

/// Seconds of the faster of `runs` runs.
fn seconds(tokenizer: &Tokenizer, text: &str, runs: usize) -> f64 {
    let times = (0..runs).map(|_| {
        let start = Instant::now();
        let ids = tokenizer.encode(text, Special::Parse);
        let time = start.elapsed().as_secs_f64();
        assert!(tokenizer.decode(&ids) == text.as_bytes());
        time
    });
    times.fold(f64::INFINITY, f64::min)
}

#[test]
fn ten_megabytes_take_ten_times_as_long_as_one() {
    // A small stack shows that nothing recurses over the text.
    let work = thread::Builder::new().stack_size(128 << 10).spawn(|| {
        let tokenizer = tokenizer();
        for ((name, small), (_, large)) in texts(1_000_000).into_iter().zip(texts(10_000_000)) {
            // Words are encoded in blocks, so ten is what there should be; a quadratic
            // way gives 100. Other work on the machine can slow one of the two, so there
            // is room up to 15, and the best of a few tries counts.
            let ratio = (0..5)
                .map(|_| seconds(&tokenizer, &large, 1) / seconds(&tokenizer, &small, 3))
                .find(|ratio| *ratio < 15.0);
            assert!(ratio.is_some(), "{name}: more than 15 times as long");
        }
    });
    work.unwrap().join().unwrap();
}

#[test]
fn many_specials_and_many_words_are_no_trouble() {
    let tokenizer = tokenizer();
    let text = repeat("<|im_start|>user\n<|im_<|im_end|>", 2_000_000);
    let start = Instant::now();
    let ids = tokenizer.encode(&text, Special::Parse);
    assert!(start.elapsed() < Duration::from_secs(20));
    assert!(tokenizer.decode(&ids) == text.as_bytes());
}
