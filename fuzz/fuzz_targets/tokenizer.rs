//! Texts, streams of bytes, vocabularies and `tokenizer.json` files. The first byte of
//! the input says which, the rest is what is read.

#![no_main]

use std::path::Path;
use std::sync::LazyLock;

use foretoken::format::{GgufFile, OpenOptions};
use foretoken::tokenizer::{Special, Tokenizer, TokenizerParts, Utf8Stream};
use libfuzzer_sys::fuzz_target;

/// The small models' vocabulary under both pre-tokenizers.
static NANO: LazyLock<[Tokenizer; 2]> = LazyLock::new(|| {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/nano/nano-scorer-Q8_0.gguf");
    let file = GgufFile::open(Path::new(path), &OpenOptions::default()).expect("the model");
    let meta = file.metadata();
    let strings = |key: &str| {
        let list = meta.require_str_array(key).expect("a list of texts");
        list.to_strs().expect("UTF-8").into_iter().map(Into::into).collect()
    };
    ["qwen2", "qwen35"].map(|pre| {
        let parts = TokenizerParts {
            pre: pre.into(),
            tokens: strings("tokenizer.ggml.tokens"),
            token_types: meta.i32_array("tokenizer.ggml.token_type").expect("types").map(Into::into),
            merges: strings("tokenizer.ggml.merges"),
            ..TokenizerParts::default()
        };
        Tokenizer::from_parts(&parts).expect("a good vocabulary")
    })
});

fuzz_target!(|data: &[u8]| {
    let Some((&kind, data)) = data.split_first() else { return };
    match kind % 5 {
        0 | 1 => text(&NANO[usize::from(kind % 5)], data),
        2 => stream(data),
        3 => vocabulary(data),
        _ => json(data),
    }
});

/// Encodes and decodes; words that repeat and words that are long come from
/// repeating the input.
fn text(tokenizer: &Tokenizer, data: &[u8]) {
    let good = std::str::from_utf8(data);
    assert_eq!(tokenizer.encode_bytes(data, Special::Parse).is_ok(), good.is_ok());
    let text = String::from_utf8_lossy(data);
    round_trip(tokenizer, &text);
    if text.len() < 4096 {
        round_trip(tokenizer, &text.repeat(8192 / text.len().max(1)));
    }
}

fn round_trip(tokenizer: &Tokenizer, text: &str) {
    for special in [Special::Parse, Special::Ignore] {
        let ids = tokenizer.encode(text, special);
        assert_eq!(tokenizer.decode(&ids), text.as_bytes());
        tokenizer.check_ids(&ids).expect("an id outside the vocabulary");
        if special == Special::Ignore {
            assert!(!ids.iter().any(|&id| tokenizer.is_special(id)));
        }
    }
}

/// Any split of any bytes gives the text of the whole. The first half says where.
fn stream(data: &[u8]) {
    let (cuts, bytes) = data.split_at(data.len() / 2);
    let (mut stream, mut text, mut rest) = (Utf8Stream::new(), String::new(), bytes);
    for cut in cuts {
        let (part, after) = rest.split_at(usize::from(cut % 8).min(rest.len()));
        text.push_str(&stream.push(part));
        assert!(stream.pending().len() < 4);
        rest = after;
    }
    text.push_str(&stream.push(rest));
    text.push_str(&stream.finish());
    assert_eq!(text, String::from_utf8_lossy(bytes));
}

/// Merges made from pairs of bytes, in any order, over any tokens made before.
fn vocabulary(data: &[u8]) {
    let (pairs, text) = data.split_at(data.len() / 2);
    let mut tokens: Vec<String> = ALPHABET.clone();
    let mut merges = Vec::new();
    for pair in pairs.chunks_exact(3) {
        let pick = |n: u8, late: bool| {
            let made = tokens.len() - 256;
            let at = if late && made > 0 { 256 + usize::from(n) % made } else { usize::from(n) };
            tokens[at].clone()
        };
        let (left, right) = (pick(pair[0], pair[2] & 1 != 0), pick(pair[1], pair[2] & 2 != 0));
        let whole = format!("{left}{right}");
        if whole.len() < 256 {
            let merge = format!("{left} {right}");
            let place = if pair[2] & 4 != 0 { 0 } else { merges.len() };
            merges.insert(place, merge);
            tokens.push(whole);
        }
    }
    tokens.extend(["<|im_end|>".to_owned(), "a<".to_owned()]);
    let mut types = vec![1; tokens.len() - 2];
    types.extend([3, 4]);
    let parts = TokenizerParts {
        pre: "qwen35".into(),
        tokens: tokens.into_iter().map(Into::into).collect(),
        token_types: Some(types.into()),
        merges: merges.into_iter().map(Into::into).collect(),
        ..TokenizerParts::default()
    };
    match Tokenizer::from_parts(&parts) {
        Ok(tokenizer) => self::text(&tokenizer, text),
        Err(error) => one_line(&error.to_string()),
    }
}

fn json(data: &[u8]) {
    match Tokenizer::from_json(data) {
        Ok(tokenizer) => text(&tokenizer, data),
        Err(error) => one_line(&error.to_string()),
    }
}

fn one_line(message: &str) {
    assert!(message.len() < 2000 && !message.contains(char::is_control), "{message:?}");
}

/// The characters that stand for the bytes 0 to 255.
static ALPHABET: LazyLock<Vec<String>> = LazyLock::new(|| {
    let mut shifted = ('\u{100}'..='\u{143}').map(String::from);
    let own = |byte: u8| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let bytes = 0..=255u8;
    let text = bytes.map(|b| if own(b) { Some(char::from(b).into()) } else { shifted.next() });
    text.map(|text| text.expect("68 characters")).collect()
});
