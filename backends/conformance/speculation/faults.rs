//! Speculation asked for where it can not be had.

use foretoken::Error;
use foretoken::generate::{
    Cancel, GenerateFault, GenerateRequest, Session, SessionOptions, SpeculationRoom, TreeShape,
    WantLogits,
};
use foretoken::speculate::{PromptLookup, SpecLimits, SpecMode};

use super::support::{Target, alone, rig, start};

fn fault<T>(result: foretoken::Result<T>) -> GenerateFault {
    match result {
        Err(Error::Generate(fault)) => fault,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("no fault"),
    }
}

#[test]
fn a_session_without_a_drafter_says_so_or_decodes_plainly() {
    let _alone = alone();
    let Some(rig) = rig(Target::Q4) else { return };
    let mut session = rig.plain(64);
    let mut request =
        GenerateRequest { max_tokens: Some(4), ..GenerateRequest::greedy(rig.encode("def f")) };
    let mut run = |mode| {
        request.speculation.mode = mode;
        rig.engine.generate(&mut session, &request, &Cancel::default(), &mut |_| {})
    };
    for mode in [SpecMode::Chain, SpecMode::Tree] {
        assert_eq!(fault(run(mode)), GenerateFault::NoDrafter);
    }
    let plain = run(SpecMode::Off).unwrap();
    assert_eq!(run(SpecMode::Auto).unwrap().ids, plain.ids);
    assert_eq!(fault(session.speculate(&[1], TreeShape::chain(1))), GenerateFault::NoDrafter);
    assert_eq!(fault(session.calibrate()), GenerateFault::NoDrafter);
    // Room without a drafter, or a drafter without room, is plain decoding, too.
    let drafter = Box::new(PromptLookup::new(4).unwrap());
    let session = rig.engine.session_with_drafter(SessionOptions::new(64), drafter).unwrap();
    assert_eq!(session.drafter(), None);
}

#[test]
fn room_and_history_are_checked() {
    let _alone = alone();
    let Some(rig) = rig(Target::Q4) else { return };
    for (rows, width) in [(0, 4), (1, 4), (65, 4), (8, 0)] {
        let room = SpeculationRoom { rows, width };
        let options = SessionOptions { speculation: Some(room), ..SessionOptions::new(64) };
        let drafter = Box::new(PromptLookup::new(4).unwrap());
        let fault = fault(rig.engine.session_with_drafter(options, drafter));
        assert_eq!(fault, GenerateFault::TooManyRows { asked: rows, capacity: 64 });
    }
    let room = SpeculationRoom::for_budget(7);
    let options = SessionOptions { speculation: Some(room), ..SessionOptions::new(64) };
    let drafter = Box::new(PromptLookup::new(15).unwrap());
    let mut session = rig.engine.session_with_drafter(options, drafter).unwrap();
    assert_eq!(session.speculation_limits(), Some((15, 7)));
    let prompt = rig.encode("x = [1, 2, 3]");
    let pending = start(&mut session, &prompt);
    let mismatch =
        GenerateFault::HistoryMismatch { history: prompt.len(), committed: prompt.len() };
    assert_eq!(fault(session.speculate(&prompt, TreeShape::chain(3))), mismatch);
    let outside = [&prompt[..], &[8192]].concat();
    let out = GenerateFault::TokenOutOfRange { id: 8192, vocab: 8192 };
    assert_eq!(fault(session.draft(&outside, TreeShape::chain(3))), out);
    let history = [&prompt[..], &[pending]].concat();
    session.draft(&history, TreeShape::tree(7)).unwrap();
    let rows = session.tree().unwrap().0.len();
    let past = GenerateFault::TooManyRows { asked: rows + 1, capacity: rows };
    assert_eq!(fault(session.tree_logits(rows).map(<[f32]>::len)), past);
    for path in [&[][..], &[1], &[0, 63], &[0, -1], &[0, 0]] {
        assert_eq!(fault(session.commit_path(path, 1).map(|s| s.rows)), GenerateFault::BadPath);
    }
    session.commit_path(&[0], 5).unwrap();
    assert_eq!(session.committed(), history.len());
    // The tree is used up: by its commit, by a plain step, by a reset.
    let commit = |session: &mut Session| fault(session.commit_path(&[0], 5).map(|s| s.rows));
    assert_eq!(commit(&mut session), GenerateFault::NoTree);
    let history = [&history[..], &[5]].concat();
    session.draft(&history, TreeShape::tree(7)).unwrap();
    session.step(&[5], WantLogits::None).unwrap();
    assert_eq!(commit(&mut session), GenerateFault::NoTree);
    let history = [&history[..], &[6]].concat();
    session.draft(&history, TreeShape::tree(7)).unwrap();
    start(&mut session, &history[..history.len() - 1]);
    assert_eq!(commit(&mut session), GenerateFault::NoTree);
    session.draft(&history, TreeShape::tree(7)).unwrap();
    session.commit_path(&[0], 5).unwrap();
}

#[test]
fn a_request_larger_than_the_room_is_refused() {
    let _alone = alone();
    let Some(rig) = rig(Target::Q4) else { return };
    let options = SessionOptions {
        speculation: Some(SpeculationRoom::for_budget(7)),
        ..SessionOptions::new(64)
    };
    let mut session = rig.engine.session_with_drafter(options, rig.dflash()).unwrap();
    let mut request = GenerateRequest::greedy(rig.encode("def f"));
    request.speculation.mode = SpecMode::Tree;
    request.speculation.limits = SpecLimits::new(15, 22).unwrap();
    let result = rig.engine.generate(&mut session, &request, &Cancel::default(), &mut |_| {});
    assert_eq!(fault(result), GenerateFault::TooManyRows { asked: 22, capacity: 7 });
}
