//! A made-up target and drafter for the controller: true acceptance and true times, known
//! exactly, and a loop that plays a request through.

use foretoken::speculate::{
    Choice, Controller, CostModel, CostPoints, Decision, Outcome, SpecLimits, SpecMode, VerifyPoint,
};

/// Reproducible numbers (SplitMix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A device, a target and a drafter.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) positions: usize,
    /// Chance of each position of a chain, given the one before.
    pub(crate) rate: f64,
    /// Factor on a tree's misses for each doubling of its budget past the positions.
    pub(crate) siblings: f64,
    /// Seconds of a draft, of a plain step.
    pub(crate) draft_s: f64,
    pub(crate) plain_s: f64,
    /// Seconds of a verify pass: at one row, and for each row more.
    pub(crate) base_s: f64,
    pub(crate) row_s: f64,
    /// Times vary by up to this factor, up or down.
    pub(crate) noise: f64,
}

impl World {
    /// A pass that reads weights: more rows cost little.
    pub(crate) fn flat(rate: f64) -> Self {
        Self {
            positions: 15,
            rate,
            siblings: 0.9,
            draft_s: 0.2,
            plain_s: 1.0,
            base_s: 1.05,
            row_s: 0.01,
            noise: 1.1,
        }
    }

    /// A pass whose cost goes with its rows.
    pub(crate) fn linear(rate: f64, row_s: f64) -> Self {
        Self { base_s: 1.0, row_s, ..Self::flat(rate) }
    }

    pub(crate) fn verify_s(&self, rows: usize) -> f64 {
        self.base_s + self.row_s * (rows as f64 - 1.0)
    }

    pub(crate) fn step_s(&self, choice: Choice) -> f64 {
        match choice.drafts() {
            0 => self.plain_s,
            rows => self.draft_s + self.verify_s(rows + 1),
        }
    }

    /// Chance of a position and number of positions under a choice.
    fn draft(&self, choice: Choice) -> (f64, usize) {
        let depth = choice.drafts().min(self.positions);
        match choice {
            Choice::Tree { budget } => {
                let spare = (budget as f64 / self.positions as f64).log2().max(-1.0);
                (1.0 - ((1.0 - self.rate) * self.siblings.powf(spare)).min(1.0), depth)
            }
            _ => (self.rate, depth),
        }
    }

    pub(crate) fn tokens(&self, choice: Choice) -> f64 {
        let (rate, depth) = self.draft(choice);
        (0..=depth as i32).map(|d| rate.powi(d)).sum()
    }

    pub(crate) fn rate_of(&self, choice: Choice) -> f64 {
        self.tokens(choice) / self.step_s(choice)
    }

    /// The best fixed choice within the limits, and its tokens per second.
    pub(crate) fn oracle(&self, limits: SpecLimits) -> (Choice, f64) {
        let chains = (1..=limits.draft_len().min(self.positions)).map(|len| Choice::Chain { len });
        let trees = (1..=limits.tree_budget()).map(|budget| Choice::Tree { budget });
        [Choice::Plain]
            .into_iter()
            .chain(chains)
            .chain(trees)
            .map(|choice| (choice, self.rate_of(choice)))
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .unwrap()
    }

    pub(crate) fn cost(&self) -> CostModel {
        let verify = [2, 4, 8, 16, 32, 64]
            .map(|rows| VerifyPoint { rows, seconds: self.verify_s(rows) })
            .to_vec();
        CostModel::new(CostPoints {
            plain_s: self.plain_s,
            draft_s: self.draft_s,
            commit_s: 0.0,
            verify,
        })
        .unwrap()
    }

    pub(crate) fn controller(&self, mode: SpecMode, limits: SpecLimits) -> Controller {
        Controller::new(mode, limits, self.positions, self.cost())
    }

    /// Plays one step.
    pub(crate) fn step(&self, choice: Choice, random: &mut Random) -> Outcome {
        let mut vary = || self.noise.powf(2.0 * random.unit() - 1.0);
        let (draft_s, verify_s) = match choice.drafts() {
            0 => (0.0, self.plain_s * vary()),
            rows => (self.draft_s * vary(), self.verify_s(rows + 1) * vary()),
        };
        let (rate, depth) = self.draft(choice);
        let accepted = (0..depth).take_while(|_| random.unit() < rate).count();
        Outcome {
            choice,
            drafted_rows: choice.drafts(),
            depth,
            accepted,
            draft_s,
            verify_s,
            commit_s: 0.0,
            total_s: draft_s + verify_s,
        }
    }
}

/// What a played stretch came to.
#[derive(Clone, Default)]
pub(crate) struct Played {
    pub(crate) tokens: usize,
    pub(crate) seconds: f64,
    pub(crate) steps: Vec<(Decision, Outcome)>,
}

impl Played {
    pub(crate) fn rate(&self) -> f64 {
        self.tokens as f64 / self.seconds
    }

    /// Steps that went another way than the one before.
    pub(crate) fn turns(&self) -> usize {
        self.steps.windows(2).filter(|w| w[0].0.choice != w[1].0.choice).count()
    }
}

/// Plays until this many tokens are there.
pub(crate) fn play(
    world: &World,
    controller: &mut Controller,
    tokens: usize,
    random: &mut Random,
) -> Played {
    let mut played = Played::default();
    while played.tokens < tokens {
        let decision = controller.choose(usize::MAX);
        let outcome = world.step(decision.choice, random);
        controller.observe(&outcome);
        played.tokens += outcome.tokens();
        played.seconds += outcome.total_s;
        played.steps.push((decision, outcome));
    }
    played
}
