//! How panels are dealt out to workers.

use std::ops::Range;

/// Panels `0..panels` in numbered pieces, for workers that claim one after another:
/// first a large piece for each worker, half of the work in all, then small ones, so
/// that claims are few and a worker that was held up leaves its part to the others.
/// Too little work for that is dealt out evenly, a piece for each worker, and needs no
/// claims. Pieces do not change results, only who computes them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pieces {
    panels: usize,
    workers: usize,
    /// Panels in a large piece; `None` when all is dealt out evenly.
    large: Option<usize>,
    small: usize,
}

impl Pieces {
    /// `least` panels are worth a claim.
    pub(super) fn new(panels: usize, workers: usize, least: usize) -> Self {
        let (workers, least) = (workers.max(1), least.max(1));
        let large = panels / (2 * workers);
        let small = (panels / (16 * workers)).max(least);
        let large = (workers > 1 && large >= 2 * least).then_some(large);
        Self { panels, workers, large, small }
    }

    /// Whether each worker simply takes the piece of its own number.
    pub(super) fn is_even(&self) -> bool {
        self.large.is_none()
    }

    /// Number of pieces; some may be empty.
    pub(super) fn count(&self) -> usize {
        self.workers
            + self.large.map_or(0, |l| (self.panels - self.workers * l).div_ceil(self.small))
    }

    /// The panels of piece `i`.
    pub(super) fn piece(&self, i: usize) -> Range<usize> {
        let at = |i: usize| match self.large {
            None => self.panels * i.min(self.workers) / self.workers,
            Some(large) => {
                let small = i.saturating_sub(self.workers) * self.small;
                (i.min(self.workers) * large + small).min(self.panels)
            }
        };
        at(i)..at(i + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::Pieces;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_panel_is_in_one_piece(panels in 0usize..3000, workers in 0usize..70, least in 0usize..50) {
            let pieces = Pieces::new(panels, workers, least);
            let mut next = 0;
            for i in 0..pieces.count() {
                let piece = pieces.piece(i);
                prop_assert_eq!(piece.start, next);
                prop_assert!(piece.start <= piece.end);
                next = piece.end;
            }
            prop_assert_eq!(next, panels);
            if pieces.is_even() {
                prop_assert_eq!(pieces.count(), workers.max(1));
            }
        }
    }
}
