//! Prompt lookup against a search through the whole history.

use std::time::Instant;

use foretoken::speculate::{Candidates, Drafter, PromptLookup, SpeculateFault};
use proptest::prelude::*;

/// A proposal: per position the candidates with their scores.
type Proposed = Vec<Vec<(u32, f32)>>;

fn propose(lookup: &mut PromptLookup, history: &[u32], rows: usize, width: usize) -> Proposed {
    // What an earlier step left must not show.
    let (mut ids, mut scores) = (vec![7; rows * width], vec![1.0; rows * width]);
    let mut candidates = Candidates { ids: &mut ids, scores: &mut scores, width };
    let filled = lookup.propose(history, &mut candidates);
    assert!(filled <= lookup.positions().min(rows));
    let mut positions = Vec::new();
    for (ids, scores) in ids.chunks(width).zip(scores.chunks(width)) {
        let row: Vec<_> = ids.iter().map(|&id| id as u32).zip(scores.iter().copied()).collect();
        let row: Vec<_> = row.into_iter().filter(|c| c.0 as i32 >= 0).collect();
        assert!(ids[row.len()..].iter().all(|&id| id == -1), "no gaps");
        assert_eq!(row.is_empty(), positions.len() >= filled);
        positions.push(row);
    }
    positions.truncate(filled);
    positions
}

/// The first choices: longest n-gram, newest occurrence, going on from what is proposed
/// where the history ends.
fn naive(history: &[u32], min: usize, max: usize, most: usize) -> Vec<u32> {
    for n in (min..=max.min(history.len())).rev() {
        let (from, gram) = (history.len() - n, &history[history.len() - n..]);
        if let Some(at) = (0..from).rev().find(|&at| &history[at..at + n] == gram) {
            let mut text = history.to_vec();
            for ahead in 0..most {
                text.push(text[at + n + ahead]);
            }
            return text.split_off(history.len());
        }
    }
    Vec::new()
}

fn firsts(proposed: &Proposed) -> Vec<u32> {
    proposed.iter().map(|row| row[0].0).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn equals_a_search(
        steps in prop::collection::vec((prop::collection::vec(0u32..4, 1..9), 0u8..12), 1..30),
        min in 1usize..4,
        more in 0usize..4,
        positions in 1usize..9,
        width in 1usize..5,
    ) {
        let mut lookup = PromptLookup::with_grams(positions, min..=min + more).unwrap();
        let mut history = Vec::new();
        for (tokens, change) in steps {
            match change {
                // Another request; a history cut short; an edit in its midst.
                0 => history.clear(),
                1 => history.truncate(history.len() / 2),
                2 if !history.is_empty() => {
                    let at = history.len() / 2;
                    history[at] = 9;
                }
                _ => {}
            }
            history.extend(tokens);
            let proposed = propose(&mut lookup, &history, positions, width);
            prop_assert_eq!(firsts(&proposed), naive(&history, min, min + more, positions));
            for row in &proposed {
                prop_assert!(row.windows(2).all(|w| w[0].1 > w[1].1), "descending {:?}", row);
                let sum: f32 = row.iter().map(|c| c.1.exp()).sum();
                prop_assert!(sum < 1.0 && row.iter().all(|c| c.1 < 0.0), "{:?}", row);
                let ids: std::collections::BTreeSet<u32> = row.iter().map(|c| c.0).collect();
                prop_assert_eq!(ids.len(), row.len());
            }
        }
    }

    #[test]
    fn any_shape_of_candidates_will_do(
        rows in 0usize..5, width in 0usize..4, short in 0usize..3, repeats in 1usize..9,
    ) {
        let mut lookup = PromptLookup::new(8).unwrap();
        let history: Vec<u32> = [1, 2, 3].repeat(repeats);
        let len = rows * width;
        let (mut ids, mut scores) = (vec![0; len], vec![0.0; len.saturating_sub(short)]);
        let mut candidates = Candidates { ids: &mut ids, scores: &mut scores, width };
        let filled = lookup.propose(&history, &mut candidates);
        prop_assert!(filled <= rows && (width > 0 || filled == 0));
    }
}

#[test]
fn a_repeated_passage_is_proposed_and_older_ways_come_second() {
    let mut lookup = PromptLookup::new(4).unwrap();
    // 1 2 goes on with 3 4 5, later with 3 6, and newest with 7.
    let history = [1, 2, 3, 4, 5, 1, 2, 3, 6, 1, 2, 7, 8, 1, 2];
    let proposed = propose(&mut lookup, &history, 4, 3);
    let ids: Vec<Vec<u32>> = proposed.iter().map(|row| row.iter().map(|c| c.0).collect()).collect();
    assert_eq!(ids, [vec![7, 3], vec![8], vec![1], vec![2]]);
    // Past the end of the text it goes on from its own proposal.
    assert_eq!(firsts(&propose(&mut lookup, &[5, 5, 5], 4, 1)), [5, 5, 5, 5]);
}

#[test]
fn longer_matches_score_higher() {
    let mut last = 0.0;
    for n in 2..20 {
        let mut lookup = PromptLookup::new(1).unwrap();
        let passage: Vec<u32> = (0..n).collect();
        let history = [&passage[..], &[99], &passage[..]].concat();
        let chance = propose(&mut lookup, &history, 1, 1)[0][0].1.exp();
        assert!(chance > last && chance < 1.0, "{n}: {chance}");
        last = chance;
    }
}

#[test]
fn nothing_to_go_by_is_nothing_proposed() {
    let mut lookup = PromptLookup::new(4).unwrap();
    for history in [&[][..], &[1], &[1, 2], &[1, 2, 3, 4], &[1, 2, 1]] {
        assert_eq!(propose(&mut lookup, history, 4, 2), Proposed::new(), "{history:?}");
    }
    // An id past what candidates can hold ends the proposal there.
    let history = [1, 2, u32::MAX, 1, 2];
    assert_eq!(propose(&mut lookup, &history, 4, 2), Proposed::new());
}

#[test]
fn settings_are_checked() {
    for asked in [0, 64] {
        let fault = PromptLookup::new(asked).unwrap_err();
        assert_eq!(fault, SpeculateFault::BadDraftLen { asked, max: 63 });
    }
    for (min, max) in [(0, 3), (4, 3), (1, 17)] {
        let fault = PromptLookup::with_grams(4, min..=max).unwrap_err();
        assert_eq!(fault, SpeculateFault::BadNgram { min, max, limit: 16 });
    }
    let lookup = PromptLookup::new(63).unwrap();
    assert_eq!((lookup.name(), lookup.positions()), ("lookup", 63));
    assert!(lookup.context(64).unwrap().is_empty() && lookup.proposal().unwrap().is_empty());
    assert!(lookup.layers().is_empty());
}

/// Past its window the index forgets the older half, and a step stays cheap.
#[test]
fn a_long_text_is_followed_in_bounded_time() {
    let mut lookup = PromptLookup::new(4).unwrap();
    let mut state = 1u32;
    let mut history: Vec<u32> = (0..300_000)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 12
        })
        .collect();
    let recent = history[299_000..299_010].to_vec();
    history.extend_from_slice(&recent[..4]);
    assert_eq!(firsts(&propose(&mut lookup, &history, 4, 1)), recent[4..8]);
    let start = Instant::now();
    for &id in &recent[4..] {
        history.push(id);
        propose(&mut lookup, &history, 4, 1);
    }
    // Six steps; hashing the text again for each would take a hundred times as long as this
    // allows on a slow machine.
    assert!(start.elapsed().as_secs_f64() < 0.25, "{:?}", start.elapsed());
}
