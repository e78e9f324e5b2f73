//! Text on its way to stdout while it is generated.

use std::io::{self, Write};

use foretoken::generate::Cancel;

use crate::output::Stdout;

/// Writes text piece by piece. When the reader goes away the request is cancelled.
pub(super) struct TextStream {
    out: Option<Stdout>,
    cancel: Cancel,
    failure: Option<io::Error>,
    /// The text so far ends in a line break, or there is none.
    at_line_start: bool,
}

impl TextStream {
    /// A stream to stdout, or to nowhere when `open` is false.
    pub(super) fn new(open: bool, cancel: Cancel) -> Self {
        let out = open.then(Stdout::new);
        Self { out, cancel, failure: None, at_line_start: true }
    }

    /// Writes a piece at once.
    pub(super) fn write(&mut self, text: &str) {
        let Some(out) = &mut self.out else { return };
        if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            self.out = None;
            self.failure = Some(error);
            self.cancel.cancel();
        }
        self.at_line_start = text.ends_with('\n');
    }

    /// Ends the text; on a terminal with a line break, elsewhere exactly as it was.
    ///
    /// # Errors
    /// The first failure of all writes.
    pub(super) fn finish(mut self, terminal: bool) -> io::Result<()> {
        if terminal && !self.at_line_start {
            self.write("\n");
        }
        self.failure.map_or(Ok(()), Err)
    }
}
