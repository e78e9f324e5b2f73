//! Recorded drafts, trees and acceptance.

use std::path::Path;

use foretoken::device::Activations;
use foretoken::format::OpenOptions;
use foretoken::generate::{
    Cancel, Session, SessionOptions, SpeculationRoom, TreeShape, WantLogits,
};
use foretoken::speculate::{DflashDrafter, DflashModel};
use serde_json::Value;

use crate::driver;

use super::data::{engine, floats, ids, json, nano, test_data};

/// A session of a target with a DFlash drafter.
fn session(target: &Path, draft: &Path, activations: Activations) -> Option<Session> {
    let engine = engine(target, activations)?;
    let draft = DflashModel::load(
        draft,
        &OpenOptions::default(),
        engine.device(),
        engine.config(),
        activations,
        &mut |_, _| {},
    );
    // The records were made with eight candidates per position.
    let room = SpeculationRoom { rows: 64, width: 8 };
    let options = SessionOptions { speculation: Some(room), ..SessionOptions::new(4096) };
    let drafter = Box::new(DflashDrafter::new(draft.unwrap()));
    Some(engine.session_with_drafter(options, drafter).unwrap())
}

/// Resets, prefills; the history with its pending token.
fn start(session: &mut Session, prompt: &[u32]) -> Vec<u32> {
    session.reset().unwrap();
    let cancel = Cancel::default();
    session.prefill(prompt, WantLogits::Last, &cancel, &mut |_, _| Ok(())).unwrap();
    let mut history = prompt.to_vec();
    history.push(session.argmax(0).unwrap());
    history
}

/// The first block's log-probabilities; returns the largest difference.
fn first_block(session: &mut Session, record: &Value) -> f64 {
    let (got_ids, got) = session.read_proposal().unwrap();
    let (want_ids, want) = (&record["top_ids"], &record["top_logprob"]);
    let want_ids = want_ids.as_array().unwrap();
    let width = got.len() / want_ids.len();
    let mut worst = 0f64;
    for (position, (want_ids, want)) in want_ids.iter().zip(want.as_array().unwrap()).enumerate() {
        let at = position * width..(position + 1) * width;
        for (id, want) in ids(want_ids).into_iter().zip(floats(want)) {
            let rank = got_ids[at.clone()].iter().position(|&g| g == id as i32);
            let rank = rank.unwrap_or_else(|| panic!("position {position}: {id} is missing"));
            worst = worst.max((f64::from(got[at.start + rank]) - want).abs());
        }
    }
    worst
}

/// Compares the tree last drafted node for node. Nodes whose scores differ by less than
/// `slack` may change places.
fn same_tree(session: &Session, record: &Value, slack: f64) {
    let nodes = record.as_array().unwrap();
    let (tokens, parents) = session.tree().unwrap();
    assert_eq!(tokens.len(), nodes.len() + 1);
    let scores: Vec<f64> = nodes.iter().map(|n| n["logprob"].as_f64().unwrap()).collect();
    let close = |i: usize| {
        let near = |j: usize| scores.get(j).is_some_and(|s| (s - scores[i]).abs() < slack);
        i.checked_sub(1).is_some_and(near) || near(i + 1) || i + 1 == nodes.len()
    };
    for (i, node) in nodes.iter().enumerate() {
        let token = node["token"].as_i64().unwrap() as i32;
        let parent = node["parent"].as_i64().unwrap() as i32 + 1;
        if (tokens[i + 1], parents[i + 1]) != (token, parent) {
            let got = (tokens[i + 1], parents[i + 1]);
            assert!(close(i), "node {i} of {}: {got:?}, expected {node}", nodes.len());
            // What follows may be numbered otherwise.
            return;
        }
    }
}

/// Decodes as the record did; returns rows accepted per step. Stops at a flip that a
/// small gap allows.
fn acceptance(
    session: &mut Session,
    prompt: &[u32],
    target: &Value,
    shape: TreeShape,
    gap: f64,
) -> (Vec<usize>, bool) {
    let (greedy, gaps) = (ids(&target["greedy"]), floats(&target["gap"]));
    let mut history = start(session, prompt);
    let mut steps = Vec::new();
    while history.len() - prompt.len() <= greedy.len() {
        let step = session.speculate(&history, shape).unwrap();
        steps.push(step.accepted);
        history.extend(&step.tokens);
        let said = &history[prompt.len()..];
        for (i, (got, want)) in said.iter().zip(&greedy).enumerate() {
            if got != want {
                assert!(gaps[i] <= gap, "step {i}: {got}, expected {want}");
                return (steps, false);
            }
        }
    }
    (steps, true)
}

fn counts(value: &Value) -> Vec<usize> {
    ids(value).into_iter().map(|n| n as usize).collect()
}

/// All steps agree as far as both go, but for steps near a small gap.
fn same_steps(got: &[usize], want: &[usize], target: &Value, gap: f64, name: &str) {
    let gaps = floats(&target["gap"]);
    let mut at = 0;
    for (step, (got, want)) in got.iter().zip(want).enumerate() {
        if got != want {
            let near = gaps.iter().skip(at).take(1 + (*got).max(*want));
            let least = near.fold(f64::INFINITY, |m, &g| m.min(g));
            assert!(least <= gap, "{name}, step {step}: {got} rows, expected {want}");
            return;
        }
        at += got;
    }
}

#[test]
fn bf16_drafts_trees_and_acceptance() {
    let Some(data) = test_data("bf16_drafts_trees_and_acceptance") else { return };
    let golden = json(&data.join("golden/nano.json"));
    let target = data.join("models/nano/nano-code-BF16.gguf");
    let draft = data.join("models/nano/draft-safetensors");
    let Some(mut session) = session(&target, &draft, Activations::Fast) else { return };
    let mut worst = 0f64;
    for prompt in golden["prompts"].as_array().unwrap() {
        let tokens = ids(&prompt["ids"]);
        for (budget, tree) in prompt["trees"].as_object().unwrap() {
            let history = start(&mut session, &tokens);
            session.draft(&history, TreeShape::tree(budget.parse().unwrap())).unwrap();
            worst = worst.max(first_block(&mut session, &prompt["draft_first_block"]));
            same_tree(&session, tree, 2e-4);
        }
        let record = &prompt["target"];
        for (shape, key) in
            [(TreeShape::chain(15), "chain_acceptance"), (TreeShape::tree(22), "tree22_acceptance")]
        {
            let (steps, whole) = acceptance(&mut session, &tokens, record, shape, 0.01);
            same_steps(&steps, &counts(&prompt[key]), record, 0.01, key);
            assert!(!whole || steps.len() >= counts(&prompt[key]).len());
        }
    }
    eprintln!("bf16 draft: largest difference {worst:.2e}");
    assert!(worst <= 2e-3, "a log-probability is off by {worst}");
}

#[test]
fn shipped_trio_accepts_as_recorded() {
    let dir = nano();
    let golden = json(&dir.join("golden/nano-q4.json"));
    let gap = driver::FAST.gap;
    let target = dir.join("nano-code-Q4_K_M.gguf");
    let draft = dir.join("nano-dflash-Q8_0.gguf");
    let Some(mut session) = session(&target, &draft, Activations::Fast) else { return };
    for (shape, key) in
        [(TreeShape::chain(15), "chain_acceptance"), (TreeShape::tree(22), "tree22_acceptance")]
    {
        let (mut got, mut want) = (Vec::new(), Vec::new());
        for prompt in golden["prompts"].as_array().unwrap() {
            let tokens = ids(&prompt["ids"]);
            let (steps, whole) = acceptance(&mut session, &tokens, &prompt["target"], shape, gap);
            let recorded = counts(&prompt[key]);
            // After a flip the texts differ: only what both say is compared.
            let n = if whole { recorded.len().max(steps.len()) } else { steps.len() - 1 };
            got.extend(steps.into_iter().take(n));
            want.extend(recorded.into_iter().take(n));
        }
        let mean = |v: &[usize]| v.iter().sum::<usize>() as f64 / v.len() as f64;
        let (got, want) = (mean(&got), mean(&want));
        eprintln!("{key}: mean acceptance length {got:.3}, recorded {want:.3}");
        assert!((got / want - 1.0).abs() <= 0.03, "{key}: {got}, recorded {want}");
    }
}
