//! Repetition, frequency and presence penalties.

use super::{RequestFault, SamplingParams};

/// How often each token occurs in the penalty window.
///
/// The counts are always those of the window last given. What is kept from call to call is
/// only a shortcut: the new window is compared with the old one and just the differing tail
/// is recounted, so a history that grows by a token, loses a few (speculation) or changes
/// altogether comes out the same as counting anew.
#[derive(Debug, Clone)]
pub(super) struct PenaltyCounts {
    /// Occurrences by token id; length is the vocabulary.
    counts: Vec<u32>,
    /// Whether an id is in `seen`.
    listed: Vec<bool>,
    /// Ids that may have a count above 0.
    seen: Vec<u32>,
    /// The window the counts are of.
    window: Vec<u32>,
}

impl PenaltyCounts {
    pub(super) fn new(vocab: u32) -> Self {
        let vocab = vocab as usize;
        Self { counts: vec![0; vocab], listed: vec![false; vocab], seen: vec![], window: vec![] }
    }

    /// Counts the last `last_n` tokens of `history` (all of it for -1).
    pub(super) fn count(&mut self, history: &[u32], last_n: i32) -> Result<(), RequestFault> {
        // Negative means -1 here: parameters are validated.
        let len = usize::try_from(last_n).unwrap_or(usize::MAX);
        let start = history.len().saturating_sub(len);
        let window = history.get(start..).unwrap_or_default();
        let same = self.window.iter().zip(window).take_while(|(a, b)| a == b).count();

        let vocab = self.counts.len();
        let fresh = window.iter().enumerate().skip(same);
        if let Some((index, &id)) = fresh.clone().find(|&(_, &id)| id as usize >= vocab) {
            let index = start + index;
            return Err(RequestFault::HistoryId { index, id, vocab: vocab as u32 });
        }
        // `seen` may come to hold this many before it is tidied below; reserved now so that
        // a window that only slides never allocates.
        let most = vocab.min(window.len().saturating_mul(3).saturating_add(64));
        self.seen.reserve(most.saturating_sub(self.seen.len()));
        for id in self.window.drain(same..) {
            if let Some(count) = self.counts.get_mut(id as usize) {
                *count = count.saturating_sub(1);
            }
        }
        for (_, &id) in fresh {
            if let (Some(count), Some(listed)) =
                (self.counts.get_mut(id as usize), self.listed.get_mut(id as usize))
            {
                *count = count.saturating_add(1);
                if !std::mem::replace(listed, true) {
                    self.seen.push(id);
                }
            }
            self.window.push(id);
        }
        // A sliding window leaves ids behind; drop them before they outnumber it.
        if self.seen.len() > 2 * self.window.len() + 64 {
            let Self { counts, listed, seen, .. } = self;
            seen.retain(|&id| {
                let live = counts.get(id as usize).is_some_and(|&count| count > 0);
                if let Some(listed) = listed.get_mut(id as usize) {
                    *listed = live;
                }
                live
            });
        }
        Ok(())
    }

    /// Penalises the logits of the tokens counted: with count c > 0,
    /// `l > 0 ? l / r : l * r`, then less `c * frequency + presence`.
    pub(super) fn apply(
        &self,
        params: &SamplingParams,
        logits: &mut [f32],
    ) -> Result<(), RequestFault> {
        let r = params.repetition_penalty;
        for &id in &self.seen {
            let count = self.counts.get(id as usize).copied().unwrap_or_default();
            let Some(logit) = logits.get_mut(id as usize) else { continue };
            if count == 0 {
                continue;
            }
            let scaled = if *logit > 0.0 { *logit / r } else { *logit * r };
            let taken = count as f32 * params.frequency_penalty + params.presence_penalty;
            *logit = scaled - taken;
            if logit.is_nan() || *logit == f32::INFINITY {
                return Err(RequestFault::NonFiniteLogit { id, value: *logit });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn recount(history: &[u32], last_n: i32, vocab: usize) -> Vec<u32> {
        let mut counts = vec![0; vocab];
        let len = if last_n < 0 { history.len() } else { last_n as usize };
        history.iter().rev().take(len).for_each(|&id| counts[id as usize] += 1);
        counts
    }

    fn step() -> impl Strategy<Value = (usize, Vec<u32>)> {
        // How many tokens to drop from the end, and what to add.
        (
            prop_oneof![4 => Just(0usize), 2 => 0..5usize, 1 => Just(1000)],
            prop::collection::vec(0u32..20, 0..12),
        )
    }

    proptest! {
        #[test]
        fn counts_equal_a_recount(
            steps in prop::collection::vec(step(), 1..60),
            last_n in prop_oneof![Just(-1), 1..30i32],
        ) {
            let mut incremental = PenaltyCounts::new(20);
            let mut history: Vec<u32> = Vec::new();
            for (drop, add) in steps {
                history.truncate(history.len().saturating_sub(drop));
                history.extend(add);
                incremental.count(&history, last_n).unwrap();
                let expected = recount(&history, last_n, 20);
                prop_assert_eq!(&incremental.counts, &expected);
                for (id, &count) in expected.iter().enumerate() {
                    let listed = incremental.seen.iter().filter(|&&s| s as usize == id).count();
                    prop_assert!(listed <= 1 && (count == 0 || listed == 1));
                }
            }
        }
    }

    #[test]
    fn ids_left_behind_are_dropped() {
        let mut counts = PenaltyCounts::new(10_000);
        let history: Vec<u32> = (0..10_000).collect();
        for end in 0..history.len() {
            counts.count(&history[..end], 8).unwrap();
            assert!(counts.seen.len() <= 2 * 8 + 64);
        }
        counts.count(&[0, 0, 1], 8).unwrap();
        assert_eq!((counts.counts[0], counts.counts[1], counts.counts[9_998]), (2, 1, 0));
    }

    #[test]
    fn a_foreign_id_is_named_and_changes_nothing() {
        let mut counts = PenaltyCounts::new(4);
        counts.count(&[1, 2, 3], -1).unwrap();
        let fault = counts.count(&[1, 2, 2, 4], 3).unwrap_err();
        assert_eq!(fault, RequestFault::HistoryId { index: 3, id: 4, vocab: 4 });
        assert_eq!(counts.counts, [0, 1, 1, 1]);
        // Outside the window it is not looked at.
        counts.count(&[9, 3], 1).unwrap();
        assert_eq!(counts.counts, [0, 0, 0, 1]);
    }
}
