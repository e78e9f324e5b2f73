//! How likely drafted tokens are to be accepted, learnt from the steps of a request.

mod lend;
mod trials;

use self::lend::{CLASSES, LENT, Lending, Trees, class};
pub use self::trials::Chance;
use self::trials::{Depths, KEEP, Trials, along, count};
use super::mode::{Choice, Kind, SpecLimits};
use super::outcome::Outcome;

/// What is left of evidence after a step of another shape, down to [`STALE`] trials: what
/// was learnt long ago is soon outweighed when it is looked at again.
const KEEP_IDLE: f64 = 0.99;
const STALE: f64 = 4.0;
/// Before anything is known: this many trials of the first position at this rate.
const FIRST_TRIALS: f64 = 2.0;
const FIRST_RATE: f64 = 0.6;
/// What evidence a new request inherits, in trials.
const INHERITED: f64 = 4.0;

/// How much of what is asked a drafter delivers: a lookup may find nothing, or less.
#[derive(Clone, Copy, Debug)]
struct Supply {
    /// Steps for which there was any proposal.
    any: f64,
    /// Rows of those, of the rows asked for.
    share: f64,
}

impl Supply {
    const FULL: Self = Self { any: 1.0, share: 1.0 };
}

fn supply_of(choice: Choice) -> usize {
    usize::from(choice.kind() == Kind::Tree)
}

/// Per-position acceptance, of chains and of trees apart.
///
/// A chain's positions are the same whatever its length, so one row of evidence serves all
/// lengths. Trees of different budgets are counted apart and lend to each other: the more
/// alike, the more, with misses scaled by the budgets' ratio, and never so that a larger
/// budget is expected to accept less (its tree contains the smaller one's).
#[derive(Clone, Debug)]
pub struct Acceptance {
    positions: usize,
    chain: Depths,
    trees: Trees,
    /// By budget, from 1 on.
    lending: Vec<Lending>,
    /// Tokens expected of a tree of each class, looked up in every step.
    class_tokens: [f64; CLASSES.len()],
    /// Of a chain, of a tree.
    supply: [Supply; 2],
}

impl Acceptance {
    /// Knows nothing yet; for a drafter of this many positions (cut to 63).
    pub fn new(positions: usize) -> Self {
        let mut chain = Depths::from([Trials::default(); SpecLimits::MAX]);
        if let Some(first) = chain.first_mut() {
            *first = Trials { tried: FIRST_TRIALS, hit: FIRST_TRIALS * FIRST_RATE };
        }
        let positions = positions.min(SpecLimits::MAX);
        let mut new = Self {
            positions,
            chain,
            trees: [[Trials::default(); SpecLimits::MAX]; CLASSES.len()],
            lending: Lending::table(positions),
            class_tokens: [1.0; CLASSES.len()],
            supply: [Supply::FULL; 2],
        };
        new.sum_classes();
        new
    }

    /// Keeps the rates as a first guess for another request, at little weight.
    pub fn next_request(&mut self) {
        for trials in self.chain.iter_mut().chain(self.trees.iter_mut().flatten()) {
            trials.fade_to(INHERITED, 0.0);
        }
        self.sum_classes();
    }

    /// Takes in a step. A position the drafter was asked for but did not fill counts as
    /// not accepted; a step with no drafted rows tells of no position.
    pub fn observe(&mut self, outcome: &Outcome) {
        let kind = outcome.kind();
        self.supplied(outcome);
        if kind != outcome.choice.kind() {
            return;
        }
        let reach = self.depth(outcome.choice);
        let tree = (kind == Kind::Tree).then(|| class(outcome.choice.drafts()));
        for (at, depths) in self.trees.iter_mut().enumerate() {
            if tree == Some(at) {
                count(depths, outcome.accepted(), reach);
            } else {
                depths.iter_mut().for_each(|trials| trials.fade_to(STALE, KEEP_IDLE));
            }
        }
        if kind == Kind::Chain {
            count(&mut self.chain, outcome.accepted(), reach);
        } else {
            self.chain.iter_mut().for_each(|trials| trials.fade_to(STALE, KEEP_IDLE));
        }
        self.sum_classes();
    }

    fn supplied(&mut self, outcome: &Outcome) {
        let asked = outcome.choice.drafts();
        let Some(supply) = self.supply.get_mut(supply_of(outcome.choice)) else { return };
        if asked == 0 {
            return;
        }
        let any = f64::from(u8::from(outcome.drafted_rows > 0));
        supply.any += (1.0 - KEEP) * (any - supply.any);
        if outcome.drafted_rows > 0 {
            let share = (outcome.drafted_rows as f64 / asked as f64).min(1.0);
            supply.share += (1.0 - KEEP) * (share - supply.share);
        }
    }

    /// The chance of one position (counted from 1) under a choice; `None` past its reach.
    pub fn chance(&self, choice: Choice, depth: usize) -> Option<Chance> {
        if depth == 0 || depth > self.depth(choice) {
            return None;
        }
        match choice {
            Choice::Tree { budget } => self.tree_chances(budget).nth(depth - 1),
            _ => self.chain_chances().nth(depth - 1),
        }
    }

    /// Expected tokens of a step that gets a proposal, the one it always yields included.
    pub fn tokens(&self, choice: Choice) -> f64 {
        let own = self.expected(choice, |chance| chance.rate);
        match choice {
            Choice::Tree { budget } => {
                let classes = CLASSES.iter().zip(self.class_tokens);
                classes.filter(|class| *class.0 < budget).fold(own, |most, c| most.max(c.1))
            }
            _ => own,
        }
    }

    /// The same if every position is as good as the evidence allows.
    pub fn optimistic_tokens(&self, choice: Choice) -> f64 {
        self.expected(choice, Chance::optimistic).max(self.tokens(choice))
    }

    /// The same if every position were accepted at this rate.
    pub fn tokens_at(&self, choice: Choice, rate: f64) -> f64 {
        along(std::iter::repeat_n(rate, self.depth(choice)))
    }

    /// Positions of the drafter.
    pub fn positions(&self) -> usize {
        self.positions
    }

    /// Of the steps that ask for a proposal, the share that gets any.
    pub fn proposed(&self, choice: Choice) -> f64 {
        self.supply.get(supply_of(choice)).map_or(1.0, |supply| supply.any)
    }

    /// Rows expected to be drafted when any are.
    pub fn rows(&self, choice: Choice) -> usize {
        let asked = choice.drafts();
        let share = self.supply.get(supply_of(choice)).map_or(1.0, |supply| supply.share);
        ((asked as f64 * share).round() as usize).clamp(asked.min(1), asked)
    }

    fn depth(&self, choice: Choice) -> usize {
        choice.drafts().min(self.positions)
    }

    fn expected(&self, choice: Choice, rate: impl Fn(Chance) -> f64) -> f64 {
        let depth = self.depth(choice);
        match choice {
            Choice::Plain => 1.0,
            Choice::Chain { .. } => along(self.chain_chances().take(depth).map(rate)),
            Choice::Tree { budget } => along(self.tree_chances(budget).take(depth).map(rate)),
        }
    }

    fn sum_classes(&mut self) {
        let sums = CLASSES.map(|budget| self.expected(Choice::Tree { budget }, |c| c.rate));
        self.class_tokens = sums;
    }

    fn chain_chances(&self) -> impl Iterator<Item = Chance> + '_ {
        let mut before = None;
        self.chain.iter().map(move |seen| {
            // The first position stands by itself: were it lent anything, long failure
            // would be forgotten.
            let (lent, rate) = before.map_or((0.0, 0.0), |rate| (LENT, rate));
            let trials = (seen.tried + lent).max(f64::MIN_POSITIVE);
            let rate = ((seen.hit + lent * rate) / trials).min(1.0);
            before = Some(rate);
            Chance { rate, trials }
        })
    }

    fn tree_chances(&self, budget: usize) -> impl Iterator<Item = Chance> + '_ {
        let lending = self.lending.get(budget.clamp(1, SpecLimits::MAX) - 1);
        let chain = self.chain_chances().zip(0usize..);
        chain.map(move |(chance, depth)| match lending {
            Some(lending) => lending.chance(&self.trees, depth, chance),
            None => chance,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(choice: Choice, drafted_rows: usize, accepted: usize) -> Outcome {
        Outcome {
            choice,
            drafted_rows,
            depth: drafted_rows,
            accepted,
            draft_s: 0.0,
            verify_s: 0.0,
            commit_s: 0.0,
            total_s: 1.0,
        }
    }

    fn chain(len: usize) -> Choice {
        Choice::Chain { len }
    }

    fn tree(budget: usize) -> Choice {
        Choice::Tree { budget }
    }

    /// A step of five positions accepted in turns so that each is accepted with 3 in 4.
    fn feed(acceptance: &mut Acceptance, choice: Choice, steps: usize) {
        let lengths = [0, 1, 2, 5, 0, 5, 1, 3, 5, 4, 2, 5];
        for step_of in 0..steps {
            let accepted = lengths[step_of % lengths.len()];
            acceptance.observe(&step(choice, choice.drafts(), accepted.min(choice.drafts())));
        }
    }

    #[test]
    fn the_prior_is_a_middling_chain() {
        let acceptance = Acceptance::new(15);
        let first = acceptance.chance(chain(4), 1).unwrap();
        assert_eq!((first.rate, first.trials), (FIRST_RATE, FIRST_TRIALS));
        // 1 + .6 + .36 + .216 + .1296
        assert!((acceptance.tokens(chain(4)) - 2.3056).abs() < 1e-12);
        assert_eq!(acceptance.tokens(Choice::Plain), 1.0);
        assert_eq!(acceptance.chance(chain(4), 5), None);
        assert_eq!(acceptance.chance(chain(4), 0), None);
        assert_eq!(acceptance.chance(chain(40), 16), None);
    }

    #[test]
    fn rates_follow_what_is_seen_and_forget() {
        let mut acceptance = Acceptance::new(5);
        for _ in 0..200 {
            acceptance.observe(&step(chain(5), 5, 5));
        }
        assert!(acceptance.tokens(chain(5)) > 5.9);
        for _ in 0..150 {
            acceptance.observe(&step(chain(5), 5, 0));
        }
        // 0.97^150 of the good times is left.
        assert!(acceptance.chance(chain(5), 1).unwrap().rate < 0.02);
        assert!(acceptance.tokens(chain(5)) < 1.05, "{}", acceptance.tokens(chain(5)));
    }

    #[test]
    fn per_position_rates_come_out() {
        let mut acceptance = Acceptance::new(5);
        // Position 1 always, position 2 in half of the steps, position 3 never.
        for turn in 0..200 {
            acceptance.observe(&step(chain(4), 4, 1 + turn % 2));
        }
        let rate = |depth| acceptance.chance(chain(4), depth).unwrap().rate;
        assert!(rate(1) > 0.99, "{}", rate(1));
        // The fading weights of a strict alternation differ from 1/2 by at most 2 %; what
        // is lent adds 1.5 / 34.8 of the difference to its neighbour.
        assert!((rate(2) - 0.5).abs() < 0.06, "{}", rate(2));
        assert!(rate(3) < 0.1, "{}", rate(3));
    }

    #[test]
    fn longer_never_expects_fewer_tokens() {
        for budget in [8, 22, 48] {
            let mut acceptance = Acceptance::new(15);
            feed(&mut acceptance, tree(budget), 40);
            feed(&mut acceptance, chain(6), 7);
            // Failures of a large tree weigh on the small ones too.
            acceptance.observe(&step(tree(63), 63, 0));
            let lens: Vec<f64> = (1..=63).map(|n| acceptance.tokens(chain(n))).collect();
            assert!(lens.windows(2).all(|w| w[0] <= w[1]), "{lens:?}");
            for (n, tokens) in (1..).zip(&lens) {
                assert!(acceptance.optimistic_tokens(chain(n)) >= *tokens);
                assert!(*tokens <= acceptance.tokens_at(chain(n), 1.0));
                assert_eq!(acceptance.tokens_at(chain(n), 1.0), 1.0 + n.min(15) as f64);
            }
            let classes: Vec<f64> = CLASSES.iter().map(|&n| acceptance.tokens(tree(n))).collect();
            assert!(classes.windows(2).all(|w| w[0] <= w[1]), "{classes:?}");
        }
    }

    #[test]
    fn trees_tell_of_each_other_and_not_of_chains() {
        let mut acceptance = Acceptance::new(15);
        let (before, chain_before) = (acceptance.tokens(tree(32)), acceptance.tokens(chain(8)));
        for _ in 0..40 {
            acceptance.observe(&step(tree(16), 16, 8));
        }
        assert!(acceptance.tokens(tree(16)) > 6.0, "{}", acceptance.tokens(tree(16)));
        assert!(acceptance.tokens(tree(32)) > before + 2.0);
        assert!((acceptance.tokens(chain(8)) - chain_before).abs() < 1e-9);
    }

    #[test]
    fn long_failure_is_kept_through_a_pause_at_less_weight() {
        let mut acceptance = Acceptance::new(8);
        for _ in 0..100 {
            acceptance.observe(&step(chain(4), 4, 0));
        }
        let rate = acceptance.chance(chain(4), 1).unwrap().rate;
        let hopes = acceptance.optimistic_tokens(chain(4));
        for _ in 0..1000 {
            acceptance.observe(&step(Choice::Plain, 0, 0));
        }
        let paused = acceptance.chance(chain(4), 1).unwrap();
        assert!((paused.rate - rate).abs() < 1e-9 && (paused.trials - STALE).abs() < 1e-9);
        assert!(acceptance.optimistic_tokens(chain(4)) > hopes);
        acceptance.next_request();
        assert!((acceptance.chance(chain(4), 1).unwrap().rate - rate).abs() < 1e-9);
    }

    #[test]
    fn what_is_not_supplied_counts_as_missed() {
        let mut acceptance = Acceptance::new(8);
        for _ in 0..200 {
            acceptance.observe(&step(chain(8), 2, 2));
        }
        assert!((acceptance.tokens(chain(8)) - 3.0).abs() < 0.1);
        assert_eq!(acceptance.rows(chain(8)), 2);
        for _ in 0..200 {
            acceptance.observe(&step(chain(8), 0, 0));
        }
        assert!(acceptance.proposed(chain(8)) < 0.01);
        assert!((acceptance.tokens(chain(8)) - 3.0).abs() < 0.1, "those that come are as good");
        assert_eq!((acceptance.rows(chain(1)), acceptance.rows(Choice::Plain)), (1, 0));
    }
}
