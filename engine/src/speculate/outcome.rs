//! What the controller decides for a step and hears of it afterwards.

use std::fmt;

use super::mode::{Choice, Kind, SpecLimits};

/// Why a step does what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Reason {
    /// The mode says so.
    Asked,
    /// There is no room or no need for more than one token.
    LastToken,
    /// Expected to be the fastest.
    Fastest,
    /// A trial of something that may have become faster.
    Probe,
    /// A plain step to renew the measure that all else is held against.
    Refresh,
    /// Speculation has lost too much time of late.
    Losing,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Self; 6] =
        [Self::Asked, Self::LastToken, Self::Fastest, Self::Probe, Self::Refresh, Self::Losing];

    /// One word, as used in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::LastToken => "last_token",
            Self::Fastest => "fastest",
            Self::Probe => "probe",
            Self::Refresh => "refresh",
            Self::Losing => "losing",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Asked => "as asked",
            Self::LastToken => "the last token",
            Self::Fastest => "expected to be fastest",
            Self::Probe => "trying whether it pays",
            Self::Refresh => "timing a plain step",
            Self::Losing => "speculation was losing time",
        })
    }
}

/// What to do in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What.
    pub choice: Choice,
    /// Why.
    pub reason: Reason,
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.choice, self.reason)
    }
}

/// How a step went. Times are in seconds; where a step is one launch and its parts were
/// not timed, the parts are 0 and the total is shared out as predicted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// What was decided.
    pub choice: Choice,
    /// Drafted rows that were verified. At 0 the step was a plain one, whatever was
    /// decided.
    pub drafted_rows: usize,
    /// Largest depth of the drafted rows: that of the tree, or the chain's length.
    pub depth: usize,
    /// Drafted tokens accepted; the step's tokens are one more.
    pub accepted: usize,
    /// Drafting.
    pub draft_s: f64,
    /// The verify pass.
    pub verify_s: f64,
    /// The commit.
    pub commit_s: f64,
    /// The whole step, with all that no part covers.
    pub total_s: f64,
}

impl Outcome {
    /// Whether anything was verified.
    pub fn is_speculative(&self) -> bool {
        self.kind() != Kind::Plain
    }

    /// Depth, never more than the rows and the largest tree allow.
    pub fn depth(&self) -> usize {
        self.depth.min(self.drafted_rows).min(SpecLimits::MAX)
    }

    /// Accepted tokens, never more than the depth.
    pub fn accepted(&self) -> usize {
        self.accepted.min(self.depth())
    }

    /// Tokens of the step.
    pub fn tokens(&self) -> usize {
        1 + self.accepted()
    }

    pub(super) fn kind(&self) -> Kind {
        if self.drafted_rows == 0 { Kind::Plain } else { self.choice.kind() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_impossible_outcome_is_cut_to_size() {
        let outcome = Outcome {
            choice: Choice::Chain { len: 4 },
            drafted_rows: 3,
            depth: 9,
            accepted: 7,
            draft_s: 0.0,
            verify_s: 0.0,
            commit_s: 0.0,
            total_s: 1.0,
        };
        assert_eq!((outcome.depth(), outcome.accepted(), outcome.tokens()), (3, 3, 4));
        let none = Outcome { drafted_rows: 0, ..outcome };
        assert!(outcome.is_speculative() && !none.is_speculative());
        assert_eq!(none.tokens(), 1);
    }

    #[test]
    fn reasons_have_names_of_their_own() {
        let names: std::collections::BTreeSet<_> = Reason::ALL.map(Reason::name).into();
        let shown: std::collections::BTreeSet<_> = Reason::ALL.map(|r| r.to_string()).into();
        let decision = Decision { choice: Choice::Chain { len: 8 }, reason: Reason::Fastest };
        assert_eq!(decision.to_string(), "chain 8 (expected to be fastest)");
        assert_eq!((names.len(), shown.len()), (Reason::ALL.len(), Reason::ALL.len()));
    }
}
