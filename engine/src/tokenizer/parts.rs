//! What a model file says about its tokenizer, before it is checked.

use std::borrow::Cow;

use super::fault::TokenizerFault;

/// What kind of token an id is (`tokenizer.ggml.token_type` of GGUF).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// Ordinary text (1).
    Normal,
    /// Stands for text that has no token (2); byte-level vocabularies need none.
    Unknown,
    /// Steers the model and is not part of the text: `<|im_end|>` (3).
    Control,
    /// Text that is always one token: `<think>` (4).
    UserDefined,
    /// Pads the vocabulary; has no text (5).
    Unused,
    /// One byte, written `<0xAB>` (6).
    Byte,
}

impl TokenKind {
    /// The kind of that number in a GGUF file.
    pub(super) fn from_number(id: usize, value: i32) -> Result<Self, TokenizerFault> {
        Ok(match value {
            1 => Self::Normal,
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => return Err(TokenizerFault::BadTokenType { id, value }),
        })
    }

    /// Whether text is searched for tokens of this kind before it is cut in words.
    pub(super) fn is_special(self) -> bool {
        matches!(self, Self::Unknown | Self::Control | Self::UserDefined)
    }
}

/// Everything a tokenizer is made from. [`Tokenizer::from_parts`] checks it.
///
/// [`Tokenizer::from_parts`]: super::Tokenizer::from_parts
#[derive(Clone, Debug, Default)]
pub struct TokenizerParts<'a> {
    /// Name of the pre-tokenizer: `qwen2` or `qwen35`.
    pub pre: Cow<'a, str>,
    /// Text of each token by id. Ordinary tokens are written in the byte-level
    /// alphabet (`Ġ` for a space), special ones as they are.
    pub tokens: Vec<Cow<'a, str>>,
    /// Kind of each token as GGUF numbers it; `None` when all are ordinary.
    pub token_types: Option<Cow<'a, [i32]>>,
    /// Merges in the order of their rank, each two tokens parted by one space.
    pub merges: Vec<Cow<'a, str>>,
    /// The token that ends a text.
    pub eos: Option<u32>,
    /// The token that ends a turn, where the file names one apart from `eos`.
    pub eot: Option<u32>,
    /// The token that starts a text.
    pub bos: Option<u32>,
    /// The token that fills unused places of a batch.
    pub pad: Option<u32>,
    /// Whether the model wants `bos` before every text.
    pub add_bos: bool,
    /// Jinja source of the chat template.
    pub chat_template: Option<Cow<'a, str>>,
    /// Whether the model may have more rows than there are tokens
    /// (`tokenizer.json` lists no padding; GGUF lists every row).
    pub padded_rows: bool,
}
