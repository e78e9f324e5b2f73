//! How a command ends when it does not succeed: one line on stderr and an exit code.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use crate::output::named;

/// Bad usage that only shows after the flags are parsed: exit code 2.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// A usage error as an [`anyhow::Error`].
pub(crate) fn usage(message: impl Into<String>) -> anyhow::Error {
    Usage(message.into()).into()
}

/// Ends after the command line was not understood, or was only a question for help.
pub(crate) fn of_parsing(error: &clap::Error) -> ExitCode {
    let printed = error.print().and_then(|()| io::stdout().flush());
    match printed {
        _ if error.exit_code() != 0 => ExitCode::from(2),
        Ok(()) => ExitCode::SUCCESS,
        Err(unwritten) => of_running(&named(unwritten).into()),
    }
}

/// Ends after a command failed. A reader that went away is no failure.
pub(crate) fn of_running(error: &anyhow::Error) -> ExitCode {
    if is_closed_pipe(error) {
        return ExitCode::SUCCESS;
    }
    // With stderr closed too there is nobody left to tell.
    let _ = writeln!(io::stderr(), "error: {}", one_line(error));
    ExitCode::from(if error.is::<Usage>() { 2 } else { 1 })
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let io = cause.downcast_ref::<io::Error>();
        io.is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    })
}

/// The error and its causes in one line, without repeating a cause that the message
/// around it has spelled out already.
pub(crate) fn one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain() {
        let text = cause.to_string();
        if line.is_empty() {
            line = text;
        } else if !line.contains(&text) {
            line = format!("{line}: {text}");
        }
    }
    escaped(&line)
}

/// A path as messages and tables show it: on one line.
pub(crate) fn shown(path: &Path) -> String {
    escaped(&path.to_string_lossy())
}

/// Names from files and arguments may hold anything, line breaks and terminal
/// sequences included.
pub(crate) fn escaped(text: &str) -> String {
    text.chars().flat_map(escape_control).collect()
}

fn escape_control(c: char) -> impl Iterator<Item = char> {
    // Besides control characters, those that part lines or turn the direction of text.
    let is_odd = c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let shown = is_odd.then(|| c.escape_debug());
    let plain = (!is_odd).then_some(c);
    shown.into_iter().flatten().chain(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn causes_are_joined_once_and_on_one_line() {
        let io = io::Error::new(io::ErrorKind::NotFound, "no\nfile");
        let error = Err::<(), _>(io).context("a: no\nfile").unwrap_err();
        assert_eq!(one_line(&error), "a: no\\nfile");
        let error = anyhow::anyhow!("inner").context("outer \u{1b}[0m");
        assert_eq!(one_line(&error), "outer \\u{1b}[0m: inner");
    }

    #[test]
    fn odd_characters_are_escaped_and_others_kept() {
        let text = "é'\"\\ \u{301}中 \r\u{9b}\u{202e}\u{2028}";
        assert_eq!(escaped(text), "é'\"\\ \u{301}中 \\r\\u{9b}\\u{202e}\\u{2028}");
    }

    #[test]
    fn only_a_closed_pipe_is_quiet() {
        let closed = anyhow::Error::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(is_closed_pipe(&closed.context("writing")));
        assert!(!is_closed_pipe(&io::Error::from(io::ErrorKind::NotFound).into()));
    }
}
