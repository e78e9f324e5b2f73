//! Timing a test.

use std::time::Instant;

use anyhow::Result;
use foretoken::generate::{Cancel, Session, WantLogits};

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Test {
    /// Prompt processing, else generation.
    pub(super) prompt: bool,
    /// Length.
    pub(super) tokens: usize,
    /// Tokens in the context beforehand.
    pub(super) depth: usize,
}

/// Steps of the warm-up of a generation test: enough to touch all weights and pages.
const WARM_UP: usize = 32;

impl Test {
    /// As llama-bench names it.
    pub(super) fn name(self) -> String {
        let kind = if self.prompt { "pp" } else { "tg" };
        match self.depth {
            0 => format!("{kind}{}", self.tokens),
            depth => format!("{kind}{} @ d{depth}", self.tokens),
        }
    }

    /// Context it takes.
    pub(super) fn context(self) -> usize {
        self.depth.saturating_add(self.tokens)
    }
}

/// Tokens per second of each repetition.
///
/// # Errors
/// Engine faults.
pub(super) fn measure(session: &mut Session, test: Test, repetitions: usize) -> Result<Vec<f64>> {
    let warm_up = match test {
        Test { prompt: true, .. } => test,
        Test { prompt: false, .. } => Test { tokens: test.tokens.min(WARM_UP), ..test },
    };
    once(session, warm_up)?;
    (0..repetitions).map(|_| once(session, test)).collect()
}

fn once(session: &mut Session, test: Test) -> Result<f64> {
    let vocab = session.engine().tokenizer().vocab_size();
    let ids = ids(test.context(), vocab);
    let (before, prompt) = ids.split_at(test.depth);
    let cancel = Cancel::default();
    session.reset()?;
    if !before.is_empty() {
        session.prefill(before, WantLogits::None, &cancel, &mut |_, _| Ok(()))?;
    }
    let start = Instant::now();
    if test.prompt {
        session.prefill(prompt, WantLogits::Last, &cancel, &mut |_, _| Ok(()))?;
    } else {
        let mut next = prompt.first().copied().unwrap_or_default();
        for _ in 0..test.tokens {
            session.step(&[next], WantLogits::Last)?;
            next = session.argmax(0).unwrap_or_default();
        }
    }
    Ok(test.tokens as f64 / start.elapsed().as_secs_f64())
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
    fn names_and_contexts() {
        let mut test = Test { prompt: true, tokens: 512, depth: 0 };
        assert_eq!((test.name().as_str(), test.context()), ("pp512", 512));
        test = Test { prompt: false, tokens: 128, depth: 64 };
        assert_eq!((test.name().as_str(), test.context()), ("tg128 @ d64", 192));
    }

    #[test]
    fn ids_lie_in_the_vocabulary_and_vary() {
        let ids = ids(1000, 50);
        assert!(ids.iter().all(|&id| id < 50));
        assert!((0..50).all(|id| ids.contains(&id)));
    }
}
