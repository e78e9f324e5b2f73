//! Fading counts of trials, and what follows from them.

use crate::speculate::SpecLimits;

/// What is left of earlier evidence after a step of the same shape: about the last 33
/// steps count.
pub(super) const KEEP: f64 = 0.97;
/// Standard errors above the mean that optimism goes.
const OPTIMISM: f64 = 1.64;

/// Trials and acceptances, both fading.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trials {
    pub(super) tried: f64,
    pub(super) hit: f64,
}

impl Trials {
    pub(super) fn scale(&mut self, by: f64) {
        self.tried *= by;
        self.hit *= by;
    }

    pub(super) fn fade_to(&mut self, least: f64, by: f64) {
        if self.tried > least {
            self.scale(by.max(least / self.tried));
        }
    }
}

/// One row of evidence per depth.
pub(super) type Depths = [Trials; SpecLimits::MAX];

/// A position's chance, and the evidence for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chance {
    /// Probability of acceptance, given that the position before was accepted.
    pub rate: f64,
    /// Trials it rests on, fading and lent ones included.
    pub trials: f64,
}

impl Chance {
    /// Upper end of Wilson's interval, for deciding what is worth a trial.
    pub(super) fn optimistic(self) -> f64 {
        let Self { rate, trials } = self;
        let z2 = OPTIMISM * OPTIMISM;
        let spread = (rate * (1.0 - rate) / trials + z2 / (4.0 * trials * trials)).sqrt();
        ((rate + z2 / (2.0 * trials) + OPTIMISM * spread) / (1.0 + z2 / trials)).min(1.0)
    }
}

/// Fades what was seen and adds one trial for each position up to the first that was not
/// accepted, at most `reach`.
pub(super) fn count(depths: &mut Depths, accepted: usize, reach: usize) {
    depths.iter_mut().for_each(|trials| trials.scale(KEEP));
    for (trials, depth) in depths.iter_mut().zip(0..reach.min(accepted.saturating_add(1))) {
        trials.tried += 1.0;
        trials.hit += f64::from(u8::from(depth < accepted));
    }
}

/// One, and the products of the first rates, summed.
pub(super) fn along(rates: impl Iterator<Item = f64>) -> f64 {
    let mut reached = 1.0;
    let mut sum = 1.0;
    for rate in rates {
        reached *= rate;
        sum += reached;
        // What is left can not matter.
        if reached < 1e-4 {
            break;
        }
    }
    sum
}
