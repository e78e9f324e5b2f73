//! What speculation did in a request.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Choice, Outcome, Reason};

/// Trials of one position of the drafts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PositionCount {
    /// Steps that drafted the position and accepted all before it.
    pub tried: u64,
    /// Those that accepted it too.
    pub accepted: u64,
}

/// Counts and times of a request's steps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpecStats {
    /// All steps.
    pub steps: u64,
    /// Steps that verified drafted rows.
    pub speculative_steps: u64,
    /// Drafted rows verified.
    pub drafted: u64,
    /// Drafted tokens accepted.
    pub accepted: u64,
    /// Entry `a`: speculative steps that accepted `a` drafted tokens. No longer than
    /// needed.
    pub histogram: Vec<u64>,
    /// Entry `d`: trials of the position `d + 1` after the pending token. No longer than
    /// needed.
    pub positions: Vec<PositionCount>,
    /// Time in drafts.
    pub draft: Duration,
    /// Time in verify passes.
    pub verify: Duration,
    /// Time in commits.
    pub commit: Duration,
    /// Steps by what was decided.
    pub choices: BTreeMap<Choice, u64>,
    /// Steps by why.
    pub reasons: BTreeMap<Reason, u64>,
    /// Steps for which a draft was wanted and none was proposed.
    pub nothing_proposed: u64,
}

impl SpecStats {
    /// Counts a step.
    pub fn record(&mut self, reason: Reason, outcome: &Outcome) {
        let Outcome { choice, drafted_rows, draft_s, verify_s, commit_s, .. } = *outcome;
        self.steps += 1;
        *self.choices.entry(choice).or_default() += 1;
        *self.reasons.entry(reason).or_default() += 1;
        self.draft = self.draft.saturating_add(duration(draft_s));
        self.verify = self.verify.saturating_add(duration(verify_s));
        self.commit = self.commit.saturating_add(duration(commit_s));
        if !outcome.is_speculative() {
            self.nothing_proposed += u64::from(choice != Choice::Plain);
            return;
        }
        let (accepted, depth) = (outcome.accepted(), outcome.depth());
        self.speculative_steps += 1;
        self.drafted = self.drafted.saturating_add(drafted_rows as u64);
        self.accepted += accepted as u64;
        *entry(&mut self.histogram, accepted) += 1;
        for at in 0..depth.min(accepted + 1) {
            let position = entry(&mut self.positions, at);
            position.tried += 1;
            position.accepted += u64::from(at < accepted);
        }
    }

    /// Mean tokens of a speculative step: accepted ones and the one every step yields.
    /// `None` without such steps.
    pub fn acceptance_length_mean(&self) -> Option<f64> {
        (self.speculative_steps > 0)
            .then(|| 1.0 + self.accepted as f64 / self.speculative_steps as f64)
    }

    /// What most steps were: `off`, `chain` or `tree`. A step for which nothing was
    /// proposed was a plain one.
    pub fn shape(&self) -> &'static str {
        if self.speculative_steps * 2 < self.steps.max(1) {
            return "off";
        }
        let count = |shape| {
            let of_shape = self.choices.iter().filter(|(choice, _)| choice.shape() == shape);
            of_shape.map(|(_, steps)| steps).sum::<u64>()
        };
        // A tie goes to the simpler shape.
        if count("tree") > count("chain") { "tree" } else { "chain" }
    }
}

/// A measured time; nothing for what is none.
fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

/// The entry at an index, which callers keep small.
fn entry<T: Clone + Default>(list: &mut Vec<T>, index: usize) -> &mut T {
    if list.len() <= index {
        list.resize(index + 1, T::default());
    }
    &mut list[index]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(choice: Choice, drafted_rows: usize, depth: usize, accepted: usize) -> Outcome {
        Outcome {
            choice,
            drafted_rows,
            depth,
            accepted,
            draft_s: 0.25,
            verify_s: 0.5,
            commit_s: 0.125,
            total_s: 1.0,
        }
    }

    #[test]
    fn counts_add_up() {
        let mut stats = SpecStats::default();
        assert_eq!((stats.acceptance_length_mean(), stats.shape()), (None, "off"));
        let chain = Choice::Chain { len: 4 };
        stats.record(Reason::Fastest, &step(chain, 4, 4, 4));
        stats.record(Reason::Fastest, &step(chain, 4, 4, 0));
        stats.record(Reason::Probe, &step(Choice::Tree { budget: 8 }, 8, 3, 2));
        stats.record(Reason::Fastest, &step(chain, 0, 0, 0));
        stats.record(Reason::Refresh, &step(Choice::Plain, 0, 0, 0));
        assert_eq!((stats.steps, stats.speculative_steps), (5, 3));
        assert_eq!((stats.drafted, stats.accepted, stats.nothing_proposed), (16, 6, 1));
        assert_eq!(stats.histogram, [1, 0, 1, 0, 1]);
        let positions: Vec<_> = stats.positions.iter().map(|p| (p.tried, p.accepted)).collect();
        assert_eq!(positions, [(3, 2), (2, 2), (2, 1), (1, 1)]);
        assert_eq!(stats.acceptance_length_mean(), Some(3.0));
        assert_eq!(stats.verify, Duration::from_millis(2500));
        assert_eq!((stats.choices[&chain], stats.reasons[&Reason::Fastest]), (3, 3));
        assert_eq!(stats.shape(), "chain");
    }

    #[test]
    fn impossible_outcomes_do_no_harm() {
        let mut stats = SpecStats::default();
        let huge = step(Choice::Tree { budget: 63 }, usize::MAX, usize::MAX, usize::MAX);
        let bad = Outcome { draft_s: f64::NAN, verify_s: -1.0, commit_s: f64::INFINITY, ..huge };
        stats.record(Reason::Fastest, &bad);
        stats.record(Reason::Fastest, &bad);
        assert_eq!((stats.histogram.len(), stats.positions.len()), (64, 63));
        assert_eq!(stats.draft + stats.verify + stats.commit, Duration::ZERO);
    }
}
