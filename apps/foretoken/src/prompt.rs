//! Prompts and other texts: from an argument, a file or stdin.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use foretoken::generate::GenerateFault;

use crate::args::PromptArgs;
use crate::failure::{shown, usage};

/// No prompt is longer; reading stops here should a file never end.
const MAX_BYTES: u64 = 1 << 28;
/// What most texts are.
const PROMPT: &str = "the prompt";

/// The text of a command: exactly the bytes given, checked to be UTF-8.
///
/// # Errors
/// Usage when there is none and stdin is a terminal; files that cannot be read; text
/// that is not UTF-8.
pub(crate) fn text(args: &PromptArgs) -> Result<String> {
    if let Some(text) = args.text.as_ref().or(args.prompt.as_ref()) {
        return from_argument(text);
    }
    if let Some(path) = &args.prompt_file {
        return from_file(path, PROMPT);
    }
    if io::stdin().is_terminal() {
        return Err(usage("no prompt: give it as an argument, with --prompt-file, or on stdin"));
    }
    from_file(Path::new("-"), PROMPT)
}

/// As [`text`], and not empty.
///
/// # Errors
/// As [`text`], and `EmptyPrompt`.
pub(crate) fn non_empty_text(args: &PromptArgs) -> Result<String> {
    let text = text(args)?;
    if text.is_empty() {
        let fault = GenerateFault::EmptyPrompt;
        return match &args.prompt_file {
            Some(path) => Err(fault).with_context(|| name(path)),
            None => Err(fault.into()),
        };
    }
    Ok(text)
}

fn from_argument(text: &OsStr) -> Result<String> {
    utf8(text.as_encoded_bytes().to_vec(), PROMPT)
}

/// The text of a file; `-` and `/dev/stdin` mean stdin. `what` it is goes into messages.
///
/// # Errors
/// A file that cannot be read, is too long, or is not UTF-8; its name is in the error.
pub(crate) fn from_file(path: &Path, what: &str) -> Result<String> {
    let bytes = if is_stdin(path) {
        read(io::stdin().lock())
    } else {
        File::open(path).map_err(anyhow::Error::from).and_then(read)
    };
    bytes.and_then(|bytes| utf8(bytes, what)).with_context(|| name(path))
}

fn is_stdin(path: &Path) -> bool {
    path == Path::new("-") || path == Path::new("/dev/stdin")
}

/// A text's file as messages name it.
pub(crate) fn name(path: &Path) -> String {
    if is_stdin(path) { "stdin".to_owned() } else { shown(path) }
}

fn read(from: impl Read) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        bail!("longer than {MAX_BYTES} bytes");
    }
    Ok(bytes)
}

fn utf8(bytes: Vec<u8>, what: &str) -> Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        anyhow!("{what} is not valid UTF-8 (byte {at})")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_exactly_and_bad_bytes_are_placed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p");
        std::fs::write(&path, "a\r\n").unwrap();
        assert_eq!(from_file(&path, PROMPT).unwrap(), "a\r\n");
        std::fs::write(&path, b"ab\xffc").unwrap();
        for what in [PROMPT, "the text"] {
            let error = format!("{:#}", from_file(&path, what).unwrap_err());
            assert!(error.ends_with(&format!("p: {what} is not valid UTF-8 (byte 2)")), "{error}");
        }
        assert!(from_file(&dir.path().join("absent"), PROMPT).is_err());
    }
}
