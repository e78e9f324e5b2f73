//! What can go wrong with a tokenizer.

/// A fault of building or using a tokenizer. The file, where there is one, is named by
/// [`Error::TokenizerFile`](crate::Error::TokenizerFile). Text that comes from a file is
/// escaped and cut short, so that every message stays on one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerFault {
    /// The pre-tokenizer is not one this build knows.
    #[error("unknown pre-tokenizer \"{0}\"; this build knows qwen2 and qwen35")]
    UnknownPre(String),
    /// The tokenizer is not byte-level BPE.
    #[error("tokenizer model \"{0}\" is not supported; only byte-level BPE (gpt2) is")]
    UnknownModel(String),
    /// A token or merge of a GGUF file is not UTF-8.
    #[error("{what} {at} is not UTF-8")]
    TextNotUtf8 {
        /// `token` or `merge`.
        what: &'static str,
        /// Its place in the list.
        at: usize,
    },
    /// A `tokenizer.json` is not JSON, or not of that shape.
    #[error("not the JSON of a tokenizer: {0}")]
    BadJson(String),
    /// A `tokenizer.json` asks for something that is not done here.
    #[error("the {part} asks for \"{what}\", which is not supported")]
    UnsupportedJson {
        /// Which part of the file.
        part: &'static str,
        /// What it asks for.
        what: String,
    },
    /// The ids of a `tokenizer.json` leave one out or give one twice.
    #[error("id {id} comes where {want} should; ids must count up from 0")]
    IdNotInOrder {
        /// The id met.
        id: u32,
        /// The id that should have come.
        want: u32,
    },
    /// The vocabulary lists no tokens, or more than ids can name.
    #[error("the vocabulary has {0} tokens; from 1 to 2147483647 can be used")]
    BadVocabSize(usize),
    /// The list of token types does not go with the list of tokens.
    #[error("{tokens} tokens but {types} token types; the file is inconsistent")]
    TypeCount {
        /// Tokens listed.
        tokens: usize,
        /// Types listed.
        types: usize,
    },
    /// A token type outside the known ones.
    #[error("token {id} has type {value}; known types are 1 to 6")]
    BadTokenType {
        /// The token.
        id: usize,
        /// Its type as written.
        value: i32,
    },
    /// Two ids have the same text.
    #[error("tokens {first} and {second} have the same text \"{text}\"")]
    DuplicateToken {
        /// The lower id.
        first: u32,
        /// The higher id.
        second: u32,
        /// Their text.
        text: String,
    },
    /// A byte has no token of its own, so some text could not be written.
    #[error("the vocabulary has no token for byte 0x{0:02x}; byte-level BPE needs all 256")]
    MissingByte(u8),
    /// A merge is not two tokens parted by one space.
    #[error("merge {rank} (\"{text}\") is not two tokens parted by one space")]
    BadMerge {
        /// Position in the list of merges.
        rank: usize,
        /// The merge as written.
        text: String,
    },
    /// A merge names, or makes, something that is not an ordinary token.
    #[error("merge {rank} needs \"{token}\", which is no ordinary token of the vocabulary")]
    MergeToken {
        /// Position in the list of merges.
        rank: usize,
        /// The text that was looked for.
        token: String,
    },
    /// The same pair is listed twice.
    #[error("merge {rank} repeats merge {first}")]
    DuplicateMerge {
        /// Where the pair came first.
        first: usize,
        /// Where it came again.
        rank: usize,
    },
    /// A named special token lies outside the vocabulary.
    #[error("{what} is {id}, but the vocabulary has {vocab} tokens")]
    SpecialId {
        /// Which token (`eos_token_id`, ...).
        what: &'static str,
        /// The id as written.
        id: u32,
        /// Tokens in the vocabulary.
        vocab: usize,
    },
    /// The file asks for a start token and does not say which.
    #[error("add_bos_token is set, but there is no bos_token_id")]
    NoBos,
    /// The special tokens could not be made into a matcher.
    #[error("the {0} special tokens are too large to match")]
    TooManySpecials(usize),
    /// The model's embedding does not go with the vocabulary.
    #[error("the vocabulary has {tokens} tokens, but the model has rows for {rows}")]
    VocabMismatch {
        /// Tokens in the vocabulary.
        tokens: usize,
        /// Rows of the model's embedding or output matrix.
        rows: usize,
    },
    /// An id that the vocabulary does not have.
    #[error("token id {id} (number {at}) is outside the vocabulary of {vocab} tokens")]
    IdOutOfRange {
        /// The id.
        id: u32,
        /// Its place in the list, from 0.
        at: usize,
        /// Tokens in the vocabulary.
        vocab: usize,
    },
    /// Text handed in as bytes is not UTF-8.
    #[error("the text is not UTF-8 (byte {at})")]
    NotUtf8 {
        /// The first byte that does not fit.
        at: usize,
    },
}

/// Text of a file made fit for a message: escaped, at most 120 characters.
pub(super) fn shown(text: &str) -> String {
    let mut out: String = text.chars().take(120).flat_map(char::escape_debug).collect();
    if text.chars().nth(120).is_some() {
        out.push_str("...");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_text_stays_on_one_short_line() {
        assert_eq!(shown("a\nb\u{1b}[0m"), "a\\nb\\u{1b}[0m");
        assert_eq!(shown(&"é".repeat(200)), format!("{}...", "é".repeat(120)));
    }
}
