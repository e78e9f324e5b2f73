//! What can go wrong with a chat template.

use std::error::Error as StdError;

use minijinja::{Error as JinjaError, ErrorKind};

use super::functions::Raised;

/// A fault of compiling or running a chat template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateFault {
    /// The source is larger than any sensible template.
    #[error("the chat template has {size} bytes; at most {limit} are taken")]
    TooLarge {
        /// Bytes of source.
        size: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// The source is not a template.
    #[error("the chat template does not compile (line {line}): {detail}")]
    Syntax {
        /// Line of the source, from 1; 0 when not known.
        line: usize,
        /// What is wrong.
        detail: String,
    },
    /// The template refuses the conversation, in its own words.
    #[error("the chat template refuses this conversation: {0}")]
    Raised(String),
    /// The template went wrong: an unknown filter, a value that is not there, ...
    #[error("the chat template failed (line {line}): {detail}")]
    Failed {
        /// Line of the source, from 1; 0 when not known.
        line: usize,
        /// What went wrong.
        detail: String,
    },
    /// The template did more work, made more data or took more time than is allowed.
    #[error("the chat template does too much work; is it an endless loop?")]
    OutOfFuel,
    /// The template calls itself too deeply, or nests too deeply.
    #[error("the chat template nests too deeply")]
    TooDeep,
    /// The template wrote too much.
    #[error("the chat template writes more than {limit} bytes")]
    TooLong {
        /// Bytes allowed.
        limit: usize,
    },
    /// The thread for the template could not be had, or died.
    #[error("the chat template could not be run on a thread of its own: {0}")]
    Thread(String),
}

impl TemplateFault {
    /// The fault behind an error of the template engine: the innermost one, since a
    /// macro or an include wraps those of its body.
    pub(super) fn of(error: &JinjaError) -> Self {
        let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
        while let Some(inner) = cause {
            if let Some(Raised(message)) = inner.downcast_ref() {
                return Self::Raised(one_line(message));
            }
            if let Some(inner) = inner.downcast_ref::<JinjaError>() {
                if inner.kind() == ErrorKind::OutOfFuel {
                    return Self::OutOfFuel;
                }
                if inner.detail().is_some_and(|detail| detail.contains("recursion limit")) {
                    return Self::TooDeep;
                }
            }
            cause = inner.source();
        }
        let line = error.line().unwrap_or(0);
        let detail = match error.detail() {
            Some(detail) if error.kind() == ErrorKind::SyntaxError => one_line(detail),
            Some(detail) => one_line(&format!("{}: {detail}", error.kind())),
            None => error.kind().to_string(),
        };
        match error.kind() {
            ErrorKind::SyntaxError | ErrorKind::BadEscape => Self::Syntax { line, detail },
            _ => Self::Failed { line, detail },
        }
    }
}

/// A template's words on one line of at most 400 characters.
fn one_line(text: &str) -> String {
    let plain = |c: char| if c.is_control() || "\u{2028}\u{2029}".contains(c) { ' ' } else { c };
    let mut out: String = text.chars().take(400).map(plain).collect();
    if text.chars().nth(400).is_some() {
        out.push_str("...");
    }
    out
}
