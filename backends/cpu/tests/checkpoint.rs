//! Going back in a sequence, and timed passes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use foretoken::device::{Activations, Driver};
use foretoken::format::OpenOptions;
use foretoken::generate::{
    Cancel, Engine, EngineOptions, GenerateFault, Session, SessionOptions, SpeculationRoom,
    TreeShape, WantLogits,
};
use foretoken::speculate::{DflashDrafter, DflashModel, PromptLookup};
use foretoken::{Error, Result};
use foretoken_cpu::{CpuDriver, CpuOptions};

fn nano(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/nano").join(file)
}

fn engine() -> Arc<Engine> {
    let device = CpuDriver::new(CpuOptions::default()).open(0).unwrap();
    let options = EngineOptions::default();
    Engine::load(&nano("nano-code-Q4_K_M.gguf"), device, &options, None, &mut |_| {}).unwrap()
}

fn prefill(session: &mut Session, ids: &[u32]) {
    session.prefill(ids, WantLogits::Last, &Cancel::default(), &mut |_, _| Ok(())).unwrap();
}

/// Greedy steps from a token on, with the logits of the last.
fn go_on(session: &mut Session, mut next: u32, steps: usize) -> (Vec<u32>, Vec<u32>) {
    let mut ids = Vec::new();
    for _ in 0..steps {
        session.step(&[next], WantLogits::Last).unwrap();
        next = session.argmax(0).unwrap();
        ids.push(next);
    }
    let logits = session.read_logits().unwrap().iter().map(|x| x.to_bits()).collect();
    (ids, logits)
}

fn is_stale(result: Result<()>) -> bool {
    matches!(result, Err(Error::Generate(GenerateFault::StaleCheckpoint)))
}

#[test]
fn a_sequence_goes_on_from_a_checkpoint_as_it_did() {
    let mut session = engine().session(SessionOptions::new(256)).unwrap();
    let prompt: Vec<u32> = (0..70).map(|i| i * 37 % 8000).collect();
    prefill(&mut session, &prompt);
    let mut kept = session.checkpoint().unwrap();
    assert_eq!(kept.committed(), 70);
    let first = go_on(&mut session, 5, 12);
    // Something else in between, longer and in both regimes.
    session.rewind(&mut kept).unwrap();
    assert_eq!(session.committed(), 70);
    prefill(&mut session, &prompt);
    session.rewind(&mut kept).unwrap();
    let state = session.read_state().unwrap();
    assert_eq!(go_on(&mut session, 5, 12), first);
    // Negative control: without going back the state is another one.
    assert_ne!(session.read_state().unwrap(), state);
    assert_ne!(go_on(&mut session, 5, 12), first);
}

#[test]
fn checkpoints_that_may_be_overwritten_are_refused() {
    let engine = engine();
    let mut session = engine.session(SessionOptions::new(64)).unwrap();
    prefill(&mut session, &[1, 2, 3]);
    let mut early = session.checkpoint().unwrap();
    prefill(&mut session, &[4, 5]);
    let mut late = session.checkpoint().unwrap();
    session.rewind(&mut early).unwrap();
    assert!(is_stale(session.rewind(&mut late)));
    session.rewind(&mut early).unwrap();
    let mut other = engine.session(SessionOptions::new(64)).unwrap();
    assert!(is_stale(other.rewind(&mut early)));
    session.reset().unwrap();
    assert!(is_stale(session.rewind(&mut early)));
}

/// A draft model reads the target's features, which the checkpoint has to be past.
#[test]
fn speculation_goes_on_from_a_checkpoint_as_it_did() {
    let engine = engine();
    let draft = DflashModel::load(
        &nano("nano-dflash-Q8_0.gguf"),
        &OpenOptions::default(),
        engine.device(),
        engine.config(),
        Activations::Fast,
        &mut |_, _| {},
    );
    let room = Some(SpeculationRoom::for_budget(22));
    let options = SessionOptions { speculation: room, chunk: 64, ..SessionOptions::new(512) };
    let drafter = Box::new(DflashDrafter::new(draft.unwrap()));
    let mut session = engine.session_with_drafter(options, drafter).unwrap();
    let prompt =
        engine.tokenizer().encode("def add(a, b):\n", foretoken::tokenizer::Special::Parse);
    prefill(&mut session, &prompt);
    let pending = session.argmax(0).unwrap();
    let mut kept = session.checkpoint().unwrap();
    let run = |session: &mut Session| {
        let mut history = prompt.clone();
        history.push(pending);
        let mut accepted = Vec::new();
        for _ in 0..6 {
            let step = session.speculate(&history, TreeShape::tree(22)).unwrap();
            accepted.push(step.accepted);
            history.extend(&step.tokens);
        }
        (history, accepted)
    };
    let first = run(&mut session);
    assert!(first.1.iter().any(|&n| n > 1), "{:?}", first.1);
    session.rewind(&mut kept).unwrap();
    prefill(&mut session, &[9; 200]);
    session.rewind(&mut kept).unwrap();
    assert_eq!(run(&mut session), first);
}

#[test]
fn passes_run_as_many_rows_as_asked_for() {
    let engine = engine();
    let room = Some(SpeculationRoom { rows: 23, width: 8 });
    let options = SessionOptions { speculation: room, ..SessionOptions::new(64) };
    let drafter = Box::new(PromptLookup::new(22).unwrap());
    let mut session = engine.session_with_drafter(options, drafter).unwrap();
    prefill(&mut session, &[1, 2, 3]);
    for rows in [1, 2, 8, 16, 23] {
        for tree in [false, true] {
            let before = session.committed();
            let time = session.time_pass(rows, tree).unwrap();
            assert_eq!((time.rows, session.committed()), (rows, before + 1), "{tree}");
            assert!(time.verify.as_nanos() > 0);
        }
    }
    for rows in [0, 24, 65] {
        let refused = session.time_pass(rows, true).unwrap_err();
        assert!(matches!(refused, Error::Generate(GenerateFault::TooManyRows { .. })));
    }
    let mut plain = engine.session(SessionOptions::new(64)).unwrap();
    let refused = plain.time_pass(1, false).unwrap_err();
    assert!(matches!(refused, Error::Generate(GenerateFault::NoDrafter)));
}

/// A pass leaves the sequence as plain decoding of its first row does.
#[test]
fn a_timed_pass_commits_one_token() {
    let engine = engine();
    let room = Some(SpeculationRoom { rows: 16, width: 8 });
    let options = SessionOptions { speculation: room, ..SessionOptions::new(64) };
    let drafter = Box::new(PromptLookup::new(15).unwrap());
    let mut session = engine.session_with_drafter(options, drafter).unwrap();
    let mut plain = engine.session(SessionOptions::new(64)).unwrap();
    for session in [&mut session, &mut plain] {
        prefill(session, &[1, 2, 3]);
    }
    session.time_pass(16, false).unwrap();
    plain.step(&[0], WantLogits::None).unwrap();
    assert_eq!(go_on(&mut session, 5, 4), go_on(&mut plain, 5, 4));
}
