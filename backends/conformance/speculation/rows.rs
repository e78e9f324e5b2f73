//! Bits of tree rows, and state after commits.

use std::sync::{Arc, Mutex};

use foretoken::generate::{Session, TreeShape, WantLogits};

use super::drafters::{Script, Scripted};
use super::support::{Random, Rig, Target, alone, bits, rig, start};

/// All that a sequence leaves for its next token.
#[derive(PartialEq)]
struct State {
    recurrent: Vec<u32>,
    kv: Vec<u8>,
}

fn state(session: &mut Session) -> State {
    let recurrent = bits(&session.read_state().unwrap());
    State { recurrent, kv: session.read_cache().unwrap() }
}

/// Tokens of a text-like prompt.
fn prompt(r: &mut Random, len: usize) -> Vec<u32> {
    (0..len).map(|_| 200 + r.below(3000) as u32).collect()
}

fn shapes(r: &mut Random) -> TreeShape {
    match r.below(3) {
        0 => TreeShape::chain(1 + r.below(15)),
        1 => TreeShape::tree(1 + r.below(63)),
        _ => TreeShape { budget: 1 + r.below(63), depth: 1 + r.below(15), chain: r.below(16) },
    }
}

/// Logits of the plain session after a row of the tree: its path is run as single steps
/// on a copy of the sequence.
fn plain_logits(plain: &mut Session, committed: &[u32], path: &[u32]) -> Vec<u32> {
    start(plain, committed);
    for &token in path {
        plain.step(&[token], WantLogits::Last).unwrap();
    }
    bits(plain.read_logits().unwrap())
}

fn path_to(row: usize, tokens: &[i32], parents: &[i32]) -> Vec<u32> {
    let mut path = vec![tokens[row] as u32];
    let mut at = parents[row];
    while at >= 0 {
        path.push(tokens[at as usize] as u32);
        at = parents[at as usize];
    }
    path.reverse();
    path
}

fn every_row_has_plain_bits(rig: &Rig, seed: u64) {
    let mut r = Random(seed);
    let script = Arc::new(Mutex::new(Script::Knows(Vec::new(), 0)));
    let mut speculative = rig.speculative(512, Scripted::new(&script));
    let mut plain = rig.plain(512);
    for committed in [1, 63, 126, 127, 128, 190] {
        let prompt = prompt(&mut r, committed);
        let pending = start(&mut speculative, &prompt);
        let history = [&prompt[..], &[pending]].concat();
        speculative.draft(&history, TreeShape::tree(40)).unwrap();
        let (tokens, parents) = speculative.tree().unwrap();
        let (tokens, parents) = (tokens.to_vec(), parents.to_vec());
        assert_eq!(tokens.len(), 41);
        for row in [0, 1, 2, 3, 7, 15, 16, 17, 30, 39, 40] {
            let got = bits(speculative.tree_logits(row).unwrap());
            let path = path_to(row, &tokens, &parents);
            assert!(got == plain_logits(&mut plain, &prompt, &path), "{committed}, row {row}");
            // The check can fail: one token of the path changed changes the bits.
            if row == 40 {
                let mut wrong = path;
                wrong[0] ^= 1;
                assert!(got != plain_logits(&mut plain, &prompt, &wrong));
            }
        }
    }
}

#[test]
fn a_row_of_a_tree_has_the_bits_of_its_path_decoded_plainly() {
    let _alone = alone();
    for target in [Target::Q4, Target::Bf16] {
        if let Some(rig) = rig(target) {
            every_row_has_plain_bits(rig, 5);
        }
    }
}

/// Commits random paths of random trees, whatever the target would choose, and compares
/// the whole state with that of plain steps.
fn commits(rig: &Rig, seed: u64, steps: usize, dflash: bool) {
    let mut r = Random(seed);
    let script = Arc::new(Mutex::new(Script::Knows(Vec::new(), 0)));
    let drafter = if dflash { rig.dflash() } else { Scripted::new(&script) };
    let mut speculative = rig.speculative(768, drafter);
    let mut plain = rig.plain(768);
    let mut history = prompt(&mut r, 100);
    history.push(start(&mut speculative, &history));
    start(&mut plain, &history[..history.len() - 1]);
    for step in 0..steps {
        if r.chance(20) {
            // A plain step in between.
            let pending = *history.last().unwrap();
            speculative.step(&[pending], WantLogits::Last).unwrap();
            plain.step(&[pending], WantLogits::Last).unwrap();
            history.push(speculative.argmax(0).unwrap());
            continue;
        }
        speculative.draft(&history, shapes(&mut r)).unwrap();
        let (tokens, parents) = speculative.tree().unwrap();
        let (tokens, parents) = (tokens.to_vec(), parents.to_vec());
        // A random walk down from the root.
        let mut path = vec![0];
        loop {
            let at = *path.last().unwrap();
            let children: Vec<i32> =
                (0..parents.len() as i32).filter(|&c| parents[c as usize] == at).collect();
            if children.is_empty() || r.chance(15) {
                break;
            }
            path.push(r.pick(&children));
        }
        let accepted: Vec<u32> = path.iter().map(|&row| tokens[row as usize] as u32).collect();
        let next = r.below(8192) as u32;
        speculative.commit_path(&path, next).unwrap();
        history.extend(&accepted[1..]);
        history.push(next);
        for token in accepted {
            plain.step(&[token], WantLogits::Last).unwrap();
        }
        assert_eq!(speculative.committed(), plain.committed());
        assert!(state(&mut speculative) == state(&mut plain), "step {step}: path {path:?}");
    }
    assert_eq!(speculative.committed() + 1, history.len());
    // The check can fail: one more token makes another state.
    let before = state(&mut plain);
    plain.step(&[1], WantLogits::Last).unwrap();
    assert!(before != state(&mut plain));
}

#[test]
fn committed_state_is_the_state_of_plain_decoding() {
    let _alone = alone();
    for (target, steps) in [(Target::Q4, 60), (Target::Bf16, 25)] {
        if let Some(rig) = rig(target) {
            commits(rig, 77, steps, false);
            commits(rig, 78, steps / 2, true);
        }
    }
}

/// Features of committed rows are those that plain steps store.
#[test]
fn committed_features_are_those_of_plain_decoding() {
    let _alone = alone();
    let Some(rig) = rig(Target::Q4) else { return };
    let mut r = Random(3);
    let mut speculative = rig.speculative(512, rig.dflash());
    let mut plain = rig.speculative(512, rig.dflash());
    let mut history = prompt(&mut r, 40);
    history.push(start(&mut speculative, &history));
    start(&mut plain, &history[..40]);
    // Both drafters take the prompt in, so that only what follows is compared.
    plain.draft(&history, TreeShape::chain(1)).unwrap();
    for _ in 0..12 {
        let before = history.len() - 1;
        let step = speculative.speculate(&history, TreeShape::tree(22)).unwrap();
        let (accepted, tokens) = (step.accepted, step.tokens.clone());
        history.extend(tokens);
        for &token in &history[before..before + accepted] {
            plain.step(&[token], WantLogits::None).unwrap();
        }
        let features = bits(&speculative.read_features().unwrap());
        assert_eq!(features.len(), accepted * 3 * 512);
        let all = bits(&plain.read_features().unwrap());
        assert!(all.ends_with(&features));
    }
}

/// A tree whose parents are wrong must not pass: the bits of rows depend on them.
#[test]
fn a_wrong_parent_would_be_seen() {
    let _alone = alone();
    let Some(rig) = rig(Target::Q4) else { return };
    let script = Arc::new(Mutex::new(Script::Knows(Vec::new(), 0)));
    let mut speculative = rig.speculative(256, Scripted::new(&script));
    let mut plain = rig.plain(256);
    let prompt = prompt(&mut Random(9), 30);
    let pending = start(&mut speculative, &prompt);
    let history = [&prompt[..], &[pending]].concat();
    speculative.draft(&history, TreeShape::tree(20)).unwrap();
    let (tokens, parents) = speculative.tree().unwrap();
    let (tokens, mut parents) = (tokens.to_vec(), parents.to_vec());
    // The deepest row, hung under another parent.
    let row = (0..tokens.len()).max_by_key(|&r| path_to(r, &tokens, &parents).len()).unwrap();
    let other = (0..row as i32).find(|&p| p != parents[row]).unwrap();
    let right = path_to(row, &tokens, &parents);
    parents[row] = other;
    let wrong = path_to(row, &tokens, &parents);
    let got = bits(speculative.tree_logits(row).unwrap());
    assert!(got == plain_logits(&mut plain, &prompt, &right));
    assert!(got != plain_logits(&mut plain, &prompt, &wrong));
    // Nor can such a path be committed.
    let path: Vec<i32> = if other == 0 { vec![0, row as i32] } else { vec![0, other, row as i32] };
    let fault = speculative.commit_path(&path, 1).unwrap_err().to_string();
    assert_eq!(fault, "the rows to commit are no path of the tree");
}
