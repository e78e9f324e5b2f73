//! How panels are dealt out to workers.

use std::ops::Range;

/// Panels `0..panels` in numbered pieces, for workers that claim one after another:
/// first a large piece for each worker, half of the work in all, then small ones, so
/// that claims are few and a worker that was held up leaves its part to the others.
/// Pieces do not change results, only who computes them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pieces {
    panels: usize,
    workers: usize,
    large: usize,
    small: usize,
}

impl Pieces {
    pub(super) fn new(panels: usize, workers: usize) -> Self {
        let workers = workers.max(1);
        let large = if workers == 1 { panels } else { panels / (2 * workers) };
        let small = (panels / (16 * workers)).max(1);
        Self { panels, workers, large, small }
    }

    /// Number of pieces; some may be empty.
    pub(super) fn count(&self) -> usize {
        self.workers + (self.panels - self.workers * self.large).div_ceil(self.small)
    }

    /// The panels of piece `i`.
    pub(super) fn piece(&self, i: usize) -> Range<usize> {
        let at = |i: usize| {
            let small = i.saturating_sub(self.workers) * self.small;
            (i.min(self.workers) * self.large + small).min(self.panels)
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
        fn every_panel_is_in_one_piece(panels in 0usize..3000, workers in 0usize..70) {
            let pieces = Pieces::new(panels, workers);
            let mut next = 0;
            for i in 0..pieces.count() {
                let piece = pieces.piece(i);
                prop_assert_eq!(piece.start, next);
                prop_assert!(piece.start <= piece.end);
                next = piece.end;
            }
            prop_assert_eq!(next, panels);
        }
    }
}
