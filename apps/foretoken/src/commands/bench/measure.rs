//! Timing tests. All tests of a depth share a session: the tokens before them are run once,
//! and every repetition starts from a checkpoint after those.

use std::time::Instant;

use anyhow::{Result, ensure};
use foretoken::generate::{Cancel, Checkpoint, Session, WantLogits};

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// A prompt of so many tokens.
    Prompt(usize),
    /// So many tokens, one after another.
    Generate(usize),
    /// One verification pass.
    Pass {
        /// Its rows.
        rows: usize,
        /// They are a tree, else a chain.
        tree: bool,
    },
}

/// What is run, and after how many tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Test {
    pub(super) work: Work,
    /// Tokens in the context beforehand.
    pub(super) depth: usize,
}

/// Steps of the warm-up of a generation test: enough to touch all weights and pages.
const WARM_UP: usize = 32;

impl Test {
    /// As llama-bench names it.
    pub(super) fn name(self) -> String {
        let work = match self.work {
            Work::Prompt(tokens) => format!("pp{tokens}"),
            Work::Generate(tokens) => format!("tg{tokens}"),
            Work::Pass { rows, tree } => format!("pass{rows}{}", if tree { " tree" } else { "" }),
        };
        match self.depth {
            0 => work,
            depth => format!("{work} @ d{depth}"),
        }
    }

    /// Context it takes.
    pub(super) fn context(self) -> usize {
        let tokens = match self.work {
            Work::Prompt(tokens) | Work::Generate(tokens) => tokens,
            // One row is committed.
            Work::Pass { .. } => 1,
        };
        self.depth.saturating_add(tokens)
    }

    /// What its samples are.
    pub(super) fn unit(self) -> &'static str {
        match self.work {
            Work::Prompt(_) | Work::Generate(_) => "tok/s",
            Work::Pass { .. } => "ms",
        }
    }
}

/// A session with so many tokens in it, to which it can go back.
pub(super) struct Bed {
    session: Session,
    start: Checkpoint,
}

impl Bed {
    /// Runs `depth` tokens.
    ///
    /// # Errors
    /// Engine faults.
    pub(super) fn new(mut session: Session, depth: usize) -> Result<Self> {
        let before = ids(depth, session.engine().tokenizer().vocab_size());
        if !before.is_empty() {
            let cancel = Cancel::default();
            session.prefill(&before, WantLogits::None, &cancel, &mut |_, _| Ok(()))?;
        }
        let start = session.checkpoint()?;
        Ok(Self { session, start })
    }

    /// The sample of each repetition: tokens per second, or milliseconds.
    ///
    /// # Errors
    /// Engine faults.
    pub(super) fn measure(&mut self, test: Test, repetitions: usize) -> Result<Vec<f64>> {
        let warm_up = match test.work {
            Work::Generate(tokens) => Work::Generate(tokens.min(WARM_UP)),
            other => other,
        };
        self.once(warm_up)?;
        (0..repetitions).map(|_| self.once(test.work)).collect()
    }

    fn once(&mut self, work: Work) -> Result<f64> {
        let Self { session, start } = self;
        session.rewind(start)?;
        let depth = session.committed();
        let vocab = session.engine().tokenizer().vocab_size();
        match work {
            Work::Prompt(tokens) => {
                let ids = ids(depth + tokens, vocab);
                let prompt = ids.get(depth..).unwrap_or_default();
                let (start, cancel) = (Instant::now(), Cancel::default());
                session.prefill(prompt, WantLogits::Last, &cancel, &mut |_, _| Ok(()))?;
                Ok(tokens as f64 / start.elapsed().as_secs_f64())
            }
            Work::Generate(tokens) => {
                // What follows does not matter, so end tokens end nothing.
                let mut next = ids(depth + 1, vocab).last().copied().unwrap_or_default();
                let start = Instant::now();
                for _ in 0..tokens {
                    session.step(&[next], WantLogits::Last)?;
                    next = session.argmax(0).unwrap_or_default();
                }
                Ok(tokens as f64 / start.elapsed().as_secs_f64())
            }
            Work::Pass { rows, tree } => {
                let time = session.time_pass(rows, tree)?;
                ensure!(time.rows == rows, "a pass of {rows} rows ran {}", time.rows);
                Ok(time.verify.as_secs_f64() * 1e3)
            }
        }
    }
}

/// Scattered ids, the same ones every time (a linear congruential generator with
/// Knuth's constants).
fn ids(count: usize, vocab: usize) -> Vec<u32> {
    let mut state = 1u64;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % (vocab.max(1) as u64)) as u32
    };
    (0..count).map(|_| next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_contexts_and_units() {
        let about = |work, depth| {
            let test = Test { work, depth };
            (test.name(), test.context(), test.unit())
        };
        assert_eq!(about(Work::Prompt(512), 0), ("pp512".into(), 512, "tok/s"));
        assert_eq!(about(Work::Generate(128), 64), ("tg128 @ d64".into(), 192, "tok/s"));
        assert_eq!(about(Work::Pass { rows: 16, tree: false }, 0), ("pass16".into(), 1, "ms"));
        let tree = Work::Pass { rows: 23, tree: true };
        assert_eq!(about(tree, 8192), ("pass23 tree @ d8192".into(), 8193, "ms"));
    }

    #[test]
    fn ids_lie_in_the_vocabulary_and_vary() {
        let ids = ids(1000, 50);
        assert!(ids.iter().all(|&id| id < 50));
        assert!((0..50).all(|id| ids.contains(&id)));
    }
}
