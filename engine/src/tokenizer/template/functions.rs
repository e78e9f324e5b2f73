//! What a template can call besides what Jinja gives it.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use minijinja::{Error, ErrorKind};

use super::clock;

/// A template's own words for why it stops; kept as the source of the engine's error
/// so that it can be told from the engine's failures.
#[derive(Debug)]
pub(super) struct Raised(pub(super) String);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

/// `raise_exception(message)`: ends the run.
pub(super) fn raise_exception(message: String) -> Result<String, Error> {
    let error = Error::new(ErrorKind::InvalidOperation, "raised by the template");
    Err(error.with_source(Raised(message)))
}

/// `strftime_now(format)`: the date and time, in UTC, in the manner of C's strftime.
pub(super) fn strftime_now(format: &str) -> Result<String, Error> {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    clock::strftime(format, seconds).map_err(|letter| {
        let detail = format!("strftime_now does not know %{letter}");
        Error::new(ErrorKind::InvalidOperation, detail)
    })
}
