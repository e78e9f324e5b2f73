//! Finding special tokens in text.

use std::collections::HashMap;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};

use super::fault::TokenizerFault;

/// Bytes that the texts of all special tokens may have together; real ones have some
/// hundred. The automaton takes many times as much.
const MAX_BYTES: usize = 1 << 20;

/// The special tokens of a vocabulary and an automaton that finds them all in one
/// pass; where several start at one place the longest is taken.
#[derive(Clone, Debug)]
pub(super) struct Specials {
    ids: Vec<u32>,
    by_text: HashMap<String, u32>,
    finder: Option<AhoCorasick>,
}

impl Specials {
    /// Specials by id and text; those with an empty text cannot be found.
    pub(super) fn new(tokens: Vec<(u32, &str)>) -> Result<Self, TokenizerFault> {
        let tokens: Vec<_> = tokens.into_iter().filter(|(_, text)| !text.is_empty()).collect();
        let bytes = tokens.iter().fold(0usize, |sum, (_, text)| sum.saturating_add(text.len()));
        if bytes > MAX_BYTES {
            return Err(TokenizerFault::TooManySpecials(tokens.len()));
        }
        let finder = if tokens.is_empty() {
            None
        } else {
            // Of the kinds of automaton the one that grows with the bytes alone: left to
            // choose, the builder takes hundreds of times the bytes of some texts.
            let built = AhoCorasick::builder()
                .kind(Some(AhoCorasickKind::ContiguousNFA))
                .match_kind(MatchKind::LeftmostLongest)
                .build(tokens.iter().map(|(_, text)| text));
            Some(built.map_err(|_| TokenizerFault::TooManySpecials(tokens.len()))?)
        };
        let ids = tokens.iter().map(|&(id, _)| id).collect();
        let by_text = tokens.into_iter().map(|(id, text)| (text.to_owned(), id)).collect();
        Ok(Self { ids, by_text, finder })
    }

    /// The id of a special token.
    pub(super) fn id_of(&self, text: &str) -> Option<u32> {
        self.by_text.get(text).copied()
    }

    /// Cuts text at its special tokens and hands out the parts in order.
    pub(super) fn cut<'t>(&self, text: &'t str, mut part: impl FnMut(Part<'t>)) {
        let mut at = 0;
        for found in self.finder.iter().flat_map(|finder| finder.find_iter(text)) {
            part(Part::Text(text.get(at..found.start()).unwrap_or("")));
            if let Some(&id) = self.ids.get(found.pattern().as_usize()) {
                part(Part::Special(id));
            }
            at = found.end();
        }
        part(Part::Text(text.get(at..).unwrap_or("")));
    }
}

/// A part of a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part<'t> {
    /// Ordinary text, perhaps empty.
    Text(&'t str),
    /// A special token.
    Special(u32),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(specials: &[(u32, &str)], text: &str) -> String {
        let mut out = String::new();
        Specials::new(specials.to_vec()).unwrap().cut(text, |part| match part {
            Part::Text(text) => out += text,
            Part::Special(id) => out += &format!("[{id}]"),
        });
        out
    }

    /// An automaton of the whole megabyte takes a few dozen bytes for each: left to its
    /// own choice the builder takes 500.
    #[test]
    fn memory_stays_in_proportion_to_the_texts() {
        let mut state = 5u32;
        let mut letter = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            char::from_u32(0x100 + (state >> 16) % 0xe00).unwrap()
        };
        let texts: Vec<String> = (0..90).map(|_| (0..4000).map(|_| letter()).collect()).collect();
        let bytes: usize = texts.iter().map(String::len).sum();
        let specials = Specials::new((0..90).zip(texts.iter().map(String::as_str)).collect());
        let specials = specials.unwrap();
        let memory = specials.finder.as_ref().map_or(0, AhoCorasick::memory_usage);
        assert!(bytes > 700_000 && memory < 40 * bytes, "{memory} for {bytes}");
        let text = format!("a{}b", texts[7]);
        let mut found = Vec::new();
        specials.cut(&text, |part| found.push(part));
        assert_eq!(found, [Part::Text("a"), Part::Special(7), Part::Text("b")]);
    }

    #[test]
    fn the_longest_of_those_that_start_first() {
        let specials = [(1, "<a>"), (2, "<a>b"), (3, "b<c>"), (4, "")];
        assert_eq!(cut(&specials, "x<a>b<c>y"), "x[2]<c>y");
        assert_eq!(cut(&specials, "<a><a>b<c>"), "[1][2]<c>");
        assert_eq!(cut(&specials, "é<a"), "é<a");
        assert_eq!(cut(&specials, ""), "");
        assert_eq!(cut(&[], "<a>"), "<a>");
    }
}
