//! Every fault of building and using a tokenizer, from a small good one broken in
//! one place at a time.

use std::path::Path;

use foretoken::format::{Array, FormatFault, GgufFile, GgufWriter, Value as Meta};
use foretoken::tokenizer::{Special, TokenKind, Tokenizer, TokenizerFault, TokenizerParts};
use foretoken::{Error, Result};
use serde_json::{Value, json};

/// The 256 characters of the byte-level alphabet, those of bytes 0 to 255.
fn alphabet() -> Vec<String> {
    let mut shifted = ('\u{100}'..='\u{143}').map(String::from);
    let own = |byte: u8| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    (0..=255u8)
        .map(|byte| if own(byte) { char::from(byte).to_string() } else { shifted.next().unwrap() })
        .collect()
}

/// 256 bytes, "he", "ll", "hell" (256 to 258), a control and a user-defined token.
fn small() -> TokenizerParts<'static> {
    let mut tokens = alphabet();
    tokens.extend(["he", "ll", "hell", "<|im_end|>", "<think>"].map(String::from));
    let mut types = vec![1; 259];
    types.extend([3, 4]);
    TokenizerParts {
        pre: "qwen35".into(),
        tokens: tokens.into_iter().map(Into::into).collect(),
        token_types: Some(types.into()),
        merges: ["h e", "l l", "he ll"].map(Into::into).to_vec(),
        ..TokenizerParts::default()
    }
}

fn fault(result: Result<impl Sized>) -> TokenizerFault {
    match result.err() {
        Some(Error::Tokenizer(fault)) => {
            let line = fault.to_string();
            assert!(!line.contains('\n') && line.len() < 400, "{line}");
            fault
        }
        other => panic!("no fault of the tokenizer: {other:?}"),
    }
}

fn broken(change: impl FnOnce(&mut TokenizerParts<'static>)) -> TokenizerFault {
    let mut parts = small();
    change(&mut parts);
    fault(Tokenizer::from_parts(&parts))
}

#[test]
fn the_small_one_works() {
    let tokenizer = Tokenizer::from_parts(&small()).unwrap();
    let ids = tokenizer.encode("hello<think><|im_end|>", Special::Parse);
    assert_eq!(ids, [258, u32::from(b'o'), 260, 259]);
    assert_eq!(tokenizer.decode(&ids), b"hello<think><|im_end|>");
    assert_eq!(tokenizer.decode(&[258, 9999]), b"hell");
    assert_eq!(tokenizer.eos_ids(), [259]);
    assert_eq!(tokenizer.id_of("<think>"), Some(260));
    assert_eq!(tokenizer.id_of("hell"), None);
    assert!(tokenizer.is_special(260) && !tokenizer.is_special(258));
    assert_eq!(tokenizer.kind(259), Some(TokenKind::Control));
    assert_eq!(tokenizer.kind(261), None);
    assert_eq!(tokenizer.bos_to_add(), None);

    // Kept apart from special tokens, their text is text.
    let ids = tokenizer.encode("<think>", Special::Ignore);
    assert_eq!(ids, b"<think>".map(u32::from));
}

#[test]
fn named_tokens_and_the_start_token() {
    let mut parts = small();
    (parts.eos, parts.eot, parts.bos, parts.pad) = (Some(0), Some(258), Some(1), Some(2));
    let tokenizer = Tokenizer::from_parts(&parts).unwrap();
    assert_eq!(tokenizer.eos_ids(), [0, 258, 259]);
    assert_eq!((tokenizer.eos(), tokenizer.bos(), tokenizer.pad()), (Some(0), Some(1), Some(2)));
    assert_eq!(tokenizer.bos_to_add(), None);
    parts.add_bos = true;
    assert_eq!(Tokenizer::from_parts(&parts).unwrap().bos_to_add(), Some(1));
}

#[test]
fn vocabularies_that_do_not_hold_together() {
    use TokenizerFault as F;
    assert_eq!(broken(|p| p.pre = "gpt2\n".into()), F::UnknownPre("gpt2\\n".into()));
    assert_eq!(broken(|p| p.tokens.clear()), F::BadVocabSize(0));
    assert_eq!(
        broken(|p| p.token_types = Some(vec![1; 260].into())),
        F::TypeCount { tokens: 261, types: 260 }
    );
    assert_eq!(
        broken(|p| p.token_types = Some(vec![7; 261].into())),
        F::BadTokenType { id: 0, value: 7 }
    );
    assert_eq!(
        broken(|p| p.tokens[258] = "a".into()),
        F::DuplicateToken { first: 97, second: 258, text: "a".into() }
    );
    assert_eq!(broken(|p| p.tokens[97] = "zz".into()), F::MissingByte(97));
    // A byte whose only token is a control token has none of its own.
    assert_eq!(broken(|p| p.token_types.as_mut().unwrap().to_mut()[97] = 3), F::MissingByte(97));
    assert_eq!(
        broken(|p| p.eos = Some(261)),
        F::SpecialId { what: "eos_token_id", id: 261, vocab: 261 }
    );
    for (what, set) in [
        ("eot_token_id", (|p, id| p.eot = id) as fn(&mut TokenizerParts<'_>, Option<u32>)),
        ("bos_token_id", |p, id| p.bos = id),
        ("padding_token_id", |p, id| p.pad = id),
    ] {
        let want = F::SpecialId { what, id: u32::MAX, vocab: 261 };
        assert_eq!(broken(|p| set(p, Some(u32::MAX))), want);
    }
    assert_eq!(broken(|p| p.add_bos = true), F::NoBos);
    let long = "x".repeat(1 << 20);
    assert_eq!(broken(|p| p.tokens[259] = long.into()), F::TooManySpecials(2));
}

#[test]
fn merges_that_do_not_fit() {
    use TokenizerFault as F;
    for text in ["he", "h e l", " he", "he ", ""] {
        let want = F::BadMerge { rank: 1, text: text.into() };
        assert_eq!(broken(|p| p.merges[1] = text.into()), want);
    }
    // An unknown left half, an unknown right half, an unknown whole, and a whole
    // that is a control token, which ordinary text must not turn into.
    for (text, token) in [("xx e", "xx"), ("h xx", "xx"), ("h h", "hh")] {
        let want = F::MergeToken { rank: 1, token: token.into() };
        assert_eq!(broken(|p| p.merges[1] = text.into()), want);
    }
    let control = broken(|p| p.token_types.as_mut().unwrap().to_mut()[258] = 3);
    assert_eq!(control, F::MergeToken { rank: 2, token: "hell".into() });
    assert_eq!(broken(|p| p.merges.push("h e".into())), F::DuplicateMerge { first: 0, rank: 3 });
}

#[test]
fn ids_rows_and_bytes_from_outside() {
    use TokenizerFault as F;
    let mut tokenizer = Tokenizer::from_parts(&small()).unwrap();
    assert!(tokenizer.check_ids(&[0, 260]).is_ok());
    let want = F::IdOutOfRange { id: 261, at: 1, vocab: 261 };
    assert_eq!(fault(tokenizer.check_ids(&[0, 261])), want);

    assert!(tokenizer.check_rows(261).is_ok());
    for rows in [0, 260, 262] {
        assert_eq!(fault(tokenizer.check_rows(rows)), F::VocabMismatch { tokens: 261, rows });
    }
    let mut parts = small();
    parts.padded_rows = true;
    tokenizer = Tokenizer::from_parts(&parts).unwrap();
    assert!(tokenizer.check_rows(300).is_ok());
    assert_eq!(fault(tokenizer.check_rows(260)), F::VocabMismatch { tokens: 261, rows: 260 });

    assert_eq!(tokenizer.encode_bytes(b"hell", Special::Parse).unwrap(), [258]);
    assert_eq!(fault(tokenizer.encode_bytes(b"he\xff", Special::Parse)), F::NotUtf8 { at: 2 });
}

/// The small one as a `tokenizer.json`.
fn small_json() -> Value {
    let parts = small();
    let vocab = parts.tokens.iter().take(259).enumerate();
    let vocab: serde_json::Map<String, Value> =
        vocab.map(|(id, text)| (text.to_string(), json!(id))).collect();
    let pattern = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    json!({
        "added_tokens": [
            {"id": 260, "content": "<think>", "special": false},
            {"id": 259, "content": "<|im_end|>", "special": true},
        ],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
        ]},
        "post_processor": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false},
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": vocab, "merges": ["h e", ["l", "l"], "he ll"]},
    })
}

fn from_json(value: &Value) -> Result<Tokenizer> {
    Tokenizer::from_json(value.to_string().as_bytes())
}

/// The file is named, and only once.
#[test]
fn a_file_that_is_no_tokenizer_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokenizer.json");
    let fails = || Tokenizer::open_json(&path).unwrap_err();
    assert!(matches!(fails(), Error::Io { path: named, .. } if named == path));
    let bad_merge = |merge: &str| {
        let mut file = small_json();
        file["model"]["merges"] = json!([merge]);
        file.to_string()
    };
    for text in ["", "{}", "[1", &bad_merge("x"), &bad_merge("xx e")] {
        std::fs::write(&path, text).unwrap();
        let error = fails();
        assert!(matches!(&error, Error::TokenizerFile { path: named, .. } if *named == path));
        let line = error.to_string();
        assert_eq!(line.matches("tokenizer.json").count(), 1, "{line}");
    }
    std::fs::write(&path, small_json().to_string()).unwrap();
    assert!(Tokenizer::open_json(&path).is_ok());

    // Sparse: takes no room on disk.
    std::fs::File::create(&path).unwrap().set_len((256 << 20) + 1).unwrap();
    let (len, limit) = ((256 << 20) + 1, 256 << 20);
    let want = FormatFault::FileTooLong { what: "tokenizer.json", len, limit };
    assert!(matches!(fails(), Error::Format { fault, .. } if fault == want));
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert!(matches!(fails(), Error::Format { fault: FormatFault::NotRegular, .. }));
}

#[test]
fn json_that_is_well_formed() {
    let tokenizer = from_json(&small_json()).unwrap();
    let ids = tokenizer.encode("hello<think><|im_end|>", Special::Parse);
    assert_eq!(ids, [258, u32::from(b'o'), 260, 259]);
    assert_eq!((tokenizer.eos(), tokenizer.eos_ids()), (None, &[259][..]));
    assert_eq!(tokenizer.kind(260), Some(TokenKind::UserDefined));
    assert!(tokenizer.check_rows(1000).is_ok());
    // NFC is accepted and not applied: the bytes come back as they went in.
    let text = "e\u{301}";
    assert_eq!(tokenizer.decode(&tokenizer.encode(text, Special::Parse)), text.as_bytes());

    // An added token that the vocabulary lists as well, and fields left out.
    let mut json = small_json();
    json["model"]["vocab"]["<|im_end|>"] = json!(259);
    for field in ["normalizer", "post_processor", "decoder"] {
        json.as_object_mut().unwrap().remove(field);
    }
    let tokenizer = from_json(&json).unwrap();
    assert_eq!(tokenizer.kind(259), Some(TokenKind::Control));
}

#[test]
fn json_that_is_not_understood() {
    use TokenizerFault as F;
    let broken = |at: &str, value: Value| {
        let mut json = small_json();
        match json.pointer_mut(at) {
            Some(old) => *old = value,
            None => {
                let (parent, key) = at.rsplit_once('/').unwrap();
                json.pointer_mut(parent).unwrap()[key] = value;
            }
        }
        fault(from_json(&json))
    };
    for bad in [&b""[..], b"{", b"[]", b"\xff", b"{\"model\": 5}", b"{\"model\": {\"vocab\": {}}}"]
    {
        assert!(matches!(fault(Tokenizer::from_json(bad)), F::BadJson(_)));
    }
    assert!(matches!(broken("/model/vocab/a", json!(-1)), F::BadJson(_)));
    assert_eq!(broken("/model/type", json!("Unigram")), F::UnknownModel("Unigram".into()));
    for (at, value, part) in [
        ("/model/dropout", json!(0.1), "model"),
        ("/model/byte_fallback", json!(true), "model"),
        ("/model/ignore_merges", json!(true), "model"),
        ("/model/continuing_subword_prefix", json!("##"), "model"),
        ("/model/end_of_word_suffix", json!("</w>"), "model"),
        ("/normalizer/type", json!("NFKC"), "normalizer"),
        ("/post_processor/type", json!("TemplateProcessing"), "post_processor"),
        ("/decoder/type", json!("WordPiece"), "decoder"),
        ("/added_tokens/0/lstrip", json!(true), "added token"),
        ("/added_tokens/0/rstrip", json!(true), "added token"),
        ("/added_tokens/0/single_word", json!(true), "added token"),
    ] {
        let fault = broken(at, value);
        assert!(
            matches!(&fault, F::UnsupportedJson { part: p, .. } if *p == part),
            "{at}: {fault}"
        );
    }
    let words = "/pre_tokenizer/pretokenizers";
    for (at, value) in [
        ("/pre_tokenizer".to_owned(), Value::Null),
        ("/pre_tokenizer/type".to_owned(), json!("Split")),
        (words.to_owned(), json!([])),
        (format!("{words}/0/type"), json!("Whitespace")),
        (format!("{words}/0/behavior"), json!("Removed")),
        (format!("{words}/0/invert"), json!(true)),
        (format!("{words}/0/pattern"), Value::Null),
        (format!("{words}/0/pattern"), json!({"String": " "})),
        (format!("{words}/0/pattern/Regex"), json!(r"\p{N}{1,3}|\s+")),
        (format!("{words}/1/add_prefix_space"), json!(true)),
        (format!("{words}/1/use_regex"), json!(true)),
    ] {
        let fault = broken(&at, value);
        assert!(matches!(fault, F::UnknownPre(_)), "{at}: {fault}");
    }
    assert_eq!(broken("/added_tokens/0/id", json!(261)), F::IdNotInOrder { id: 261, want: 260 });
    assert_eq!(broken("/added_tokens/0/id", json!(5)), F::IdNotInOrder { id: 5, want: 6 });
    assert_eq!(
        broken("/added_tokens/0/id", json!(u32::MAX)),
        F::IdNotInOrder { id: u32::MAX, want: 260 }
    );
    let twice = small_json().to_string().replace("\"b\":98", "\"a\":98");
    assert!(matches!(fault(Tokenizer::from_json(twice.as_bytes())), F::DuplicateToken { .. }));
}

/// The small one as GGUF metadata, with one key changed or, for `None`, left out.
fn from_gguf(change: (&str, Option<Meta>)) -> Result<Tokenizer> {
    let parts = small();
    let strings = |list: &[std::borrow::Cow<'_, str>]| {
        Meta::Array(Array::strings(list.iter().map(|text| text.as_bytes())))
    };
    let mut keys = vec![
        ("tokenizer.ggml.model", Meta::string("gpt2")),
        ("tokenizer.ggml.pre", Meta::string("qwen2")),
        ("tokenizer.ggml.tokens", strings(&parts.tokens)),
        ("tokenizer.ggml.token_type", Meta::Array(Array::i32s(&parts.token_types.unwrap()))),
        ("tokenizer.ggml.merges", strings(&parts.merges)),
        ("tokenizer.ggml.eos_token_id", Meta::U32(259)),
        ("tokenizer.chat_template", Meta::string("{{ messages }}")),
    ];
    keys.retain(|(key, _)| *key != change.0);
    if let (key, Some(value)) = change {
        keys.push((key, value));
    }
    let mut writer = GgufWriter::new(Path::new("small.gguf"));
    for (key, value) in keys {
        writer.metadata(key, value).unwrap();
    }
    let bytes = writer.begin(Vec::new()).unwrap().finish().unwrap();
    let file = GgufFile::from_bytes(Path::new("small.gguf"), bytes.into()).unwrap();
    Tokenizer::from_gguf(file.metadata())
}

#[test]
fn gguf_metadata_that_is_right_and_wrong() {
    use TokenizerFault as F;
    let tokenizer = from_gguf(("", None)).unwrap();
    assert_eq!(tokenizer.encode("hell<think>", Special::Parse), [258, 260]);
    assert_eq!(tokenizer.chat_template(), Some("{{ messages }}"));
    assert!(from_gguf(("tokenizer.ggml.eos_token_id", None)).unwrap().eos().is_none());
    let bos = from_gguf(("tokenizer.ggml.add_bos_token", Some(Meta::Bool(false)))).unwrap();
    assert_eq!(bos.bos_to_add(), None);
    let plain = from_gguf(("tokenizer.ggml.token_type", None)).unwrap();
    assert_eq!(plain.id_of("<think>"), None);

    for key in ["model", "pre", "tokens", "merges"].map(|key| format!("tokenizer.ggml.{key}")) {
        let error = from_gguf((&key, None)).err();
        assert!(
            matches!(&error, Some(Error::Format { fault: FormatFault::MissingKey { .. }, .. })),
            "{error:?}"
        );
        let error = from_gguf((&key, Some(Meta::U32(1)))).err();
        assert!(
            matches!(&error, Some(Error::Format { fault: FormatFault::WrongType { .. }, .. })),
            "{error:?}"
        );
    }
    let model = ("tokenizer.ggml.model", Some(Meta::string("llama")));
    assert_eq!(fault(from_gguf(model)), F::UnknownModel("llama".into()));
    let pre = ("tokenizer.ggml.pre", Some(Meta::string("llama-bpe")));
    assert_eq!(fault(from_gguf(pre)), F::UnknownPre("llama-bpe".into()));
    for (what, key) in [("token", "tokenizer.ggml.tokens"), ("merge", "tokenizer.ggml.merges")] {
        let texts = Meta::Array(Array::strings([&b"a"[..], b"\xff"]));
        assert_eq!(fault(from_gguf((key, Some(texts)))), F::TextNotUtf8 { what, at: 1 });
    }
}
