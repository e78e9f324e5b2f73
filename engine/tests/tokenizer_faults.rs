//! Every fault of building and using a tokenizer, from a small good one broken in
//! one place at a time.

use foretoken::tokenizer::{Special, TokenKind, Tokenizer, TokenizerFault, TokenizerParts};
use foretoken::{Error, Result};

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
