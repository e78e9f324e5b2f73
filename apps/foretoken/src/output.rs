//! What goes to stdout: JSON, tables, numbers fit for people.

use std::io::{self, BufWriter, StdoutLock, Write};

use anyhow::Result;
use foretoken::device::MemorySize;
use serde::Serialize;

use crate::failure::escaped;

/// Buffered stdout. What is written must be flushed, so that a failure is seen.
pub(crate) fn stdout() -> BufWriter<Stdout> {
    BufWriter::new(Stdout::new())
}

/// Stdout, which its failures name.
pub(crate) struct Stdout(StdoutLock<'static>);

impl Stdout {
    /// Stdout, for this thread alone.
    pub(crate) fn new() -> Self {
        Self(io::stdout().lock())
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(named)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(named)
    }
}

/// Says that it was stdout that could not be written.
pub(crate) fn named(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("stdout: {error}"))
}

/// One JSON value on one line.
///
/// # Errors
/// When stdout can not be written.
pub(crate) fn print_json(value: &impl Serialize) -> Result<()> {
    let mut out = stdout();
    write_json(&mut out, value)?;
    Ok(out.flush()?)
}

/// One JSON value on one line, more to come.
///
/// # Errors
/// When stdout can not be written.
pub(crate) fn write_json(out: &mut impl Write, value: &impl Serialize) -> Result<()> {
    serde_json::to_writer(&mut *out, value).map_err(io::Error::from)?;
    Ok(out.write_all(b"\n")?)
}

/// How a column is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// A table of text.
pub(crate) struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table with these columns.
    pub(crate) fn new(columns: &[(&'static str, Align)]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row; missing cells stay empty, and control characters are escaped: names of
    /// files and of what is in them may hold any.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| escaped(&cell)).collect());
    }

    /// Whether it has no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn widths(&self) -> Vec<usize> {
        let width = |i: usize, head: &str| {
            let cells = self.rows.iter().filter_map(|r| r.get(i));
            cells.map(|c| c.chars().count()).max().unwrap_or(0).max(head.chars().count())
        };
        self.columns.iter().enumerate().map(|(i, (head, _))| width(i, head)).collect()
    }

    fn padded(&self, row: &[String], widths: &[usize]) -> Vec<String> {
        let columns = self.columns.iter().zip(widths).enumerate();
        let cell = |i: usize| row.get(i).map_or("", String::as_str);
        columns
            .map(|(i, ((_, align), &width))| match align {
                Align::Left => format!("{:<width$}", cell(i)),
                Align::Right => format!("{:>width$}", cell(i)),
            })
            .collect()
    }

    fn heads(&self) -> Vec<String> {
        self.columns.iter().map(|(head, _)| (*head).to_owned()).collect()
    }

    /// Writes it with spaces between the columns.
    ///
    /// # Errors
    /// Those of the writer.
    pub(crate) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let widths = self.widths();
        for row in std::iter::once(&self.heads()).chain(&self.rows) {
            let line = self.padded(row, &widths).join("  ");
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }

    /// Writes it in Markdown.
    ///
    /// # Errors
    /// Those of the writer.
    pub(crate) fn write_markdown(&self, out: &mut impl Write) -> io::Result<()> {
        let widths = self.widths();
        writeln!(out, "| {} |", self.padded(&self.heads(), &widths).join(" | "))?;
        let rule = self.columns.iter().zip(&widths).map(|((_, align), &width)| match align {
            Align::Left => "-".repeat(width + 2),
            Align::Right => format!("{}:", "-".repeat(width + 1)),
        });
        writeln!(out, "|{}|", rule.collect::<Vec<_>>().join("|"))?;
        for row in &self.rows {
            writeln!(out, "| {} |", self.padded(row, &widths).join(" | "))?;
        }
        Ok(())
    }
}

/// Columns that output is made for.
pub(crate) const WIDTH: usize = 80;

/// The text in lines of at most [`WIDTH`] columns, broken at spaces, all but the first
/// indented. Words that are longer stay whole.
pub(crate) fn wrapped(text: &str, indent: usize) -> String {
    let mut out = String::new();
    let mut column = 0;
    for (at, word) in text.split(' ').enumerate() {
        let length = word.chars().count();
        if column > indent && column + 1 + length > WIDTH {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent));
            column = indent;
        } else if at > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out
}

/// Bytes in the unit that gives a short number.
pub(crate) fn size(bytes: u64) -> String {
    MemorySize(bytes).to_string()
}

/// The text of a token's bytes, quoted and escaped so that it stays on its line. Bytes
/// that are no text, as of a character that two tokens share, are shown as `\xe6`.
pub(crate) fn quoted(bytes: &[u8]) -> String {
    let mut out = String::from('"');
    for chunk in bytes.utf8_chunks() {
        let valid = format!("{:?}", chunk.valid());
        out.push_str(valid.get(1..valid.len() - 1).unwrap_or_default());
        out.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    out.push('"');
    out
}

/// The text of bytes, and when it can not stand for them the bytes.
pub(crate) fn text_of(bytes: &[u8]) -> (String, Option<Vec<u8>>) {
    let text = String::from_utf8_lossy(bytes);
    let lost = text.as_bytes() != bytes;
    (text.into_owned(), lost.then(|| bytes.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_text_are_kept() {
        assert_eq!(quoted("a\n\"é\\".as_bytes()), r#""a\n\"é\\""#);
        assert_eq!(quoted(b"a\xe6\x97b\xff"), r#""a\xe6\x97b\xff""#);
        assert_eq!(quoted(b""), r#""""#);
        assert_eq!(text_of("é".as_bytes()), ("é".to_owned(), None));
        assert_eq!(text_of(b"a\xe6"), ("a\u{fffd}".to_owned(), Some(vec![b'a', 0xe6])));
        // The replacement character itself is text.
        assert_eq!(text_of("\u{fffd}".as_bytes()).1, None);
    }

    #[test]
    fn failures_of_stdout_name_it_and_keep_their_kind() {
        let error = named(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        assert!(error.to_string().starts_with("stdout: "), "{error}");
    }

    #[test]
    fn long_lines_are_wrapped_between_words() {
        let text = format!("  problem: {}", "word ".repeat(40).trim_end());
        let lines = wrapped(&text, 4);
        assert!(lines.lines().count() > 2);
        assert!(lines.lines().all(|line| line.len() <= WIDTH));
        assert!(lines.starts_with("  problem: word"), "{lines}");
        assert!(lines.lines().skip(1).all(|line| line.starts_with("    word")), "{lines}");
        assert_eq!(lines.split_whitespace().count(), 41);
        let long = "x".repeat(200);
        assert_eq!(wrapped(&format!("abc {long}"), 2), format!("abc\n  {long}"));
    }

    #[test]
    fn cells_stay_on_their_line() {
        let mut table = Table::new(&[("name", Align::Left)]);
        table.row(["a\nb\u{1b}[31m".into()]);
        let mut plain = Vec::new();
        table.write(&mut plain).unwrap();
        assert_eq!(String::from_utf8(plain).unwrap(), "name\na\\nb\\u{1b}[31m\n");
    }

    #[test]
    fn tables_line_up() {
        let mut table = Table::new(&[("name", Align::Left), ("n", Align::Right)]);
        table.row(["a".into(), "10".into()]);
        table.row(["longer".into()]);
        let mut plain = Vec::new();
        table.write(&mut plain).unwrap();
        assert_eq!(String::from_utf8(plain).unwrap(), "name     n\na       10\nlonger\n");
        let mut markdown = Vec::new();
        table.write_markdown(&mut markdown).unwrap();
        let expected = "| name   |  n |\n|--------|---:|\n| a      | 10 |\n| longer |    |\n";
        assert_eq!(String::from_utf8(markdown).unwrap(), expected);
    }
}
