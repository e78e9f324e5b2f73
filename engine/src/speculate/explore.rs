//! Two purses of time: what trials may cost, and what speculation may lose in all.

use super::mode::Kind;

/// Share of all time that probes may lose against what would have been done instead.
const PROBE_SHARE: f64 = 0.02;
/// What the purse for probes starts with and may grow to, in plain steps.
const PROBE_START: f64 = 4.0;
const PROBE_MOST: f64 = 32.0;
/// Steps between probes of a shape: the first wait, and the longest.
const SHAPE_WAIT: (usize, usize) = (8, 128);
/// The same between probes of another size of the shape in use.
const SIZE_WAIT: (usize, usize) = (16, 128);
/// The same between plain steps in the midst of speculative ones.
const REFRESH_WAIT: (usize, usize) = (16, 512);

/// What can be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trial {
    /// A plain step.
    Plain,
    /// A chain.
    Chain,
    /// A tree.
    Tree,
    /// Another size of the shape in use.
    Size,
}

impl Trial {
    pub(super) const ALL: [Self; 4] = [Self::Plain, Self::Chain, Self::Tree, Self::Size];

    /// The trial of a shape that is not in use.
    pub(super) fn of(kind: Kind) -> Self {
        match kind {
            Kind::Plain => Self::Plain,
            Kind::Chain => Self::Chain,
            Kind::Tree => Self::Tree,
        }
    }
}

/// When something was last seen and how long to wait before it is tried again.
#[derive(Clone, Copy, Debug)]
struct Lane {
    since: usize,
    wait: usize,
    first: usize,
    longest: usize,
}

impl Lane {
    fn new((first, longest): (usize, usize)) -> Self {
        Self { since: 0, wait: first, first, longest }
    }
}

/// Decides when a probe may be made. Waits double with each probe that does not pay, and
/// start over when one does.
#[derive(Clone, Debug)]
pub(super) struct Explorer {
    purse_s: f64,
    plain: Lane,
    chain: Lane,
    tree: Lane,
    size: Lane,
}

impl Explorer {
    pub(super) fn new(plain_s: f64) -> Self {
        // All gains and losses are held against plain steps, so the first comes early.
        let plain = Lane { wait: 4, ..Lane::new(REFRESH_WAIT) };
        Self {
            purse_s: PROBE_START * plain_s,
            plain,
            chain: Lane::new(SHAPE_WAIT),
            tree: Lane::new(SHAPE_WAIT),
            size: Lane::new(SIZE_WAIT),
        }
    }

    /// A new text may suit the drafter better: wait less before the next probe.
    pub(super) fn next_request(&mut self) {
        for trial in Trial::ALL {
            let lane = self.lane(trial);
            lane.wait = (lane.wait / 4).max(lane.first);
        }
    }

    /// Whether a trial that loses this much can be paid for.
    pub(super) fn affords(&self, lost_s: f64) -> bool {
        lost_s <= self.purse_s
    }

    /// How far past its wait a trial is.
    pub(super) fn overdue(&self, trial: Trial) -> Option<usize> {
        let lane = match trial {
            Trial::Plain => &self.plain,
            Trial::Chain => &self.chain,
            Trial::Tree => &self.tree,
            Trial::Size => &self.size,
        };
        lane.since.checked_sub(lane.wait)
    }

    /// Takes in a step of a shape.
    pub(super) fn step(&mut self, kind: Kind, total_s: f64, plain_s: f64) {
        self.purse_s = (self.purse_s + PROBE_SHARE * total_s).min(PROBE_MOST * plain_s);
        for trial in Trial::ALL {
            let lane = self.lane(trial);
            lane.since = if trial == Trial::of(kind) { 0 } else { lane.since.saturating_add(1) };
        }
    }

    /// Takes in how a probe went, after its [`step`](Self::step): the seconds it lost
    /// against what would have been done otherwise, negative when it was faster.
    pub(super) fn probed(&mut self, trial: Trial, lost_s: f64) {
        self.purse_s -= lost_s;
        let lane = self.lane(trial);
        lane.since = 0;
        if lost_s < 0.0 {
            lane.wait = lane.first;
            // A shape that went well is worth a closer look at once; two sizes of one
            // shape are too much alike for that.
            if trial != Trial::Size {
                lane.since = lane.first;
            }
        } else {
            lane.wait = lane.wait.saturating_mul(2).clamp(lane.first, lane.longest);
        }
    }

    /// Takes in a probe for which the drafter had nothing: the shape is as long unseen as
    /// before.
    pub(super) fn nothing_proposed(&mut self, lost_s: f64) {
        self.purse_s -= lost_s;
    }

    fn lane(&mut self, trial: Trial) -> &mut Lane {
        match trial {
            Trial::Plain => &mut self.plain,
            Trial::Chain => &mut self.chain,
            Trial::Tree => &mut self.tree,
            Trial::Size => &mut self.size,
        }
    }
}

/// Share of all time that speculation other than probes may lose against plain decoding.
const LOSS_SHARE: f64 = 0.02;
/// What it may lose besides, and what earlier gains count for at most, in plain steps.
const LOSS_MOST: f64 = 8.0;
const GAIN_MOST: f64 = 8.0;

/// Keeps account of what speculation really gained or lost against plain decoding, and
/// stops it when the loss is too large, whatever the predictions say.
///
/// Over any stretch from the start, the loss is at most 2 % of the time and about 8 plain
/// steps, as far as the time of a plain step is known. Probes have a purse of their own,
/// so that one does not end the other.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Guard {
    balance_s: f64,
    stopped: bool,
}

impl Guard {
    pub(super) fn is_stopped(self) -> bool {
        self.stopped
    }

    /// Takes in a step; `tokens` only when it was speculative and no probe.
    pub(super) fn step(&mut self, tokens: Option<usize>, total_s: f64, plain_s: f64) {
        self.balance_s += LOSS_SHARE * total_s;
        if let Some(tokens) = tokens {
            self.balance_s += tokens as f64 * plain_s - total_s;
        }
        self.balance_s = self.balance_s.min(GAIN_MOST * plain_s);
        let least = if self.stopped { LOSS_MOST / 2.0 } else { LOSS_MOST };
        self.stopped = self.balance_s < -least * plain_s;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_and_start_over() {
        let mut explorer = Explorer::new(1.0);
        let mut waits = Vec::new();
        let mut waited = 0;
        while waits.len() < 7 {
            explorer.step(Kind::Plain, 100.0, 100.0);
            waited += 1;
            if explorer.overdue(Trial::Chain).is_some() {
                explorer.step(Kind::Chain, 1.0, 100.0);
                explorer.probed(Trial::Chain, 1.0);
                waits.push(waited);
                waited = 0;
            }
        }
        assert_eq!(waits, [8, 16, 32, 64, 128, 128, 128]);
        explorer.probed(Trial::Chain, -1.0);
        assert_eq!(explorer.overdue(Trial::Chain), Some(0));
        explorer.step(Kind::Chain, 1.0, 100.0);
        assert_eq!(explorer.overdue(Trial::Chain), None);
        explorer.probed(Trial::Chain, 1.0);
        explorer.next_request();
        assert_eq!(explorer.lane(Trial::Chain).wait, 8);
    }

    #[test]
    fn probes_that_do_not_pay_get_their_share_and_no_more() {
        let mut explorer = Explorer::new(1.0);
        let (mut all, mut probes) = (0.0, 0.0);
        for _ in 0..10_000 {
            let kind = if explorer.overdue(Trial::Tree).is_some() && explorer.affords(10.0) {
                explorer.probed(Trial::Tree, 10.0);
                // Waits alone would allow one in 9 steps.
                explorer.tree.wait = 8;
                probes += 10.0;
                Kind::Tree
            } else {
                Kind::Plain
            };
            let total_s = if kind == Kind::Tree { 10.0 } else { 1.0 };
            explorer.step(kind, total_s, 1.0);
            all += total_s;
        }
        assert!(probes <= PROBE_SHARE * all + PROBE_START, "{probes} of {all}");
        assert!(probes > 0.8 * PROBE_SHARE * all, "{probes} of {all}");
    }

    #[test]
    fn losses_stop_speculation_and_stay_bounded() {
        let mut guard = Guard::default();
        let (mut lost, mut all) = (0.0, 0.0);
        for _ in 0..5000 {
            let tokens = (!guard.is_stopped()).then_some(1);
            let total_s = if tokens.is_some() { 3.0 } else { 1.0 };
            guard.step(tokens, total_s, 1.0);
            lost += total_s - 1.0;
            all += total_s;
            assert!(lost <= LOSS_SHARE * all + LOSS_MOST + 3.0, "{lost} of {all}");
        }
        assert!(lost > LOSS_SHARE * all, "it goes on trying");
    }

    #[test]
    fn gains_do_not_buy_a_long_loss() {
        let mut guard = Guard::default();
        for _ in 0..1000 {
            guard.step(Some(5), 1.0, 1.0);
        }
        let mut steps = 0;
        while !guard.is_stopped() {
            guard.step(Some(1), 2.0, 1.0);
            steps += 1;
        }
        assert!(steps <= 18, "{steps}");
    }
}
