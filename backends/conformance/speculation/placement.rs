//! A drafter on another device than its target changes nothing but where it runs.

use std::path::Path;
use std::sync::Arc;

use foretoken::Error;
use foretoken::device::{Activations, Device, DeviceFault};
use foretoken::format::OpenOptions;
use foretoken::generate::{
    Cancel, GenerateRequest, Session, SessionOptions, SpeculationRoom, TreeShape, WantLogits,
};
use foretoken::model::ModelFile;
use foretoken::sample::SamplingParams;
use foretoken::speculate::dflash::{DflashFile, DflashPlan};
use foretoken::speculate::{DflashDrafter, DflashModel, SpecLimits, SpecMode};

use super::support::{Rig, Target, alone, bits, rig, start};
use crate::common::nano;
use crate::driver;

/// The same device, opened a second time: nothing of one is of use to the other.
fn other_device() -> Arc<dyn Device> {
    driver::open().unwrap()
}

fn open(path: &Path) -> DflashFile {
    DflashFile::open(path, &OpenOptions::default()).unwrap()
}

/// A session whose drafter is on a device of its own.
fn apart(rig: &Rig, options: SessionOptions) -> Session {
    let device = other_device();
    let target =
        ModelFile::open(&nano().join("nano-code-Q4_K_M.gguf"), &OpenOptions::default()).unwrap();
    let file = open(&nano().join("nano-dflash-Q8_0.gguf"));
    let plan = DflashPlan::apart(file, &*device, target, Activations::Fast).unwrap();
    let own = DflashPlan::new(
        open(&nano().join("nano-dflash-Q8_0.gguf")),
        &*device,
        rig.engine.config(),
        Activations::Fast,
    );
    // The table and the head are there a second time.
    assert!(plan.bytes() > own.unwrap().bytes());
    let expected = plan.bytes();
    let model = plan.load(&device, &mut |_, _| {}).unwrap();
    assert_eq!(model.bytes, expected);
    let drafter = Box::new(DflashDrafter::new(model));
    rig.engine.session_with_drafter(options, drafter).unwrap()
}

fn options(context: usize) -> SessionOptions {
    let room = SpeculationRoom { rows: 64, width: 24 };
    SessionOptions { speculation: Some(room), chunk: 128, ..SessionOptions::new(context) }
}

#[test]
fn proposals_state_and_tokens_have_the_same_bits() {
    let _alone = alone();
    let Some(rig) = rig(Target::Q4) else { return };
    let (mut here, mut there) = (rig.speculative(400, rig.dflash()), apart(rig, options(400)));
    let text = "for i in range(10):\n    print(i)\nfor i in range(10):\n    print(i)\n";
    // Longer than a ring, so that it is gone round, and drafts after a pause.
    let mut history = rig.encode(&text.repeat(9));
    assert!(history.len() > 200);
    let draw = SamplingParams { temperature: 0.9, ..SamplingParams::default() };
    let draw = draw.draw(8192).unwrap();
    let first = start(&mut here, &history);
    assert_eq!(first, start(&mut there, &history));
    history.push(first);
    for step in 0..14 {
        let shape = [TreeShape::tree(30), TreeShape::chain(9)][step % 2];
        let run = |session: &mut Session| {
            let step = match step % 3 {
                0 => session.speculate(&history, shape).unwrap(),
                _ => session.speculate_sampled(&history, shape, &draw).unwrap(),
            };
            let (tokens, rows) = (step.tokens.clone(), (step.rows, step.accepted, step.depth));
            let (ids, scores) = session.read_proposal().unwrap();
            (tokens, rows, ids, bits(&scores), bits(&session.read_state().unwrap()))
        };
        let (a, b) = (run(&mut here), run(&mut there));
        assert_eq!((&a.0, a.1), (&b.0, b.1), "step {step}");
        assert!(a.2 == b.2 && a.3 == b.3, "proposals of step {step}");
        assert!(a.4 == b.4, "state after step {step}");
        history.extend(a.0);
        if step == 6 {
            // Plain steps in between leave features behind.
            for session in [&mut here, &mut there] {
                for &id in &history[history.len() - 1..] {
                    session.step(&[id], WantLogits::Last).unwrap();
                }
            }
            history.push(here.argmax(0).unwrap());
        }
    }
    assert!(here.read_cache().unwrap() == there.read_cache().unwrap());
    assert!(there.last_step().unwrap().draft > std::time::Duration::ZERO);
}

/// Whole requests: greedy, sampled on the device, chosen on the host; chain, tree, auto.
#[test]
fn requests_have_the_same_answers_and_acceptance() {
    let _alone = alone();
    let Some(rig) = rig(Target::Q4) else { return };
    let (mut here, mut there) = (rig.speculative(300, rig.dflash()), apart(rig, options(300)));
    for (i, mode) in [SpecMode::Chain, SpecMode::Tree, SpecMode::Auto].into_iter().enumerate() {
        for temperature in [0.0, 0.8] {
            for penalty in [1.0, 1.2] {
                let mut request = GenerateRequest {
                    max_tokens: Some(40),
                    sampling: SamplingParams {
                        temperature,
                        repetition_penalty: penalty,
                        seed: i as u64,
                        ..SamplingParams::default()
                    },
                    ignore_eos: true,
                    ..GenerateRequest::greedy(rig.encode("def fibonacci(n):\n    if n < 2:\n"))
                };
                request.speculation.mode = mode;
                request.speculation.limits = SpecLimits::new(9, 22).unwrap();
                let run = |session: &mut Session| {
                    rig.engine.generate(session, &request, &Cancel::default(), &mut |_| {}).unwrap()
                };
                let (a, b) = (run(&mut here), run(&mut there));
                assert_eq!(
                    (&a.ids, &a.text),
                    (&b.ids, &b.text),
                    "{mode:?} {temperature} {penalty}"
                );
                if mode != SpecMode::Auto {
                    // What `auto` picks depends on times, which differ.
                    let positions = |g: &foretoken::generate::Generation| {
                        let stats = g.stats.speculation.as_ref().unwrap();
                        let all = stats.positions.iter().map(|p| (p.tried, p.accepted));
                        (g.stats.steps, all.collect::<Vec<_>>())
                    };
                    assert_eq!(positions(&a), positions(&b), "{mode:?} {temperature} {penalty}");
                }
            }
        }
    }
}

/// A draft on another device that was not lent table and head is refused.
#[test]
fn what_is_not_there_is_missed() {
    let _alone = alone();
    let Some(rig) = rig(Target::Q4) else { return };
    let device = other_device();
    let model = DflashModel::load(
        &nano().join("nano-dflash-Q8_0.gguf"),
        &OpenOptions::default(),
        &device,
        rig.engine.config(),
        Activations::Fast,
        &mut |_, _| {},
    );
    let drafter = Box::new(DflashDrafter::new(model.unwrap()));
    match rig.engine.session_with_drafter(options(100), drafter) {
        Err(Error::Device(DeviceFault::ForeignBuffer { .. })) => {}
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("a session with a drafter that has no head"),
    }
}
