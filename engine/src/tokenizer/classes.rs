//! Unicode classes of the pre-tokenizer patterns: `\p{L}`, `\p{M}`, `\p{N}` and
//! `\s` (White_Space), of Unicode 16.0. They are a table of this crate, not of a
//! dependency or the compiler, so that ids never change under an upgrade.

use super::class_table::RANGES;

/// What the patterns can tell of a character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// `\p{L}`.
    Letter,
    /// `\p{M}`.
    Mark,
    /// `\p{N}`.
    Number,
    /// `\s`.
    Space,
    /// Everything else: punctuation, symbols, controls, unassigned.
    Other,
}

/// The class of a character.
#[inline]
pub(super) fn class(c: char) -> Class {
    match c {
        'a'..='z' | 'A'..='Z' => Class::Letter,
        '0'..='9' => Class::Number,
        ' ' | '\t'..='\r' => Class::Space,
        '\0'..='\x7f' => Class::Other,
        '\u{85}' | '\u{a0}' | '\u{1680}' | '\u{2000}'..='\u{200a}' => Class::Space,
        '\u{2028}' | '\u{2029}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => Class::Space,
        _ => wide(u32::from(c)),
    }
}

/// The class of a character beyond ASCII that is not a space.
fn wide(code: u32) -> Class {
    let after = RANGES.partition_point(|&(start, _, _)| start <= code);
    match after.checked_sub(1).and_then(|at| RANGES.get(at)) {
        Some(&(_, end, class)) if code <= end => class,
        _ => Class::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use regex_syntax::hir::{Class as HirClass, HirKind};
    use std::fmt::Write as _;

    fn ranges_of(pattern: &str) -> Vec<(u32, u32)> {
        let hir = regex_syntax::parse(pattern).expect("a class");
        let HirKind::Class(HirClass::Unicode(class)) = hir.kind() else { panic!("a class") };
        class.iter().map(|r| (u32::from(r.start()), u32::from(r.end()))).collect()
    }

    /// The whole table file, made from the Unicode tables of `regex-syntax` 0.8.
    fn generated() -> String {
        let mut rows = Vec::new();
        for (pattern, name) in [(r"\p{L}", 'L'), (r"\p{M}", 'M'), (r"\p{N}", 'N')] {
            rows.extend(ranges_of(pattern).into_iter().map(|(a, b)| (a, b, name)));
        }
        rows.sort_unstable();
        let mut out = String::from(
            "//! Generated; do not edit. Letters, marks and numbers of Unicode 16.0 as\n\
             //! (first, last, class), ascending. `FORETOKEN_WRITE_TABLES=1 cargo test -p\n\
             //! foretoken tokenizer::classes` writes this file from `regex-syntax`.\n\n\
             use super::classes::Class::{self, Letter as L, Mark as M, Number as N};\n\n\
             #[rustfmt::skip]\npub(super) static RANGES: &[(u32, u32, Class)] = &[\n",
        );
        for row in rows.chunks(4) {
            let cells = row.iter().map(|(a, b, c)| format!("({a:#x}, {b:#x}, {c})"));
            let _ = writeln!(out, "    {},", cells.collect::<Vec<_>>().join(", "));
        }
        out.push_str("];\n");
        out
    }

    #[test]
    fn table_is_that_of_unicode_16() {
        let fresh = generated();
        if std::env::var_os("FORETOKEN_WRITE_TABLES").is_some() {
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/tokenizer/class_table.rs");
            std::fs::write(path, &fresh).unwrap();
        }
        assert!(fresh == include_str!("class_table.rs"), "class_table.rs is out of date");
    }

    #[test]
    fn every_character_has_the_class_of_the_pattern() {
        let mut want = vec![Class::Other; 0x11_0000];
        for (pattern, class) in [
            (r"\p{L}", Class::Letter),
            (r"\p{M}", Class::Mark),
            (r"\p{N}", Class::Number),
            (r"\s", Class::Space),
        ] {
            for (a, b) in ranges_of(pattern) {
                want[a as usize..=b as usize].fill(class);
            }
        }
        for c in '\0'..=char::MAX {
            assert_eq!(class(c), want[c as usize], "{c:?}");
        }
    }
}
