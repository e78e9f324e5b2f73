//! What trees of one budget tell of trees of another.

use super::trials::{Chance, Depths, Trials};
use crate::speculate::SpecLimits;

/// Trials that the shallower neighbour's rate counts for at a position, and a chain's rate
/// at a tree's.
pub(super) const LENT: f64 = 1.5;
/// Budgets that trees are counted under.
pub(super) const CLASSES: [usize; 8] = [4, 8, 12, 16, 24, 32, 48, 63];
/// Most trials that all other budgets together count for at a tree's position.
const POOLED: f64 = 4.0;
/// Misses of a tree fall with its budget to this power: twice the rows miss about an
/// eighth less often. It only carries what one budget shows over to the others.
const WIDTH_POWER: f64 = 0.2;

/// Evidence of trees by class.
pub(super) type Trees = [Depths; CLASSES.len()];

/// The class nearest to a budget by ratio.
pub(super) fn class(budget: usize) -> usize {
    let apart = |class: usize| (class as f64 / budget.max(1) as f64).log2().abs();
    let nearest = CLASSES.iter().enumerate().min_by(|a, b| apart(*a.1).total_cmp(&apart(*b.1)));
    nearest.map_or(0, |(index, _)| index)
}

/// How a class speaks for a budget.
#[derive(Clone, Copy, Debug)]
struct Link {
    /// Whether the budget is counted under this class.
    is_own: bool,
    /// Its trials count for this much.
    weight: f64,
    /// Factor on its misses.
    misses: f64,
}

/// How evidence is lent to trees of one budget.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lending {
    links: [Link; CLASSES.len()],
    /// Factor on a chain's misses: a tree with rows to spare for siblings starts out a
    /// little ahead of the chain.
    spare: f64,
}

impl Lending {
    /// One for each budget, from 1 on.
    pub(super) fn table(positions: usize) -> Vec<Self> {
        (1..=SpecLimits::MAX).map(|budget| Self::new(positions, budget)).collect()
    }

    fn new(positions: usize, budget: usize) -> Self {
        let own = class(budget);
        let mut at = 0..CLASSES.len();
        let links = CLASSES.map(|class| {
            let ratio = class as f64 / budget as f64;
            let apart = ratio.log2().abs();
            Link {
                is_own: at.next() == Some(own),
                weight: 1.0 / (1.0 + apart * apart),
                misses: ratio.powf(WIDTH_POWER),
            }
        });
        let spare = positions.min(budget) as f64 / budget as f64;
        Self { links, spare: spare.powf(WIDTH_POWER) }
    }

    /// The chance of a tree's position, from what trees show and from that of a chain.
    pub(super) fn chance(&self, trees: &Trees, depth: usize, chain: Chance) -> Chance {
        let mut own = Trials::default();
        let (mut trials, mut misses) = (0.0, 0.0);
        for (depths, link) in trees.iter().zip(self.links) {
            let Some(&seen) = depths.get(depth) else { continue };
            if link.is_own {
                own = seen;
            } else {
                trials += link.weight * seen.tried;
                misses += link.weight * link.misses * (seen.tried - seen.hit).max(0.0);
            }
        }
        // However much others have seen, a few trials of its own outweigh it.
        let share = POOLED / f64::max(trials, POOLED);
        let trials = share * trials + own.tried + LENT;
        let misses = share * misses
            + (own.tried - own.hit).max(0.0)
            + LENT * (1.0 - chain.rate) * self.spare;
        Chance { rate: (1.0 - misses / trials).clamp(0.0, 1.0), trials }
    }
}
