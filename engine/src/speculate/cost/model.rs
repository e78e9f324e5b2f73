//! Predicted seconds of a step, corrected by what steps really take.

use super::CostPoints;
use super::points::{Curve, curve};
use crate::kernel::TreeRows;
use crate::speculate::{Choice, Outcome, SpeculateFault};

/// Weight of the newest of many measurements.
const GAIN: f64 = 0.15;
/// Most that one measurement may differ from what is believed (as a log of the ratio), so
/// that a single hiccup of the machine moves little.
const JUMP: f64 = 0.7;
/// Measurements after which that holds; before, twice as much may be believed.
const FEW: f64 = 3.0;
/// What is left of the count of measurements after a step that made none here.
const KEEP_SEEN: f64 = 0.99;
/// How much less than believed a width that was never measured may cost, as a log.
const DOUBT: f64 = 0.5;
/// Most that a correction may come to, as a log: a factor of about 20 000.
const FARTHEST: f64 = 10.0;
/// Most that one measurement of the rest of a step may exceed what is believed, in plain
/// steps.
const REST_JUMP: f64 = 0.5;
/// Parts shorter than this are taken for this long, so that ratios stay meaningful.
const SHORTEST_S: f64 = 1e-6;

/// How far from the measured point reality is: log of measured over predicted.
#[derive(Clone, Copy, Debug, Default)]
struct Drift {
    log: f64,
    /// Measurements so far, the older ones faded.
    seen: f64,
}

impl Drift {
    /// Takes in a measurement and returns how far it moved what is believed.
    fn learn(&mut self, measured: f64, predicted: f64) -> f64 {
        let log = (measured.max(SHORTEST_S) / predicted.max(SHORTEST_S)).ln();
        let jump = if self.seen < FEW { 2.0 * JUMP } else { JUMP };
        let step = GAIN.max(1.0 / (self.seen + 1.5)) * (log - self.log).clamp(-jump, jump);
        self.shift(step);
        self.seen += 1.0;
        step
    }

    fn shift(&mut self, step: f64) {
        self.log = (self.log + step).clamp(-FARTHEST, FARTHEST);
    }

    fn apply(self, seconds: f64) -> f64 {
        seconds.max(SHORTEST_S) * self.log.exp()
    }
}

/// Running mean of a time that has no good prediction to be held against.
#[derive(Clone, Copy, Debug)]
struct Mean {
    seconds: f64,
    seen: f64,
}

impl Mean {
    fn learn(&mut self, measured: f64, jump: f64) {
        let gain = GAIN.max(1.0 / (self.seen + 2.0));
        self.seconds += gain * (measured.min(self.seconds + jump) - self.seconds);
        self.seen += 1.0;
    }
}

/// Seconds of a plain step, of a draft, and of a verify pass of 1 to 64 rows.
///
/// Each starts as measured and follows what is observed, as load and context length
/// change. A verify pass corrects its own width most and others the less the farther they
/// are: load slows all widths, while a wrong point is wrong only where it is.
#[derive(Clone, Debug)]
pub struct CostModel {
    points: CostPoints,
    curve: Curve,
    plain: Drift,
    draft: Drift,
    rest: Mean,
    verify: [Drift; TreeRows::MAX],
}

impl CostModel {
    /// A model of measured points.
    ///
    /// # Errors
    /// Those of [`CostPoints::check`].
    pub fn new(points: CostPoints) -> Result<Self, SpeculateFault> {
        points.check()?;
        let curve = curve(&points.verify);
        let none = Drift::default();
        let rest = Mean { seconds: points.commit_s, seen: 0.0 };
        Ok(Self { points, curve, plain: none, draft: none, rest, verify: [none; TreeRows::MAX] })
    }

    /// The points it was made of, without later corrections.
    pub fn points(&self) -> &CostPoints {
        &self.points
    }

    /// A plain step.
    pub fn plain_s(&self) -> f64 {
        self.plain.apply(self.points.plain_s)
    }

    /// A draft.
    pub fn draft_s(&self) -> f64 {
        self.draft.apply(self.points.draft_s)
    }

    /// What a speculative step takes besides draft and verify pass.
    pub fn commit_s(&self) -> f64 {
        self.rest.seconds
    }

    /// A verify pass of this many rows, the pending token's included; cut to 1 to 64.
    pub fn verify_s(&self, rows: usize) -> f64 {
        let rows = rows.clamp(1, TreeRows::MAX);
        let (Some(drift), Some(&seconds)) = (self.verify.get(rows - 1), self.curve.get(rows - 1))
        else {
            return self.plain_s();
        };
        drift.apply(seconds)
    }

    /// A step that verifies `drafted` rows (none: a plain one).
    pub fn step_s(&self, drafted: usize) -> f64 {
        if drafted == 0 {
            return self.plain_s();
        }
        self.draft_s() + self.verify_s(drafted.saturating_add(1)) + self.commit_s()
    }

    /// What such a step may be hoped to take: less than believed where a verify pass of
    /// this width was not seen for long.
    pub(in crate::speculate) fn hopeful_step_s(&self, drafted: usize) -> f64 {
        let seconds = self.step_s(drafted);
        let Some(drift) = self.verify.get(drafted).filter(|_| drafted > 0) else { return seconds };
        let doubt = (-DOUBT / (1.0 + drift.seen)).exp();
        seconds - (1.0 - doubt) * self.verify_s(drafted.saturating_add(1))
    }

    /// Takes in the times of a step. Times that are not finite, or negative, are passed
    /// over.
    pub fn observe(&mut self, outcome: &Outcome) {
        let &Outcome { draft_s, verify_s, commit_s, total_s, .. } = outcome;
        let usable = [draft_s, verify_s, commit_s].iter().all(|s| s.is_finite() && *s >= 0.0);
        if !usable || !total_s.is_finite() || total_s <= 0.0 {
            return;
        }
        self.verify.iter_mut().for_each(|drift| drift.seen *= KEEP_SEEN);
        if !outcome.is_speculative() {
            if outcome.choice != Choice::Plain {
                self.draft.learn(draft_s, self.points.draft_s);
            }
            self.plain.learn((total_s - draft_s).max(0.0), self.points.plain_s);
            return;
        }
        let rows = outcome.drafted_rows.saturating_add(1);
        let (draft_s, verify_s) = if verify_s > 0.0 {
            (draft_s, verify_s)
        } else {
            let share = total_s / self.step_s(outcome.drafted_rows);
            (self.draft_s() * share, self.verify_s(rows) * share)
        };
        self.draft.learn(draft_s, self.points.draft_s);
        let rest = (total_s - draft_s - verify_s).max(0.0);
        self.rest.learn(rest, REST_JUMP * self.plain_s());
        self.observe_verify(rows, verify_s);
    }

    fn observe_verify(&mut self, rows: usize, seconds: f64) {
        let rows = rows.clamp(1, TreeRows::MAX);
        let at = rows - 1;
        let (Some(drift), Some(&predicted)) = (self.verify.get_mut(at), self.curve.get(at)) else {
            return;
        };
        let step = drift.learn(seconds, predicted);
        for (drift, width) in self.verify.iter_mut().zip(1usize..) {
            if width != rows {
                let apart = (width as f64 / rows as f64).log2().abs();
                drift.shift(step / (2.0 + apart));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::VerifyPoint;
    use super::*;

    fn model() -> CostModel {
        let verify =
            [(2, 1.0), (64, 2.0)].map(|(rows, seconds)| VerifyPoint { rows, seconds }).to_vec();
        CostModel::new(CostPoints { plain_s: 1.0, draft_s: 0.5, commit_s: 0.0, verify }).unwrap()
    }

    fn spec(rows: usize, draft_s: f64, verify_s: f64, total_s: f64) -> Outcome {
        Outcome {
            choice: Choice::Chain { len: rows },
            drafted_rows: rows,
            depth: rows,
            accepted: 0,
            draft_s,
            verify_s,
            commit_s: 0.0,
            total_s,
        }
    }

    fn plain(total_s: f64) -> Outcome {
        Outcome { choice: Choice::Plain, ..spec(0, 0.0, 0.0, total_s) }
    }

    #[test]
    fn follows_each_kind_by_itself() {
        let mut model = model();
        for _ in 0..60 {
            model.observe(&plain(2.0));
            model.observe(&spec(7, 0.25, 3.0, 3.75));
        }
        // 60 measurements leave less than 0.85^50 of the start.
        assert!((model.plain_s() - 2.0).abs() < 1e-2, "{}", model.plain_s());
        assert!((model.draft_s() - 0.25).abs() < 1e-2);
        assert!((model.verify_s(8) - 3.0).abs() < 2e-2);
        assert!((model.commit_s() - 0.5).abs() < 5e-2, "{}", model.commit_s());
    }

    #[test]
    fn a_width_learns_most_from_itself() {
        let mut model = model();
        let before = [2, 8, 9, 64].map(|rows| model.verify_s(rows));
        model.observe(&spec(7, 0.5, 4.0 * before[1], 10.0));
        let moved = [2, 8, 9, 64].map(|rows| model.verify_s(rows));
        let gain: Vec<f64> = moved.iter().zip(before).map(|(m, b)| m / b).collect();
        assert!(gain[1] > gain[2] && gain[2] > gain[0] && gain[2] > gain[3], "{gain:?}");
        assert!(gain[0] > 1.0 && gain[3] > 1.0, "{gain:?}");
    }

    #[test]
    fn a_total_alone_is_shared_out() {
        let mut model = model();
        let expected = model.step_s(7);
        for _ in 0..60 {
            model.observe(&spec(7, 0.0, 0.0, 3.0 * expected));
        }
        assert!((model.step_s(7) / expected - 3.0).abs() < 0.05, "{}", model.step_s(7));
        assert!((model.draft_s() / 0.5 - 3.0).abs() < 0.05, "{}", model.draft_s());
    }

    #[test]
    fn a_hiccup_moves_little_and_nonsense_nothing() {
        let mut model = model();
        for _ in 0..40 {
            model.observe(&plain(1.0));
        }
        model.observe(&plain(1000.0));
        // GAIN * JUMP is about 0.1.
        assert!(model.plain_s() < 1.12, "{}", model.plain_s());
        let before = (model.plain_s(), model.step_s(7));
        for bad in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
            model.observe(&plain(bad));
            model.observe(&spec(7, 0.1, 0.1, bad));
        }
        model.observe(&spec(7, f64::NAN, 0.1, 1.0));
        model.observe(&spec(7, 0.1, f64::NEG_INFINITY, 1.0));
        assert_eq!((model.plain_s(), model.step_s(7)), before);
    }

    #[test]
    fn widths_out_of_range_are_cut() {
        let model = model();
        assert_eq!(model.verify_s(0), model.verify_s(1));
        assert_eq!(model.verify_s(usize::MAX), model.verify_s(64));
        assert_eq!(model.step_s(0), model.plain_s());
        assert!(model.step_s(usize::MAX).is_finite());
    }

    #[test]
    fn nothing_drafted_is_a_plain_step() {
        let mut model = model();
        let verify = model.verify_s(8);
        for _ in 0..60 {
            model.observe(&Outcome { drafted_rows: 0, ..spec(7, 0.25, 0.0, 1.75) });
        }
        assert!((model.plain_s() - 1.5).abs() < 1e-2);
        assert!((model.draft_s() - 0.25).abs() < 1e-2);
        assert_eq!(model.verify_s(8), verify);
    }
}
