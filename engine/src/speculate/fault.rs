//! What can be wrong with settings and measurements of speculation.

/// A setting or measurement that speculation can not work with.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SpeculateFault {
    /// No mode has this name.
    #[error("no speculation mode '{name}': use auto, off, chain or tree")]
    UnknownMode {
        /// As given.
        name: String,
    },
    /// A draft length outside 1 to 63.
    #[error("a draft length of {asked} is not possible: use 1 to {max}")]
    BadDraftLen {
        /// Asked for.
        asked: usize,
        /// Largest.
        max: usize,
    },
    /// A tree budget outside 1 to 63.
    #[error("a tree budget of {asked} is not possible: use 1 to {max}")]
    BadTreeBudget {
        /// Asked for.
        asked: usize,
        /// Largest.
        max: usize,
    },
    /// Lengths of n-grams that are out of order or out of range.
    #[error("n-grams of {min} to {max} tokens are not possible: use 1 to {limit}, in order")]
    BadNgram {
        /// Shortest asked for.
        min: usize,
        /// Longest asked for.
        max: usize,
        /// Longest possible.
        limit: usize,
    },
    /// No verify pass was timed.
    #[error("no verify pass was measured")]
    NoVerifyPoints,
    /// More verify points than there are widths.
    #[error("{count} verify points, at most {max} are possible")]
    TooManyPoints {
        /// How many.
        count: usize,
        /// Most.
        max: usize,
    },
    /// A verify pass of a width that no tree has.
    #[error("a verify pass of {rows} rows was measured, 1 to {max} are possible")]
    BadRows {
        /// The width.
        rows: usize,
        /// Most.
        max: usize,
    },
    /// A time that is no time: negative, zero where a pass must take some, or not finite.
    #[error("{what} can not take {seconds} s")]
    BadSeconds {
        /// Which measurement.
        what: &'static str,
        /// Its value.
        seconds: f64,
    },
}
