//! What goes to stderr: progress bars, notes, and the log.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::args::Cli;
use crate::failure::escaped;

/// How talkative to be.
#[derive(Clone, Debug)]
pub(crate) struct Ui {
    quiet: bool,
    verbose: bool,
    bars: bool,
    log: Log,
}

impl Ui {
    /// Reads the flags and starts the log.
    pub(crate) fn new(cli: &Cli) -> Self {
        let (quiet, verbose) = (cli.quiet, cli.verbose > 0);
        let level = match cli.verbose {
            _ if quiet => LevelFilter::ERROR,
            0 => LevelFilter::WARN,
            1 => LevelFilter::INFO,
            2 => LevelFilter::DEBUG,
            _ => LevelFilter::TRACE,
        };
        let log = Log::new(!verbose);
        let writer = log.clone();
        let format = tracing_subscriber::fmt().with_max_level(level);
        format
            .with_writer(move || writer.clone())
            .with_ansi(false)
            // Else it panics where stderr can not be written.
            .log_internal_errors(false)
            .event_format(Lines)
            .init();
        let bars = !quiet && !cli.command.is_json() && io::stderr().is_terminal();
        Self { quiet, verbose, bars, log }
    }

    /// Lets out the warnings held back so far, and those to come. Until the work is well
    /// under way they wait: should it fail, its error is to be the one line on stderr.
    pub(crate) fn release(&self) {
        self.log.release();
    }

    /// A line for the user, unless `--quiet`.
    pub(crate) fn note(&self, text: impl std::fmt::Display) {
        if !self.quiet {
            say(text);
        }
    }

    /// A line for the user who asked for `--verbose`.
    pub(crate) fn detail(&self, text: impl std::fmt::Display) {
        if self.verbose {
            say(text);
        }
    }

    /// A progress bar; it stays hidden when stderr is no terminal or nobody looks.
    pub(crate) fn progress(&self, what: &'static str) -> Progress {
        Progress { what, bars: self.bars, bar: None }
    }
}

/// The log in the form of other messages: `warning: ` and the text, on one line.
struct Lines;

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut out: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut text = String::new();
        context.field_format().format_fields(Writer::new(&mut text), event)?;
        writeln!(out, "{}: {}", name(*event.metadata().level()), escaped(&text))
    }
}

fn name(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warning",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    }
}

fn say(text: impl std::fmt::Display) {
    // With stderr closed the work goes on all the same.
    let _ = writeln!(io::stderr(), "{text}");
}

/// Most bytes of the log that wait; further lines are dropped.
const MAX_HELD: usize = 64 << 10;

/// Where the log goes: to stderr, or into memory until it is let out.
#[derive(Clone, Debug)]
struct Log {
    held: Arc<Mutex<Option<Vec<u8>>>>,
}

impl Log {
    fn new(hold: bool) -> Self {
        Self { held: Arc::new(Mutex::new(hold.then(Vec::new))) }
    }

    fn held(&self) -> MutexGuard<'_, Option<Vec<u8>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn release(&self) {
        if let Some(lines) = mem::take(&mut *self.held()) {
            // With stderr closed the work goes on all the same.
            let _ = io::stderr().write_all(&lines);
        }
    }
}

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match &mut *self.held() {
            Some(lines) if lines.len().saturating_add(line.len()) <= MAX_HELD => {
                lines.extend_from_slice(line);
            }
            Some(_) => {}
            None => return io::stderr().write(line),
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A bar that appears with its first step and vanishes when it is done or dropped.
pub(crate) struct Progress {
    what: &'static str,
    bars: bool,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// So much is done, of all.
    pub(crate) fn set(&mut self, done: usize, total: usize) {
        if !self.bars {
            return;
        }
        let (done, total) = (done as u64, total as u64);
        let bar = self.bar.get_or_insert_with(|| new_bar(self.what, total));
        bar.set_position(done);
        if done >= total {
            self.clear();
        }
    }

    /// Removes the bar from the terminal.
    pub(crate) fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

fn new_bar(what: &'static str, total: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{msg:<8} [{bar:40}] {pos}/{len} {eta}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
    bar.set_message(what);
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_held_up_to_a_bound_and_then_let_out() {
        let mut log = Log::new(true);
        let line = [b'x'; 1000];
        for _ in 0..100 {
            assert_eq!(log.write(&line).unwrap(), line.len());
        }
        assert_eq!(log.held().as_ref().map(Vec::len), Some(65_000));
        *log.held() = Some(Vec::new());
        log.release();
        assert_eq!(*log.held(), None);
    }
}
