//! Ctrl-C while a request runs.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use foretoken::generate::Cancel;

/// What shells report of a process that SIGINT ended.
const EXIT_INTERRUPTED: i32 = 130;

/// From now on the first Ctrl-C (or SIGTERM) cancels the request, so that what there
/// is can still be reported; the second ends the process.
///
/// # Errors
/// When the system takes no handler.
pub(crate) fn cancels(cancel: &Cancel) -> Result<()> {
    let (cancel, pressed) = (cancel.clone(), AtomicBool::new(false));
    let handler = move || {
        if pressed.swap(true, Ordering::Relaxed) {
            std::process::exit(EXIT_INTERRUPTED);
        }
        cancel.cancel();
    };
    ctrlc::set_handler(handler).context("cannot handle Ctrl-C")
}
