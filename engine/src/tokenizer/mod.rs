//! Byte-level BPE: text to ids and back.
//!
//! `scan` cuts text into words (with `classes` for Unicode), `bpe` turns a word
//! into ids, `special` finds special tokens, `vocab` holds the checked vocabulary
//! and `encode` ties them together; `utf8` makes text of a stream of token bytes.
//! Depends on nothing but the crate's errors.

mod alphabet;
mod bpe;
mod class_table;
mod classes;
mod encode;
mod fault;
mod json;
mod parts;
mod scan;
mod special;
mod utf8;
mod vocab;

pub use encode::{Special, Tokenizer};
pub use fault::TokenizerFault;
pub use parts::{TokenKind, TokenizerParts};
pub use scan::Pre;
pub use utf8::Utf8Stream;
