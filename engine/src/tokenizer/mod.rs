//! Byte-level BPE: text to ids and back.
//!
//! `scan` cuts text into words (with `classes` for Unicode), `bpe` turns a word
//! into ids, `special` finds special tokens, `vocab` holds the checked vocabulary
//! and `encode` ties them together; `utf8` makes text of a stream of token bytes.
//! `gguf` and `json` read the two kinds of file; `template` has chat templates.
//! Depends on `format` for GGUF metadata, and on nothing else of the crate.

mod alphabet;
mod bpe;
mod class_table;
mod classes;
mod encode;
mod fault;
mod gguf;
mod hash;
mod json;
mod parts;
mod scan;
mod special;
mod template;
mod utf8;
mod vocab;

pub use encode::{Special, Tokenizer};
pub use fault::TokenizerFault;
pub use parts::{TokenKind, TokenizerParts};
pub use scan::Pre;
pub use template::{ChatMessage, ChatTemplate, RenderOptions, TemplateFault};
pub use utf8::Utf8Stream;
