//! The tokenizer against ids that other implementations made.
#![allow(clippy::print_stdout)] // "skipped" lines are the point of a test without its data

use std::path::{Path, PathBuf};

use foretoken::format::{GgufFile, OpenOptions};
use foretoken::tokenizer::{Special, TokenKind, Tokenizer};
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
        println!("skipped: FORETOKEN_TEST_DATA is not set ({path})");
        return None;
    };
    Some(PathBuf::from(root).join(path))
}

fn from_gguf(path: &Path) -> Tokenizer {
    let file = GgufFile::open(path, &OpenOptions::default()).unwrap();
    Tokenizer::from_gguf(file.metadata()).unwrap()
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

#[test]
fn nano_gguf_files_give_the_ids_of_the_field() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/nano");
    for name in ["nano-code-Q4_K_M.gguf", "nano-dflash-Q8_0.gguf", "nano-scorer-Q8_0.gguf"] {
        let tokenizer = from_gguf(&folder.join(name));
        check(&tokenizer, &cases("nano"));
        assert_eq!((tokenizer.vocab_size(), tokenizer.pre().name()), (8192, "qwen35"));
        assert_eq!(
            (tokenizer.eos(), tokenizer.bos(), tokenizer.pad()),
            (Some(8186), None, Some(8184))
        );
        assert_eq!(tokenizer.eos_ids(), [8184, 8186]);
        assert_eq!(tokenizer.id_of("<|mask|>"), Some(8187));
        assert!(tokenizer.check_rows(8192).is_ok() && tokenizer.check_rows(8193).is_err());
        assert!(tokenizer.chat_template().is_some_and(|source| source.contains("<|im_start|>")));
    }
}

/// The real Qwen3.5 vocabulary, from a file with no tensors.
#[test]
fn qwen35_vocabulary_gives_the_ids_of_the_field() {
    let Some(path) = test_data("tokenizer/qwen35-vocab.gguf") else { return };
    let tokenizer = from_gguf(&path);
    assert_eq!(tokenizer.vocab_size(), 248_320);
    assert_eq!(tokenizer.eos_ids(), [248_044, 248_046]);
    assert_eq!(tokenizer.kind(248_068), Some(TokenKind::UserDefined));
    assert_eq!(tokenizer.token_bytes(248_319), Some(&b""[..]));
    assert_eq!(tokenizer.token_bytes(248_320), None);
    check(&tokenizer, &cases("qwen35"));

    let Some(path) = test_data("tokenizer/qwen35-tokens.json") else { return };
    let mut file: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let cases: Vec<Case> = serde_json::from_value(file["cases"].take()).unwrap();
    assert_eq!(cases.len(), 253);
    check(&tokenizer, &cases);
}

/// The prompts that the reference outputs of the nano models start from.
#[test]
fn golden_prompts_have_the_ids_they_were_run_with() {
    let Some(path) = test_data("golden/nano.json") else { return };
    let file: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/nano/nano-code-Q4_K_M.gguf");
    let tokenizer = from_gguf(&path);
    let prompts = file["prompts"].as_array().unwrap();
    assert_eq!(prompts.len(), 11);
    for prompt in prompts {
        let text = prompt["text"].as_str().unwrap();
        let ids: Vec<u32> = serde_json::from_value(prompt["ids"].clone()).unwrap();
        assert_eq!(tokenizer.encode(text, Special::Parse), ids, "{text:?}");
    }
}
