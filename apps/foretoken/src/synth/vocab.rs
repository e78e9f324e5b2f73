//! A vocabulary made from nothing: byte-level BPE that every text can be written in.
//!
//! 256 tokens are the bytes. Each further one is an earlier token and a letter, breadth
//! first, so that all are different, and its merge comes with it. At the end lie special
//! tokens where the Qwen models have theirs, and unused rows.

use foretoken::format::{Array, Value};

/// Letters that tokens are lengthened by.
const LETTERS: &str = "etaoinshrdlucmfwypvbgkjqxzETAOIN";
/// The letters that tokens begin with, a space among them.
const FIRST: &str = "\u{120}etaoinshrdlucmfwypvbgkjqxzETAOIN";

/// What `tokenizer.ggml.token_type` calls ordinary text, control tokens, text that is
/// always one token, and unused rows.
const NORMAL: i32 = 1;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;

/// Special tokens of the Qwen models by their distance from the first, as far as something
/// here asks for them.
const SPECIAL: [(usize, &str, i32); 8] = [
    (0, "<|endoftext|>", CONTROL),
    (1, "<|im_start|>", CONTROL),
    (2, "<|im_end|>", CONTROL),
    (14, "<tool_call>", USER_DEFINED),
    (15, "</tool_call>", USER_DEFINED),
    (24, "<think>", USER_DEFINED),
    (25, "</think>", USER_DEFINED),
    (26, "<|mask|>", CONTROL),
];

const CHAT_TEMPLATE: &str = "{%- for m in messages -%}<|im_start|>{{ m.role }}\n\
    {{ m.content }}<|im_end|>\n{%- endfor -%}\
    {%- if add_generation_prompt -%}<|im_start|>assistant\n{%- endif -%}";

/// Where the special tokens of a vocabulary lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    first: usize,
    mask: usize,
}

impl Places {
    /// Those of the Qwen vocabularies of these sizes; in others the last eight rows.
    pub(crate) fn new(vocab: usize) -> Self {
        let first = match vocab {
            248_320 => 248_044,
            151_936 => 151_643,
            _ => return Self { first: vocab.saturating_sub(8), mask: vocab.saturating_sub(5) },
        };
        Self { first, mask: first + 26 }
    }

    /// The token at drafted positions.
    pub(crate) fn mask(self) -> u32 {
        u32::try_from(self.mask).unwrap_or(u32::MAX)
    }

    fn id(self, n: usize) -> Value {
        Value::U32(u32::try_from(self.first + n).unwrap_or(u32::MAX))
    }
}

/// The tokens, their types and the merges.
struct Vocabulary {
    tokens: Vec<String>,
    types: Vec<i32>,
    merges: Vec<String>,
}

/// The settings `tokenizer.*` of a vocabulary of so many rows, at least 264.
pub(crate) fn settings(vocab: usize) -> Vec<(String, Value)> {
    let places = Places::new(vocab);
    let made = make(vocab, places);
    let entry = |key: &str, value| (format!("tokenizer.ggml.{key}"), value);
    vec![
        entry("model", Value::string("gpt2")),
        entry("pre", Value::string("qwen35")),
        entry("tokens", Value::Array(Array::strings(made.tokens))),
        entry("token_type", Value::Array(Array::i32s(&made.types))),
        entry("merges", Value::Array(Array::strings(made.merges))),
        entry("eos_token_id", places.id(2)),
        entry("padding_token_id", places.id(0)),
        entry("mask_token_id", Value::U32(places.mask())),
        entry("add_bos_token", Value::Bool(false)),
        ("tokenizer.chat_template".to_owned(), Value::string(CHAT_TEMPLATE)),
    ]
}

fn make(vocab: usize, places: Places) -> Vocabulary {
    let mut tokens: Vec<String> = byte_letters().map(String::from).collect();
    let mut merges = Vec::new();
    let mut parents: Vec<String> = FIRST.chars().map(String::from).collect();
    let mut at = 0;
    'grow: while let Some(parent) = parents.get(at).cloned() {
        for letter in LETTERS.chars() {
            if tokens.len() >= places.first {
                break 'grow;
            }
            merges.push(format!("{parent} {letter}"));
            tokens.push(format!("{parent}{letter}"));
            parents.push(format!("{parent}{letter}"));
        }
        at += 1;
    }
    let mut types = vec![NORMAL; tokens.len()];
    for id in tokens.len()..vocab {
        let special = SPECIAL.iter().find(|(n, name, _)| match *name {
            "<|mask|>" => id == places.mask,
            _ => id == places.first + n && id != places.mask,
        });
        let (text, kind) = match special {
            Some(&(_, text, kind)) => (text.to_owned(), kind),
            None => (format!("[PAD{id}]"), UNUSED),
        };
        tokens.push(text);
        types.push(kind);
    }
    Vocabulary { tokens, types, merges }
}

/// The letters that stand for the bytes in vocabularies of this kind: printable Latin-1
/// for itself, U+0100 and on for the others.
fn byte_letters() -> impl Iterator<Item = char> {
    let printable = |byte: &u8| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..);
    let others = (0u8..=255).filter(move |byte| !printable(byte)).count() as u32;
    let own = (0u8..=255).filter(printable).map(char::from);
    own.chain((0x100..0x100 + others).filter_map(char::from_u32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretoken::tokenizer::{Special, Tokenizer, TokenizerParts};

    fn tokenizer(vocab: usize) -> Tokenizer {
        let made = make(vocab, Places::new(vocab));
        assert_eq!(made.tokens.len(), vocab);
        Tokenizer::from_parts(&TokenizerParts {
            pre: "qwen35".into(),
            tokens: made.tokens.into_iter().map(Into::into).collect(),
            token_types: Some(made.types.into()),
            merges: made.merges.into_iter().map(Into::into).collect(),
            ..TokenizerParts::default()
        })
        .unwrap()
    }

    #[test]
    fn every_text_comes_back_and_words_are_merged() {
        for vocab in [264, 300, 8192, 151_936, 248_320] {
            let tokenizer = tokenizer(vocab);
            assert_eq!(tokenizer.vocab_size(), vocab);
            let text = "the tone\n\u{0}\u{7f} é 日本 🦀<|im_end|> Tea";
            let ids = tokenizer.encode(text, Special::Parse);
            let bytes: Vec<u8> =
                ids.iter().flat_map(|&id| tokenizer.token_bytes(id).unwrap().to_vec()).collect();
            assert_eq!(bytes, text.as_bytes(), "{vocab}");
            assert!(vocab < 8192 || tokenizer.encode("the", Special::Parse).len() < 3);
        }
    }

    #[test]
    fn special_tokens_lie_where_the_models_have_them() {
        for (vocab, start, mask) in
            [(248_320, 248_045, 248_070), (151_936, 151_644, 151_669), (8192, 8185, 8187)]
        {
            let tokenizer = tokenizer(vocab);
            assert_eq!(tokenizer.encode("<|im_start|>", Special::Parse), [start]);
            assert_eq!(tokenizer.encode("<|mask|>", Special::Parse), [mask]);
            assert_eq!(Places::new(vocab).mask(), mask);
        }
    }
}
