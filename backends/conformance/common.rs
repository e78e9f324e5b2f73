//! The tests in this folder run on any driver. A program of tests that includes them has,
//! besides this file as `crate::common`, a module `crate::driver`: `open` gives a device,
//! or `None` after saying `skipped:` and why; `REQUESTS` is how many whole requests are
//! compared; `FAST` is what the driver's fast path is held to.
// Each program uses some of it.
#![allow(dead_code)]

use std::path::{Path, PathBuf};

/// `models/nano` of the workspace that the program was built in, or, on another machine,
/// of the one that it is run in.
pub(crate) fn nano() -> PathBuf {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/nano");
    if built.is_dir() { built } else { PathBuf::from("models/nano") }
}

/// Bounds of a comparison with recorded outputs.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    /// Largest difference of a top-8 log-probability.
    pub(crate) logprob: f64,
    /// Greedy steps with a smaller gap may flip.
    pub(crate) gap: f64,
}
