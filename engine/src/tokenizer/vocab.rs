//! The checked vocabulary: bytes and kind of each token, and the merges.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::alphabet::{byte_of, push_bytes};
use super::bpe::Merges;
use super::fault::{TokenizerFault, shown};
use super::hash::KeyedHash;
use super::parts::{TokenKind, TokenizerParts};

/// Bytes and kind of each token. All bytes lie in one block, token after token.
#[derive(Clone, Debug)]
pub(super) struct Vocab {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    kinds: Vec<TokenKind>,
}

impl Vocab {
    /// Checks the tokens of `parts` and decodes their texts.
    pub(super) fn new(parts: &TokenizerParts<'_>) -> Result<Self, TokenizerFault> {
        let count = parts.tokens.len();
        if count == 0 || i32::try_from(count).is_err() {
            return Err(TokenizerFault::BadVocabSize(count));
        }
        let kinds = match &parts.token_types {
            None => vec![TokenKind::Normal; count],
            Some(types) if types.len() != count => {
                return Err(TokenizerFault::TypeCount { tokens: count, types: types.len() });
            }
            Some(types) => {
                let numbered = types.iter().enumerate();
                numbered.map(|(id, &n)| TokenKind::from_number(id, n)).collect::<Result<_, _>>()?
            }
        };
        let mut vocab = Self { bytes: Vec::new(), ends: Vec::with_capacity(count), kinds };
        for (text, &kind) in parts.tokens.iter().zip(&vocab.kinds) {
            match kind {
                TokenKind::Normal => push_bytes(text, &mut vocab.bytes),
                TokenKind::Byte => match written_byte(text) {
                    Some(byte) => vocab.bytes.push(byte),
                    None => push_bytes(text, &mut vocab.bytes),
                },
                TokenKind::Unused => {}
                TokenKind::Unknown | TokenKind::Control | TokenKind::UserDefined => {
                    vocab.bytes.extend_from_slice(text.as_bytes());
                }
            }
            vocab.ends.push(vocab.bytes.len());
        }
        Ok(vocab)
    }

    /// Number of tokens.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The bytes a token stands for.
    pub(super) fn bytes(&self, id: u32) -> Option<&[u8]> {
        let id = id as usize;
        let end = *self.ends.get(id)?;
        let start = id.checked_sub(1).and_then(|before| self.ends.get(before)).copied();
        self.bytes.get(start.unwrap_or(0)..end)
    }

    /// The kind of a token.
    pub(super) fn kind(&self, id: u32) -> Option<TokenKind> {
        self.kinds.get(id as usize).copied()
    }

    /// Ids with their kinds.
    pub(super) fn kinds(&self) -> impl Iterator<Item = (u32, TokenKind)> + '_ {
        (0u32..).zip(self.kinds.iter().copied())
    }

    /// Checks the merges of `parts` against the tokens. Only ordinary tokens may
    /// take part: else ordinary text could turn into a special token.
    pub(super) fn merges(&self, parts: &TokenizerParts<'_>) -> Result<Merges, TokenizerFault> {
        let ids = self.texts(parts)?;
        let mut bytes = [None; 256];
        for (text, &id) in &ids {
            let mut chars = text.chars();
            if let (Some(c), None) = (chars.next(), chars.next())
                && let Some(slot) = byte_of(c).and_then(|byte| bytes.get_mut(usize::from(byte)))
                && self.kind(id) == Some(TokenKind::Normal)
            {
                *slot = Some(id);
            }
        }
        let mut byte_ids = [0; 256];
        for ((byte, slot), id) in (0u8..=255).zip(&mut byte_ids).zip(bytes) {
            *slot = id.ok_or(TokenizerFault::MissingByte(byte))?;
        }

        let ordinary = |rank: usize, text: &str| match ids.get(text) {
            Some(&id) if self.kind(id) == Some(TokenKind::Normal) => Ok(id),
            _ => Err(TokenizerFault::MergeToken { rank, token: shown(text) }),
        };
        let mut merges = Merges::new(byte_ids, parts.merges.len());
        let mut whole = String::new();
        for (number, (rank, text)) in (0u32..).zip(parts.merges.iter().enumerate()) {
            let bad = || TokenizerFault::BadMerge { rank, text: shown(text) };
            let (left, right) = text.split_once(' ').ok_or_else(bad)?;
            if left.is_empty() || right.is_empty() || right.contains(' ') {
                return Err(bad());
            }
            whole.clear();
            whole.push_str(left);
            whole.push_str(right);
            let pair = (ordinary(rank, left)?, ordinary(rank, right)?);
            merges.add(number, pair, ordinary(rank, &whole)?)?;
        }
        Ok(merges)
    }

    /// Ids by text as written.
    fn texts<'p>(
        &self,
        parts: &'p TokenizerParts<'_>,
    ) -> Result<HashMap<&'p str, u32, KeyedHash>, TokenizerFault> {
        let mut ids = HashMap::with_capacity_and_hasher(self.len(), KeyedHash::new());
        for (id, text) in (0u32..).zip(&parts.tokens) {
            match ids.entry(text.as_ref()) {
                Entry::Vacant(slot) => {
                    slot.insert(id);
                }
                Entry::Occupied(slot) => {
                    let (first, text) = (*slot.get(), shown(text));
                    return Err(TokenizerFault::DuplicateToken { first, second: id, text });
                }
            }
        }
        Ok(ids)
    }
}

/// The byte of a text such as `<0x0A>`.
fn written_byte(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    let two_digits = digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_hexdigit());
    if two_digits { u8::from_str_radix(digits, 16).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_by_kind() {
        let tokens = ["Ġa", "<0x0A>", "<|é|>", "[PAD3]", "<0xZZ>", "Ġ b"];
        let parts = TokenizerParts {
            tokens: tokens.map(Into::into).to_vec(),
            token_types: Some(vec![1, 6, 3, 5, 6, 1].into()),
            ..TokenizerParts::default()
        };
        let vocab = Vocab::new(&parts).unwrap();
        let bytes: Vec<_> = (0..7).map(|id| vocab.bytes(id)).collect();
        let want: [&[u8]; 6] = [b" a", b"\n", "<|é|>".as_bytes(), b"", b"<0xZZ>", "Ġ b".as_bytes()];
        assert_eq!(bytes[..6], want.map(Some));
        assert_eq!(bytes[6], None);
    }
}
