//! What to time when a device and model meet for the first time.

use super::{CostPoints, VerifyPoint};
use crate::kernel::TreeRows;
use crate::speculate::SpeculateFault;

/// Widths worth timing: both sides of the places where kernels change over (8, 16, 32),
/// and a few between. Those that give the rough shape come first, in case time runs out.
const WIDTHS: [usize; 15] = [2, 64, 16, 8, 32, 4, 9, 17, 24, 33, 48, 12, 6, 3, 1];

/// What to time and how long it may take.
#[derive(Clone, Debug, PartialEq)]
pub struct CalibrationPlan {
    /// Widths of verify passes in the order to time them; the first two are always timed.
    pub rows: Vec<usize>,
    /// Timed runs of each, of which the shortest counts. One more run of each goes before
    /// them and counts only when there is no other.
    pub runs: usize,
    /// Seconds after which nothing new is started but what must be timed once.
    pub limit_s: f64,
}

impl CalibrationPlan {
    /// A plan for passes of at most this many rows (cut to 2 to 64).
    pub fn new(max_rows: usize) -> Self {
        let max = max_rows.clamp(2, TreeRows::MAX);
        let mut rows: Vec<usize> = WIDTHS.into_iter().filter(|&rows| rows < max).collect();
        // The widest goes second: with the narrowest it gives the slope.
        rows.insert(rows.len().min(1), max);
        Self { rows, runs: 5, limit_s: 2.5 }
    }
}

/// One thing to time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// A plain step.
    Plain,
    /// A draft.
    Draft,
    /// A verify pass.
    Verify {
        /// Its rows.
        rows: usize,
    },
}

/// A calibration under way. The caller runs each task, times it and records the time.
#[derive(Clone, Debug)]
pub struct Calibration {
    tasks: Vec<(Task, Vec<f64>)>,
    /// Tasks that have to be done at least once.
    must: usize,
    runs: usize,
    limit_s: f64,
    spent_s: f64,
    at: usize,
}

impl Calibration {
    /// Begins to follow a plan. Without `drafts` (a drafter that works on the host) a
    /// draft counts as free.
    pub fn new(plan: &CalibrationPlan, drafts: bool) -> Self {
        let mut tasks = vec![Task::Plain];
        if drafts {
            tasks.push(Task::Draft);
        }
        let must = tasks.len() + plan.rows.len().min(2);
        tasks.extend(plan.rows.iter().map(|&rows| Task::Verify { rows }));
        Self {
            tasks: tasks.into_iter().map(|task| (task, Vec::new())).collect(),
            must,
            runs: plan.runs.saturating_add(1).max(2),
            limit_s: plan.limit_s,
            spent_s: 0.0,
            at: 0,
        }
    }

    /// What to run next; `None` when done or out of time. Tasks take turns, so that a
    /// passing load does not fall on one alone.
    pub fn next_task(&self) -> Option<Task> {
        let (task, times) = self.tasks.get(self.at)?;
        let missing = times.is_empty() && self.at < self.must;
        if missing || (self.spent_s < self.limit_s && times.len() < self.runs) {
            return Some(*task);
        }
        None
    }

    /// Takes in the seconds of the task that was next.
    pub fn record(&mut self, seconds: f64) {
        if let Some((_, times)) = self.tasks.get_mut(self.at) {
            times.push(seconds);
            // A clock that gives nothing usable must still come to an end.
            self.spent_s += if seconds >= 0.0 { seconds } else { self.limit_s };
            self.at = (self.at + 1) % self.tasks.len();
        }
    }

    /// The shortest times: load only ever adds. A plain step does no more than a
    /// verification of one row, so it takes no longer.
    ///
    /// # Errors
    /// Those of [`CostPoints::check`], when what was recorded makes no sense or too
    /// little was.
    pub fn finish(&self) -> Result<CostPoints, SpeculateFault> {
        let mut points =
            CostPoints { plain_s: 0.0, draft_s: 0.0, commit_s: 0.0, verify: Vec::new() };
        for (task, times) in &self.tasks {
            let Some(seconds) = least(times) else { continue };
            match *task {
                Task::Plain => points.plain_s = seconds,
                Task::Draft => points.draft_s = seconds,
                Task::Verify { rows } => points.verify.push(VerifyPoint { rows, seconds }),
            }
        }
        if let Some(one) = points.verify.iter().find(|point| point.rows == 1) {
            points.plain_s = points.plain_s.min(one.seconds);
        }
        points.check()?;
        Ok(points)
    }
}

/// The least of all but the first run, which warms things up; the first when it is alone.
fn least(times: &[f64]) -> Option<f64> {
    let times = match times {
        [_, rest @ ..] if !rest.is_empty() => rest,
        all => all,
    };
    times.iter().copied().min_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a calibration with made-up times; `n` counts the runs of all tasks.
    fn run(plan: &CalibrationPlan, mut time: impl FnMut(Task, usize) -> f64) -> Calibration {
        let mut calibration = Calibration::new(plan, true);
        let mut n = 0;
        while let Some(task) = calibration.next_task() {
            calibration.record(time(task, n));
            n += 1;
            assert!(n < 1000, "it must end");
        }
        calibration
    }

    #[test]
    fn plans_hold_the_widest_and_nothing_wider() {
        for max in 0..100 {
            let plan = CalibrationPlan::new(max);
            let widest = max.clamp(2, 64);
            assert!(plan.rows.iter().all(|&rows| (1..=widest).contains(&rows)), "{plan:?}");
            assert!(plan.rows.iter().take(2).any(|&rows| rows == widest), "{plan:?}");
            let unique: std::collections::BTreeSet<_> = plan.rows.iter().collect();
            assert_eq!(unique.len(), plan.rows.len());
        }
    }

    #[test]
    fn medians_pass_over_the_warm_up_and_a_hiccup() {
        let plan = CalibrationPlan { rows: vec![2, 8], runs: 3, limit_s: 1e9 };
        let points = run(&plan, |task, n| {
            let base = match task {
                Task::Plain => 1.0,
                Task::Draft => 2.0,
                Task::Verify { rows } => rows as f64,
            };
            // The first round warms up, the third is disturbed.
            if n / 4 == 0 || n / 4 == 2 { base * 50.0 } else { base }
        })
        .finish()
        .unwrap();
        assert_eq!((points.plain_s, points.draft_s, points.commit_s), (1.0, 2.0, 0.0));
        assert_eq!(points.verify.iter().map(|p| p.seconds).collect::<Vec<_>>(), [2.0, 8.0]);
    }

    #[test]
    fn ends_in_time_with_the_least_it_needs() {
        let plan = CalibrationPlan::new(64);
        let slow = run(&plan, |_, _| 10.0);
        assert_eq!(slow.spent_s, 40.0);
        let points = slow.finish().unwrap();
        let rows: Vec<_> = points.verify.iter().map(|p| p.rows).collect();
        assert_eq!(rows, [2, 64]);
        let quick = run(&plan, |_, _| 1e-3);
        assert!(quick.spent_s <= plan.limit_s);
        assert_eq!(quick.finish().unwrap().verify.len(), plan.rows.len());
        let middling = run(&plan, |_, _| 0.05);
        // At most the task that was running when time was up goes past the limit.
        assert!(middling.spent_s <= plan.limit_s + 0.05);
    }

    #[test]
    fn nonsense_ends_too() {
        for bad in [f64::NAN, -1.0, f64::INFINITY, 0.0] {
            assert!(run(&CalibrationPlan::new(16), |_, _| bad).finish().is_err(), "{bad}");
        }
        let none = Calibration::new(&CalibrationPlan::new(16), false);
        assert!(none.finish().is_err());
        assert_eq!(none.next_task(), Some(Task::Plain));
    }
}
