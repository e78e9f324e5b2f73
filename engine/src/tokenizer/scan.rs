//! Pre-tokenizers: hand-written scanners that cut text into the words BPE works
//! on. They are written out from the patterns below, take time linear in the text
//! and never backtrack further than one character, whatever the text.

use super::classes::{Class, class};
use super::fault::{TokenizerFault, shown};

/// The pattern of `qwen2`, as tokenizer.json files spell it.
pub(super) const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// The pattern of `qwen35`: that of `qwen2` with marks counted as letters.
pub(super) const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// A known pre-tokenizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pre {
    /// Qwen2, Qwen2.5, Qwen3.
    Qwen2,
    /// Qwen3.5 and later.
    Qwen35,
}

impl Pre {
    /// The pre-tokenizer of that name in GGUF files (`tokenizer.ggml.pre`).
    ///
    /// # Errors
    /// [`TokenizerFault::UnknownPre`] for any other name.
    pub fn from_name(name: &str) -> Result<Self, TokenizerFault> {
        match name {
            "qwen2" => Ok(Self::Qwen2),
            "qwen35" => Ok(Self::Qwen35),
            _ => Err(TokenizerFault::UnknownPre(shown(name))),
        }
    }

    /// Its name in GGUF files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Qwen2 => "qwen2",
            Self::Qwen35 => "qwen35",
        }
    }

    /// The words of a text, in order; put together they are the text.
    pub(super) fn words(self, text: &str) -> Words<'_> {
        Words { pre: self, rest: text }
    }

    /// Characters that make up words: letters, and with `qwen35` marks too.
    #[inline]
    fn is_letter(self, c: char) -> bool {
        match class(c) {
            Class::Letter => true,
            Class::Mark => self == Self::Qwen35,
            _ => false,
        }
    }

    /// Characters that make up symbol runs: not space, letter or number. Marks are
    /// among them with `qwen2`.
    #[inline]
    fn is_symbol(self, c: char) -> bool {
        match class(c) {
            Class::Other => true,
            Class::Mark => self == Self::Qwen2,
            _ => false,
        }
    }

    /// Bytes of the first word. Each step below is one branch of the pattern, in
    /// the pattern's order.
    fn first_word(self, text: &str) -> usize {
        let mut chars = text.chars();
        let Some(first) = chars.next() else { return 0 };
        let after = chars.as_str();
        let second = chars.next();

        if first == '\''
            && let Some(len) = contraction(after)
        {
            return 1 + len;
        }
        if self.is_letter(first) {
            return run(text, |c| self.is_letter(c));
        }
        let first_class = class(first);
        if first_class == Class::Number {
            return first.len_utf8();
        }
        if !is_newline(first) && second.is_some_and(|c| self.is_letter(c)) {
            return first.len_utf8() + run(after, |c| self.is_letter(c));
        }
        if self.is_symbol(first) {
            return self.symbols(text);
        }
        if first == ' ' && second.is_some_and(|c| self.is_symbol(c)) {
            return 1 + self.symbols(after);
        }
        spaces(text)
    }

    /// Bytes of a run of symbols and the newlines right after it.
    fn symbols(self, text: &str) -> usize {
        let len = run(text, |c| self.is_symbol(c));
        len + run(text.get(len..).unwrap_or(""), is_newline)
    }
}

/// The words of a text.
pub(super) struct Words<'t> {
    pre: Pre,
    rest: &'t str,
}

impl<'t> Iterator for Words<'t> {
    type Item = &'t str;

    fn next(&mut self) -> Option<&'t str> {
        if self.rest.is_empty() {
            return None;
        }
        let len = self.pre.first_word(self.rest);
        let (word, rest) = self.rest.split_at_checked(len).unwrap_or((self.rest, ""));
        self.rest = rest;
        Some(word)
    }
}

fn is_newline(c: char) -> bool {
    matches!(c, '\r' | '\n')
}

/// Bytes of the longest start of `text` whose characters all pass.
fn run(text: &str, pass: impl Fn(char) -> bool) -> usize {
    text.find(|c| !pass(c)).unwrap_or(text.len())
}

/// Bytes of a contraction's letters. U+017F is the one character besides S whose
/// case folding is s.
fn contraction(text: &str) -> Option<usize> {
    let mut chars = text.chars();
    let first = chars.next()?;
    match first.to_ascii_lowercase() {
        's' | 't' | 'm' | 'd' => return Some(1),
        '\u{17f}' => return Some(first.len_utf8()),
        _ => {}
    }
    let second = chars.next()?;
    match (first.to_ascii_lowercase(), second.to_ascii_lowercase()) {
        ('r' | 'v', 'e') | ('l', 'l') => Some(2),
        _ => None,
    }
}

/// Bytes of the first word of a text that starts with white space: up to the last
/// newline of the run if it has one; else the run, less its last character when
/// something follows that can take it as its prefix.
fn spaces(text: &str) -> usize {
    let len = run(text, |c| class(c) == Class::Space);
    let (blank, rest) = text.split_at_checked(len).unwrap_or((text, ""));
    if let Some(at) = blank.rfind(is_newline) {
        return at + 1;
    }
    let last = blank.chars().next_back().map_or(0, char::len_utf8);
    if rest.is_empty() || last == len { len } else { len - last }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::LazyLock;

    use proptest::prelude::*;

    fn words(pre: Pre, text: &str) -> Vec<&str> {
        pre.words(text).collect()
    }

    #[test]
    fn branches_by_hand() {
        let both = [Pre::Qwen2, Pre::Qwen35];
        for pre in both {
            assert_eq!(words(pre, ""), Vec::<&str>::new());
            assert_eq!(words(pre, "I'LL go"), ["I", "'LL", " go"]);
            assert_eq!(words(pre, "'\u{17f}ab"), ["'\u{17f}", "ab"]);
            assert_eq!(words(pre, "a  b"), ["a", " ", " b"]);
            assert_eq!(words(pre, "12³"), ["1", "2", "³"]);
            assert_eq!(words(pre, "x +=\r\n\n y"), ["x", " +=\r\n\n", " y"]);
            assert_eq!(words(pre, " \n \n  z"), [" \n \n", " ", " z"]);
            assert_eq!(words(pre, "a \t"), ["a", " \t"]);
            assert_eq!(words(pre, "  1"), [" ", " ", "1"]);
        }
        // A combining acute accent is a letter to one and a symbol to the other.
        assert_eq!(words(Pre::Qwen35, "e\u{301}a"), ["e\u{301}a"]);
        assert_eq!(words(Pre::Qwen2, "e\u{301}a"), ["e", "\u{301}a"]);
    }

    /// Text thick with the characters that the patterns tell apart.
    fn spiky_text() -> impl Strategy<Value = String> {
        let spiky = prop::sample::select(
            "  \t\n\r\u{b}\u{85}\u{a0}\u{2028}\u{3000}''sStTrReEvVmMlLdD\u{17f}\u{212a}x9²Ⅷ٣.,!+\u{301}\u{94d}\u{20dd}é中க😀\u{0}\u{378}\u{200d}"
                .chars()
                .collect::<Vec<_>>(),
        );
        prop::collection::vec(prop_oneof![8 => spiky, 1 => any::<char>()], 0..40)
            .prop_map(|chars| chars.into_iter().collect())
    }

    static ORACLES: LazyLock<[(Pre, fancy_regex::Regex); 2]> = LazyLock::new(|| {
        [(Pre::Qwen2, QWEN2), (Pre::Qwen35, QWEN35)]
            .map(|(pre, pattern)| (pre, fancy_regex::Regex::new(pattern).unwrap()))
    });

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        /// The published patterns, run by a regex engine, cut the same words.
        #[test]
        fn agrees_with_the_published_patterns(text in spiky_text()) {
            for (pre, regex) in ORACLES.iter() {
                let want: Vec<&str> =
                    regex.find_iter(&text).map(|m| m.unwrap().as_str()).collect();
                prop_assert_eq!(words(*pre, &text), want);
            }
        }
    }
}
