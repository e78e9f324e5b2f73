//! Combining splits.

use crate::math::{exp1, per_isa};

/// Maximum and sum of a query's softmax so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stats {
    pub(super) max: f32,
    pub(super) sum: f32,
}

impl Stats {
    /// Before the first split.
    pub(super) const EMPTY: Self = Self { max: f32::NEG_INFINITY, sum: 0.0 };
}

per_isa! {
    /// Folds a later split into `(stats, out)`. Into nothing, a split goes unchanged.
    pub(super) fn fold[_s](stats: &mut Stats, out: &mut [f32], later: &Stats, values: &[f32]) {
        if *stats == Stats::EMPTY {
            *stats = *later;
            out.copy_from_slice(values);
            return;
        }
        let max = if later.max > stats.max { later.max } else { stats.max };
        let (a, b) = (exp1(stats.max - max), exp1(later.max - max));
        stats.max = max;
        stats.sum = stats.sum.mul_add(a, later.sum * b);
        for (o, v) in out.iter_mut().zip(values) {
            *o = o.mul_add(a, v * b);
        }
    }
}

per_isa! {
    /// Divides by the sum of the softmax.
    pub(super) fn finish[_s](stats: &Stats, out: &mut [f32]) {
        let factor = 1.0 / stats.sum;
        for o in out {
            *o *= factor;
        }
    }
}
