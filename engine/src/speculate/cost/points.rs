//! Measured times, and the curve through them.

use serde::{Deserialize, Serialize};

use crate::kernel::TreeRows;
use crate::speculate::SpeculateFault;

/// A timed verify pass.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct VerifyPoint {
    /// Rows, the pending token's included.
    pub rows: usize,
    /// Seconds.
    pub seconds: f64,
}

/// What was measured, all in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostPoints {
    /// A plain step.
    pub plain_s: f64,
    /// A draft; 0 for a drafter that takes no time to speak of.
    pub draft_s: f64,
    /// The rest of a speculative step: commit and hand-over; 0 when it is part of `verify`.
    pub commit_s: f64,
    /// Verify passes, in any order.
    pub verify: Vec<VerifyPoint>,
}

impl CostPoints {
    /// Whether a model can be made of them.
    ///
    /// # Errors
    /// `NoVerifyPoints`, `TooManyPoints`, `BadRows`, `BadSeconds`.
    pub fn check(&self) -> Result<(), SpeculateFault> {
        let max = TreeRows::MAX;
        positive("a plain step", self.plain_s)?;
        not_negative("a draft", self.draft_s)?;
        not_negative("a commit", self.commit_s)?;
        if self.verify.is_empty() {
            return Err(SpeculateFault::NoVerifyPoints);
        }
        if self.verify.len() > max {
            return Err(SpeculateFault::TooManyPoints { count: self.verify.len(), max });
        }
        for &VerifyPoint { rows, seconds } in &self.verify {
            if !(1..=max).contains(&rows) {
                return Err(SpeculateFault::BadRows { rows, max });
            }
            positive("a verify pass", seconds)?;
        }
        Ok(())
    }
}

/// Longest time taken for real: what is above it is a file's invention or a clock's fault.
const LONGEST_S: f64 = 1e5;

fn not_negative(what: &'static str, seconds: f64) -> Result<(), SpeculateFault> {
    if (0.0..=LONGEST_S).contains(&seconds) {
        return Ok(());
    }
    Err(SpeculateFault::BadSeconds { what, seconds })
}

fn positive(what: &'static str, seconds: f64) -> Result<(), SpeculateFault> {
    if seconds == 0.0 {
        return Err(SpeculateFault::BadSeconds { what, seconds });
    }
    not_negative(what, seconds)
}

/// Seconds of a verify pass for every width: entry `i` is that of `i + 1` rows.
pub(super) type Curve = [f64; TreeRows::MAX];

/// The curve through checked points, which never falls: where noise made a wider pass
/// look cheaper, neighbours share their mean. Straight between points, level before the
/// first, and on in the last piece's direction after the last.
pub(super) fn curve(points: &[VerifyPoint]) -> Curve {
    let points = rising(points);
    let mut curve = [0.0; TreeRows::MAX];
    let mut after = 0;
    for (seconds, rows) in curve.iter_mut().zip(1usize..) {
        while points.get(after).is_some_and(|&(at, _)| at < rows as f64) {
            after += 1;
        }
        // The piece that holds `rows`, or the last one.
        let right = after.min(points.len().saturating_sub(1));
        let left = right.saturating_sub(1);
        let (Some(&(x0, y0)), Some(&(x1, y1))) = (points.get(left), points.get(right)) else {
            continue;
        };
        let slope = if x1 > x0 { (y1 - y0) / (x1 - x0) } else { 0.0 };
        *seconds = if after == 0 { y1 } else { y0 + slope * (rows as f64 - x0) };
    }
    curve
}

/// The points in order of their rows, with the means of what does not rise (pool adjacent
/// violators) in their place.
fn rising(points: &[VerifyPoint]) -> Vec<(f64, f64)> {
    let mut points: Vec<_> = points.iter().map(|p| (p.rows, p.seconds)).collect();
    points.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    // Blocks of neighbours: sum of seconds and how many.
    let mut blocks: Vec<(f64, usize)> = Vec::with_capacity(points.len());
    for &(_, seconds) in &points {
        let mut block = (seconds, 1);
        while let Some(&(sum, count)) = blocks.last()
            && sum * block.1 as f64 >= block.0 * count as f64
        {
            block = (block.0 + sum, block.1 + count);
            blocks.pop();
        }
        blocks.push(block);
    }
    let levels = blocks.iter().flat_map(|&(sum, n)| std::iter::repeat_n(sum / n as f64, n));
    let mut rising: Vec<(f64, f64)> = Vec::with_capacity(points.len());
    for (&(rows, _), level) in points.iter().zip(levels) {
        // A width that was measured twice may straddle two blocks; its mean keeps order.
        match rising.last_mut() {
            Some(last) if last.0 == rows as f64 => last.1 = (last.1 + level) / 2.0,
            _ => rising.push((rows as f64, level)),
        }
    }
    rising
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn points(list: &[(usize, f64)]) -> Vec<VerifyPoint> {
        list.iter().map(|&(rows, seconds)| VerifyPoint { rows, seconds }).collect()
    }

    #[test]
    fn straight_between_level_before_and_on_after() {
        let curve = curve(&points(&[(8, 3.0), (2, 1.0), (4, 2.0)]));
        let at = |rows: usize| curve[rows - 1];
        assert_eq!([at(1), at(2), at(3), at(4), at(6), at(8)], [1.0, 1.0, 1.5, 2.0, 2.5, 3.0]);
        // Rounding of the slope.
        assert!((at(64) - 17.0).abs() < 1e-12, "{}", at(64));
    }

    #[test]
    fn one_point_is_level() {
        assert_eq!(curve(&points(&[(9, 0.5)])), [0.5; 64]);
    }

    #[test]
    fn a_fall_is_levelled() {
        let curve = curve(&points(&[(1, 1.0), (2, 4.0), (3, 2.0), (4, 3.0), (5, 9.0)]));
        assert_eq!(curve[..5], [1.0, 3.0, 3.0, 3.0, 9.0]);
    }

    #[test]
    fn what_can_not_be_is_refused() {
        let good = CostPoints {
            plain_s: 1.0,
            draft_s: 0.0,
            commit_s: 0.0,
            verify: points(&[(1, 1.0), (64, 2.0)]),
        };
        assert_eq!(good.check(), Ok(()));
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e6] {
            let fault = CostPoints { plain_s: bad, ..good.clone() }.check();
            assert!(matches!(fault, Err(SpeculateFault::BadSeconds { .. })), "{bad}");
            let verify = points(&[(1, 1.0), (2, bad)]);
            let fault = CostPoints { verify, ..good.clone() }.check();
            assert!(matches!(fault, Err(SpeculateFault::BadSeconds { .. })), "{bad}");
            let draft = CostPoints { draft_s: bad, ..good.clone() }.check();
            let commit = CostPoints { commit_s: bad, ..good.clone() }.check();
            assert_eq!((draft.is_ok(), commit.is_ok()), (bad == 0.0, bad == 0.0));
        }
        for rows in [0, 65, usize::MAX] {
            let fault = CostPoints { verify: points(&[(rows, 1.0)]), ..good.clone() }.check();
            assert_eq!(fault, Err(SpeculateFault::BadRows { rows, max: 64 }));
        }
        let fault = CostPoints { verify: Vec::new(), ..good.clone() }.check();
        assert_eq!(fault, Err(SpeculateFault::NoVerifyPoints));
        let fault = CostPoints { verify: points(&[(1, 1.0); 65]), ..good }.check();
        assert_eq!(fault, Err(SpeculateFault::TooManyPoints { count: 65, max: 64 }));
    }

    proptest! {
        #[test]
        fn the_curve_never_falls_and_stays_among_the_points(
            list in prop::collection::vec((1usize..=64, 1e-6f64..10.0), 1..40),
        ) {
            let curve = curve(&points(&list));
            // Means of equal numbers may differ in the last bits.
            prop_assert!(curve.windows(2).all(|w| w[1] >= w[0] - 1e-12));
            let low = list.iter().map(|p| p.1).fold(f64::INFINITY, f64::min);
            let high = list.iter().map(|p| p.1).fold(0.0, f64::max);
            let last = list.iter().map(|p| p.0).max().unwrap();
            prop_assert!(curve[0] >= low - 1e-12);
            prop_assert!(curve[last - 1] <= high + 1e-12);
        }

        #[test]
        fn a_rising_list_is_kept_as_it_is(
            steps in prop::collection::vec((1usize..4, 1e-3f64..1.0), 1..16),
        ) {
            let mut at = (0, 1.0);
            let list: Vec<_> = steps
                .iter()
                .map(|step| {
                    at = (at.0 + step.0, at.1 + step.1);
                    at
                })
                .collect();
            let curve = curve(&points(&list));
            for (rows, seconds) in list {
                prop_assert!((curve[rows - 1] - seconds).abs() < 1e-12);
            }
        }
    }
}
