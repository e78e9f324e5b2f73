//! The tokenizer against ids that other implementations made.
#![expect(clippy::print_stderr, reason = "says which tests were skipped for want of data")]

use std::path::PathBuf;

use foretoken::tokenizer::{Special, Tokenizer};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct Case {
    text: String,
    ids: Vec<u32>,
    ids_no_special: Vec<u32>,
}

/// Random texts with ids of the Hugging Face library; how they were made is told in
/// `data/make_tokenizer_cases.py`.
fn cases(name: &str) -> Vec<Case> {
    let mut file: Value = serde_json::from_str(include_str!("data/tokenizer-cases.json")).unwrap();
    serde_json::from_value(file[name].take()).unwrap()
}

/// A file of the test data, if there is any.
fn test_data(path: &str) -> Option<PathBuf> {
    let Some(root) = std::env::var_os("FORETOKEN_TEST_DATA") else {
        eprintln!("skipped: FORETOKEN_TEST_DATA is not set");
        return None;
    };
    Some(PathBuf::from(root).join(path))
}

fn check(tokenizer: &Tokenizer, cases: &[Case]) {
    assert!(!cases.is_empty());
    for case in cases {
        for (special, want) in
            [(Special::Parse, &case.ids), (Special::Ignore, &case.ids_no_special)]
        {
            let ids = tokenizer.encode(&case.text, special);
            assert_eq!(&ids, want, "{special:?} {:?}", case.text);
            let bytes = tokenizer.decode(&ids);
            assert_eq!(bytes, case.text.as_bytes(), "{special:?} {:?}", case.text);
        }
    }
}

#[test]
fn nano_json_gives_the_ids_of_the_field() {
    let Some(path) = test_data("models/nano/tokenizer.json") else { return };
    let json = std::fs::read_to_string(path).unwrap();
    let tokenizer = Tokenizer::from_json(json.as_bytes()).unwrap();
    assert_eq!(tokenizer.vocab_size(), 8192);
    assert_eq!(tokenizer.eos_ids(), [8184, 8186]);
    check(&tokenizer, &cases("nano"));

    let older = json
        .replace(r"[\\p{L}\\p{M}]+", r"\\p{L}+")
        .replace(r"\\p{L}\\p{M}\\p{N}", r"\\p{L}\\p{N}");
    let older = Tokenizer::from_json(older.as_bytes()).unwrap();
    assert_eq!(older.pre().name(), "qwen2");
    check(&older, &cases("nano-with-qwen2"));
}
