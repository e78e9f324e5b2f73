//! Chooses how much each step drafts.

use super::acceptance::Acceptance;
use super::cost::CostModel;
use super::explore::{Explorer, Guard, Trial};
use super::mode::{Choice, Kind, SpecLimits, SpecMode};
use super::outcome::{Decision, Outcome, Reason};

/// Sizes worth telling apart, of chains and of trees; the limit itself is added.
const CHAINS: [usize; 11] = [1, 2, 3, 4, 6, 8, 11, 15, 23, 31, 47];
const TREES: [usize; 8] = [4, 8, 12, 16, 22, 32, 48, 63];
/// How much faster something else must be expected to be before it is turned to.
const MARGIN: f64 = 0.03;
/// Acceptance per position of a drafter that does very well.
const GOOD_RATE: f64 = 0.9;
/// Longest time believed of a step, in predicted times, when gains and losses are summed.
const HICCUP: f64 = 4.0;

/// What a step is expected to give and take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Tokens, at least 1.
    pub tokens: f64,
    /// Seconds.
    pub seconds: f64,
}

impl Estimate {
    /// Tokens per second.
    pub fn rate(self) -> f64 {
        self.tokens / self.seconds
    }
}

/// Chooses plain decoding, a chain or a tree for each step so that most tokens per second
/// are expected, and never loses more than a few percent against plain decoding.
///
/// Reads no clock and draws no random numbers: equal outcomes give equal decisions. None
/// of its decisions can change the answer, only its speed.
#[derive(Clone, Debug)]
pub struct Controller {
    mode: SpecMode,
    limits: SpecLimits,
    cost: CostModel,
    acceptance: Acceptance,
    /// What is done unless something else is clearly faster.
    current: Choice,
    explorer: Explorer,
    guard: Guard,
    pending: Option<Pending>,
}

/// A decision whose outcome is not known yet.
#[derive(Clone, Copy, Debug)]
struct Pending {
    decision: Decision,
    /// When it is a probe: of what, and the rate of what would have been done otherwise.
    probe: Option<(Trial, f64)>,
}

impl Controller {
    /// A controller for a drafter of this many positions; with 0 all steps are plain.
    pub fn new(
        mode: SpecMode,
        limits: SpecLimits,
        drafter_positions: usize,
        cost: CostModel,
    ) -> Self {
        let explorer = Explorer::new(cost.plain_s());
        let mode = if drafter_positions == 0 { SpecMode::Off } else { mode };
        Self {
            mode,
            limits,
            cost,
            acceptance: Acceptance::new(drafter_positions),
            current: Choice::Plain,
            explorer,
            guard: Guard::default(),
            pending: None,
        }
    }

    /// Prepares for another request: costs stay known, acceptance becomes a first guess.
    pub fn next_request(&mut self) {
        self.acceptance.next_request();
        self.explorer.next_request();
        self.pending = None;
    }

    /// The mode in force.
    pub fn mode(&self) -> SpecMode {
        self.mode
    }

    /// The costs as they are believed now.
    pub fn cost(&self) -> &CostModel {
        &self.cost
    }

    /// What is known of acceptance.
    pub fn acceptance(&self) -> &Acceptance {
        &self.acceptance
    }

    /// Decides the next step, with room and need for `remaining_tokens` more tokens.
    ///
    /// A step verifies at most that many rows, so that none lies past the end. But for
    /// that, a mode of chain or tree always gets its limit (a chain: as far as the drafter
    /// proposes).
    pub fn choose(&mut self, remaining_tokens: usize) -> Decision {
        let most = remaining_tokens.saturating_sub(1);
        let forced = match self.mode {
            SpecMode::Auto => None,
            SpecMode::Off => Some(Choice::Plain),
            SpecMode::Chain => Some(Choice::Chain { len: self.longest_chain() }),
            SpecMode::Tree => Some(Choice::Tree { budget: self.limits.tree_budget() }),
        };
        let (decision, probe) = match forced {
            Some(Choice::Plain) => (plain(Reason::Asked), None),
            _ if most == 0 => (plain(Reason::LastToken), None),
            Some(choice) => (Decision { choice: choice.cut(most), reason: Reason::Asked }, None),
            None => self.decide(most),
        };
        self.pending = Some(Pending { decision, probe });
        decision
    }

    /// Takes in how the step went that was chosen last.
    pub fn observe(&mut self, outcome: &Outcome) {
        let pending = self.pending.take().filter(|p| p.decision.choice == outcome.choice);
        self.cost.observe(outcome);
        self.acceptance.observe(outcome);
        let plain_s = self.cost.plain_s();
        let longest = HICCUP * self.cost.step_s(outcome.drafted_rows);
        // False for a time that is not finite or is negative.
        let total_s = if outcome.total_s >= 0.0 { outcome.total_s.min(longest) } else { 0.0 };
        let kind = outcome.kind();
        let probe = pending.and_then(|p| p.probe);
        let counted = kind != Kind::Plain && probe.is_none();
        self.guard.step(counted.then(|| outcome.tokens()), total_s, plain_s);
        self.explorer.step(kind, total_s, plain_s);
        if let Some((trial, rate)) = probe {
            if kind == outcome.choice.kind() {
                self.explorer.probed(trial, total_s - outcome.tokens() as f64 / rate);
            } else {
                self.explorer.nothing_proposed((total_s - plain_s).max(0.0));
            }
        }
    }

    /// What a step of this choice is expected to give and take now; it is plain when the
    /// drafter has nothing to propose.
    pub fn estimate(&self, choice: Choice) -> Estimate {
        let plain_s = self.cost.plain_s();
        if choice == Choice::Plain {
            return Estimate { tokens: 1.0, seconds: plain_s };
        }
        let any = self.acceptance.proposed(choice);
        let draft_s = self.cost.draft_s();
        let rest_s = self.proposed_s(choice) - draft_s;
        Estimate {
            tokens: 1.0 + any * (self.acceptance.tokens(choice) - 1.0),
            seconds: draft_s + any * rest_s + (1.0 - any) * plain_s,
        }
    }

    /// Seconds of a step for which there is a proposal.
    fn proposed_s(&self, choice: Choice) -> f64 {
        self.cost.step_s(self.acceptance.rows(choice))
    }

    fn longest_chain(&self) -> usize {
        self.limits.draft_len().min(self.acceptance.positions())
    }

    /// Candidates of a shape with at most `most` drafted rows, small to large.
    fn candidates(&self, kind: Kind, most: usize) -> impl Iterator<Item = Choice> {
        let (sizes, limit): (&[usize], _) = match kind {
            Kind::Plain => (&[], 0),
            Kind::Chain => (&CHAINS, self.longest_chain().min(most)),
            Kind::Tree => (&TREES, self.limits.tree_budget().min(most)),
        };
        let smaller = sizes.iter().copied().filter(move |&size| size < limit);
        smaller.chain([limit]).map(move |size| match kind {
            Kind::Plain => Choice::Plain,
            Kind::Chain => Choice::Chain { len: size },
            Kind::Tree => Choice::Tree { budget: size },
        })
    }

    /// Decides in auto mode.
    fn decide(&mut self, most: usize) -> (Decision, Option<(Trial, f64)>) {
        let rate = |choice: &Choice| self.estimate(*choice).rate();
        let best = [Kind::Plain, Kind::Chain, Kind::Tree]
            .into_iter()
            .flat_map(|kind| self.candidates(kind, most))
            .map(|choice| (choice, rate(&choice)))
            // The first of equals: the smaller, and a chain before a tree.
            .reduce(|best, next| if next.1 > best.1 { next } else { best });
        let mut usual = self.current.cut(most);
        let mut usual_rate = rate(&usual);
        if let Some((choice, best_rate)) = best
            && best_rate > usual_rate * (1.0 + MARGIN)
        {
            (usual, usual_rate) = (choice, best_rate);
            self.current = choice;
        }
        let mut reason = Reason::Fastest;
        if self.guard.is_stopped() && usual != Choice::Plain {
            (usual, usual_rate) = (Choice::Plain, 1.0 / self.cost.plain_s());
            reason = Reason::Losing;
        }
        match self.probe(usual, usual_rate, most) {
            Some((trial, choice)) => {
                let refresh = trial == Trial::Plain;
                let reason = if refresh { Reason::Refresh } else { Reason::Probe };
                (Decision { choice, reason }, Some((trial, usual_rate)))
            }
            None => (Decision { choice: usual, reason }, None),
        }
    }

    /// What is worth a trial now: of what is not in use, the longest overdue.
    fn probe(&self, usual: Choice, usual_rate: f64, most: usize) -> Option<(Trial, Choice)> {
        [Kind::Plain, Kind::Chain, Kind::Tree]
            .into_iter()
            .filter_map(|kind| {
                let trial = if kind == usual.kind() { Trial::Size } else { Trial::of(kind) };
                let overdue = self.explorer.overdue(trial)?;
                let (choice, hope) = self.hopeful(kind, usual, most)?;
                // What is lost should nothing be accepted.
                let lost_s = self.proposed_s(choice) - 1.0 / usual_rate;
                let worth = trial == Trial::Plain || hope > usual_rate * (1.0 + MARGIN);
                (worth && self.explorer.affords(lost_s)).then_some((overdue, trial, choice))
            })
            .reduce(|best, next| if next.0 > best.0 { next } else { best })
            .map(|(_, trial, choice)| (trial, choice))
    }

    /// The candidate of a shape, other than what is usual, with the highest rate that it
    /// may be hoped to reach.
    fn hopeful(&self, kind: Kind, usual: Choice, most: usize) -> Option<(Choice, f64)> {
        let hope = |choice| {
            // A drafter that failed on one text may do well on the next. So while nothing
            // is drafted, what was seen counts for the waits alone.
            let tokens = match usual {
                Choice::Plain => self.acceptance.tokens_at(choice, GOOD_RATE),
                _ => self.acceptance.optimistic_tokens(choice),
            };
            tokens / self.cost.hopeful_step_s(self.acceptance.rows(choice))
        };
        self.candidates(kind, most)
            .filter(|&choice| choice != usual)
            .map(|choice| (choice, hope(choice)))
            .reduce(|best, next| if next.1 > best.1 { next } else { best })
    }
}

fn plain(reason: Reason) -> Decision {
    Decision { choice: Choice::Plain, reason }
}
