//! The tokenizer: text to ids and back.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::Path;

use super::bpe::{Merges, Scratch};
use super::fault::TokenizerFault;
use super::gguf;
use super::hash::KeyedHash;
use super::json;
use super::parts::{TokenKind, TokenizerParts};
use super::scan::Pre;
use super::special::{Part, Specials};
use super::vocab::Vocab;
use crate::format::{Metadata, read_small};
use crate::{Error, Result};

/// Texts of control tokens that end an answer, whatever the file names as `eos`.
const END_TEXTS: [&str; 6] =
    ["<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|end|>"];

/// Bytes of a `tokenizer.json`; the largest have some tens of megabytes.
const MAX_JSON: u64 = 256 << 20;

/// Words up to this many bytes are remembered within one call.
const CACHED_WORD: usize = 64;

/// Words remembered before the memory is emptied.
const CACHED_WORDS: usize = 1 << 16;

/// What to do with text that spells a special token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// It becomes that token.
    Parse,
    /// It is text like any other: for text that must not steer the model.
    Ignore,
}

/// A byte-level BPE tokenizer. Text is never normalised: decoding what was encoded
/// gives the same bytes.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    pre: Pre,
    vocab: Vocab,
    merges: Merges,
    specials: Specials,
    ends: Vec<u32>,
    eos: Option<u32>,
    bos: Option<u32>,
    pad: Option<u32>,
    add_bos: bool,
    chat_template: Option<String>,
    padded_rows: bool,
}

impl Tokenizer {
    /// Checks `parts` and builds the tokenizer.
    ///
    /// # Errors
    /// A [`TokenizerFault`] that names the first inconsistency.
    pub fn from_parts(parts: &TokenizerParts<'_>) -> Result<Self> {
        let pre = Pre::from_name(&parts.pre)?;
        let vocab = Vocab::new(parts)?;
        for (what, id) in [
            ("eos_token_id", parts.eos),
            ("eot_token_id", parts.eot),
            ("bos_token_id", parts.bos),
            ("padding_token_id", parts.pad),
        ] {
            match id {
                Some(id) if id as usize >= vocab.len() => {
                    let vocab = vocab.len();
                    return Err(TokenizerFault::SpecialId { what, id, vocab }.into());
                }
                _ => {}
            }
        }
        if parts.add_bos && parts.bos.is_none() {
            return Err(TokenizerFault::NoBos.into());
        }
        let merges = vocab.merges(parts)?;
        let special = vocab.kinds().zip(&parts.tokens).filter(|((_, kind), _)| kind.is_special());
        let specials = Specials::new(special.map(|((id, _), text)| (id, text.as_ref())).collect())?;
        let by_text = END_TEXTS.iter().filter_map(|text| specials.id_of(text));
        let by_text = by_text.filter(|&id| vocab.kind(id) == Some(TokenKind::Control));
        let mut ends: Vec<u32> = parts.eos.into_iter().chain(parts.eot).chain(by_text).collect();
        ends.sort_unstable();
        ends.dedup();
        Ok(Self {
            pre,
            vocab,
            merges,
            specials,
            ends,
            eos: parts.eos,
            bos: parts.bos,
            pad: parts.pad,
            add_bos: parts.add_bos,
            chat_template: parts.chat_template.as_deref().map(str::to_owned),
            padded_rows: parts.padded_rows,
        })
    }

    /// Reads the tokenizer of a GGUF file; one with a vocabulary and no tensors will do.
    ///
    /// # Errors
    /// A [`FormatFault`](crate::format::FormatFault) when a key is missing or of the
    /// wrong type; a [`TokenizerFault`] when what they say cannot be used.
    pub fn from_gguf(meta: &Metadata) -> Result<Self> {
        Self::from_parts(&gguf::read(meta)?)
    }

    /// Reads a Hugging Face `tokenizer.json`. Such a file names no end token; those
    /// of [`eos_ids`](Self::eos_ids) are found by their texts.
    ///
    /// # Errors
    /// A [`TokenizerFault`]: bad JSON, a feature or a pattern that is not known, or
    /// an inconsistency.
    pub fn from_json(bytes: &[u8]) -> Result<Self> {
        Self::from_parts(&json::read(bytes)?)
    }

    /// As [`from_json`](Self::from_json), from a file: a regular one of at most 256 MiB.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Format`] and [`Error::TokenizerFile`], which name the file.
    pub fn open_json(path: &Path) -> Result<Self> {
        let absent = || Error::io(path, ErrorKind::NotFound.into());
        let bytes = read_small(path, "tokenizer.json", MAX_JSON)?.ok_or_else(absent)?;
        Self::from_json(&bytes).map_err(|error| error.in_tokenizer_file(path))
    }

    /// The ids of a text, in time linear in its length (n log n at worst, for a word
    /// and a vocabulary made to that end). No start token is added; see
    /// [`bos_to_add`](Self::bos_to_add).
    pub fn encode(&self, text: &str, special: Special) -> Vec<u32> {
        let mut encoder = Encoder::new(self);
        match special {
            Special::Ignore => encoder.text(text),
            Special::Parse => self.specials.cut(text, |part| match part {
                Part::Text(text) => encoder.text(text),
                Part::Special(id) => encoder.out.push(id),
            }),
        }
        encoder.out
    }

    /// The ids of a text given as bytes.
    ///
    /// # Errors
    /// [`TokenizerFault::NotUtf8`] when the bytes are not UTF-8.
    pub fn encode_bytes(&self, text: &[u8], special: Special) -> Result<Vec<u32>> {
        let text = std::str::from_utf8(text)
            .map_err(|error| TokenizerFault::NotUtf8 { at: error.valid_up_to() })?;
        Ok(self.encode(text, special))
    }

    /// The bytes of a token: of a special token its text, of padding none. `None`
    /// for an id outside the vocabulary.
    pub fn token_bytes(&self, id: u32) -> Option<&[u8]> {
        self.vocab.bytes(id)
    }

    /// The bytes of all tokens, special ones included, one after another. Ids
    /// outside the vocabulary have none; [`check_ids`](Self::check_ids) finds them.
    pub fn decode(&self, ids: &[u32]) -> Vec<u8> {
        ids.iter().filter_map(|&id| self.token_bytes(id)).flatten().copied().collect()
    }

    /// Checks ids that come from outside.
    ///
    /// # Errors
    /// [`TokenizerFault::IdOutOfRange`] for the first id outside the vocabulary.
    pub fn check_ids(&self, ids: &[u32]) -> Result<()> {
        let vocab = self.vocab_size();
        match ids.iter().enumerate().find(|&(_, &id)| id as usize >= vocab) {
            Some((at, &id)) => Err(TokenizerFault::IdOutOfRange { id, at, vocab }.into()),
            None => Ok(()),
        }
    }

    /// Checks the vocabulary against a model whose embedding has that many rows.
    ///
    /// # Errors
    /// [`TokenizerFault::VocabMismatch`] when they do not go together.
    pub fn check_rows(&self, rows: usize) -> Result<()> {
        let tokens = self.vocab_size();
        if rows == tokens || (self.padded_rows && rows > tokens) {
            return Ok(());
        }
        Err(TokenizerFault::VocabMismatch { tokens, rows }.into())
    }

    /// Number of tokens; ids are below it.
    pub fn vocab_size(&self) -> usize {
        self.vocab.len()
    }

    /// Every token that ends an answer, ascending: the file's `eos` and `eot`, and
    /// the control tokens known to do so (`<|im_end|>`, `<|endoftext|>`, ...).
    pub fn eos_ids(&self) -> &[u32] {
        &self.ends
    }

    /// The file's own end token.
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// The file's start token.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// The start token, if the model wants it before every text.
    pub fn bos_to_add(&self) -> Option<u32> {
        self.bos.filter(|_| self.add_bos)
    }

    /// The file's padding token.
    pub fn pad(&self) -> Option<u32> {
        self.pad
    }

    /// The id of the special token with that text.
    pub fn id_of(&self, special_text: &str) -> Option<u32> {
        self.specials.id_of(special_text)
    }

    /// The kind of a token; `None` outside the vocabulary.
    pub fn kind(&self, id: u32) -> Option<TokenKind> {
        self.vocab.kind(id)
    }

    /// Whether text is searched for this token: control and user-defined tokens.
    /// Only control tokens ([`kind`](Self::kind)) are left out of an answer's text.
    pub fn is_special(&self, id: u32) -> bool {
        self.kind(id).is_some_and(TokenKind::is_special)
    }

    /// Source of the file's chat template.
    pub fn chat_template(&self) -> Option<&str> {
        self.chat_template.as_deref()
    }

    /// The pre-tokenizer.
    pub fn pre(&self) -> Pre {
        self.pre
    }
}

/// One call of `encode`: its output, and where in it the words met before are.
struct Encoder<'t> {
    tokenizer: &'t Tokenizer,
    scratch: Scratch,
    seen: HashMap<&'t str, (usize, usize), KeyedHash>,
    out: Vec<u32>,
}

impl<'t> Encoder<'t> {
    fn new(tokenizer: &'t Tokenizer) -> Self {
        let seen = HashMap::with_hasher(tokenizer.merges.hasher());
        Self { tokenizer, scratch: Scratch::default(), seen, out: Vec::new() }
    }

    /// Appends the ids of a text without special tokens.
    fn text(&mut self, text: &'t str) {
        for word in self.tokenizer.pre.words(text) {
            let start = self.out.len();
            match self.seen.get(word) {
                Some(&(from, to)) if to <= start => self.out.extend_from_within(from..to),
                _ => {
                    self.tokenizer.merges.encode(word.as_bytes(), &mut self.scratch, &mut self.out);
                    self.remember(word, start);
                }
            }
        }
    }

    fn remember(&mut self, word: &'t str, start: usize) {
        if word.len() > CACHED_WORD {
            return;
        }
        if self.seen.len() >= CACHED_WORDS {
            self.seen.clear();
        }
        self.seen.insert(word, (start, self.out.len()));
    }
}
