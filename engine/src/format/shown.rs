//! Names out of files, made safe to print on one line.

use std::fmt::{self, Write};
use std::path::Path;

/// How much of a name an error message shows.
const MOST_CHARS: usize = 96;
/// How much of another library's explanation it shows.
const MOST_DETAIL: usize = 240;

/// Quotes a name that came out of a file: control characters escaped, long names cut.
pub(crate) struct Shown<'a>(pub(crate) &'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("'")?;
        let whole = one_line(f, self.0, MOST_CHARS)?;
        f.write_str(if whole { "'" } else { "'..." })
    }
}

/// An explanation that may quote a file: escaped and cut likewise, without quotes.
pub(crate) struct Detail<'a>(pub(crate) &'a str);

impl fmt::Display for Detail<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = one_line(f, self.0, MOST_DETAIL)?;
        f.write_str(if whole { "" } else { "..." })
    }
}

/// Writes up to `most` characters on one line; true when that was all.
fn one_line(f: &mut fmt::Formatter<'_>, s: &str, most: usize) -> Result<bool, fmt::Error> {
    for (i, c) in s.chars().enumerate() {
        if i == most {
            return Ok(false);
        }
        match c {
            // Printable: escaping them would only double what is escaped already.
            '\'' | '"' | '\\' => write!(f, "{c}")?,
            _ => write!(f, "{}", c.escape_debug())?,
        }
    }
    Ok(true)
}

/// A path on one line: control characters escaped, all else as it is and in full, so that
/// it can be found.
pub(crate) struct ShownPath<'a>(pub(crate) &'a Path);

impl fmt::Display for ShownPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.to_string_lossy().chars() {
            if c.is_control() {
                write!(f, "{}", c.escape_debug())?;
            } else {
                f.write_char(c)?;
            }
        }
        Ok(())
    }
}

/// The start of a file, for "this is not a model" messages: hexadecimal and text.
pub(super) struct FirstBytes<'a>(pub(super) &'a [u8; 4]);

impl fmt::Display for FirstBytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d] = self.0;
        write!(f, "{a:02x} {b:02x} {c:02x} {d:02x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_stay_short_and_on_one_line() {
        assert_eq!(Shown("blk.0").to_string(), "'blk.0'");
        assert_eq!(Shown("a\nb\u{1b}[31m").to_string(), "'a\\nb\\u{1b}[31m'");
        let long = Shown(&"x".repeat(100_000)).to_string();
        assert!(long.len() < 110 && long.ends_with("'..."), "{long}");
        let nested = Detail(&format!("{}: bad", Shown("it's\n"))).to_string();
        assert_eq!(nested, "'it's\\n': bad");
        assert!(Detail(&"x".repeat(1000)).to_string().len() < 250);
    }

    #[test]
    fn paths_stay_whole_and_on_one_line() {
        let long = format!("/{}/m.gguf", "x".repeat(1000));
        assert_eq!(ShownPath(Path::new(&long)).to_string(), long);
        let hostile = Path::new("it's \u{e9}\\\n\u{1b}[31m");
        assert_eq!(ShownPath(hostile).to_string(), "it's \u{e9}\\\\n\\u{1b}[31m");
    }
}
