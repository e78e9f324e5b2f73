//! The memory plan against what the GPU says is free, before and after.
//!
//! `cuMemGetInfo` counts in pages of 2 MiB and for the whole GPU, so these tests want it to
//! themselves; they are one test, in a program of their own.

#![allow(clippy::print_stdout)] // skips and what was measured are said

use std::sync::Arc;

use foretoken::device::{Activations, Device, MemoryKind, MemorySize};
use foretoken::format::OpenOptions;
use foretoken::generate::{
    Cancel, Engine, GenerateRequest, Planner, Session, SessionOptions, SpeculationRoom,
};
use foretoken::model::ModelFile;
use foretoken::speculate::dflash::{DflashFile, DflashPlan};
use foretoken::speculate::{DflashDrafter, Drafter, SpecMode};

mod common;
#[path = "../../conformance/common.rs"]
mod conformance;

use conformance::nano;

/// Allocations that are not whole pages share some: up to one more is taken for all.
const PAGE: i64 = 2 << 20;

/// What planned and taken bytes may differ by.
const SHARE: f64 = 0.03;

/// A GPU that is not a stand-in of the tests.
fn open() -> Option<Arc<dyn Device>> {
    common::open().filter(|device| !device.info().name.starts_with("Fake"))
}

fn free(device: &Arc<dyn Device>) -> i64 {
    device.info().memory_free as i64
}

fn mib(bytes: i64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

#[test]
fn what_is_planned_is_what_is_taken() {
    let Some(device) = open() else { return };
    let opened = free(&device);
    let wrong = allocations(&device);
    assert_eq!(free(&device), opened);
    drop(device);
    // Scratch memory stays with its device: each model has a new one.
    for rows in [None, Some(23), None] {
        let Some(device) = open() else { return };
        model(&device, rows);
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// Sizes of which allocations do not take what the driver says they do.
fn allocations(device: &Arc<dyn Device>) -> Vec<usize> {
    let (kib, mib) = (1 << 10, 1 << 20);
    let sizes = [
        1,
        513,
        100_000,
        300 * kib,
        512 * kib,
        700 * kib,
        mib - 1,
        mib,
        mib + 1,
        3 * mib / 2,
        2 * mib,
        2 * mib + 1,
        5 * mib,
        33 * mib + 5,
    ];
    let mut wrong = Vec::new();
    for bytes in sizes {
        let count = if bytes > 4 * mib { 16 } else { 64 };
        let before = free(device);
        let held: Vec<_> =
            (0..count).map(|_| device.allocate(bytes, "one of many").unwrap()).collect();
        let taken = before - free(device);
        let said = count as i64 * device.allocation_bytes(bytes) as i64;
        println!("{count} of {bytes}: {taken} taken, {said} said, {} each", taken / count as i64);
        if (taken - said).abs() > PAGE {
            wrong.push(bytes);
        }
        drop(held);
    }
    wrong
}

fn options(device: &Arc<dyn Device>, rows: Option<usize>) -> SessionOptions {
    let speculation = rows.map(|rows| SpeculationRoom { rows, width: 8 });
    SessionOptions { speculation, ..SessionOptions::on(&device.info(), 16_384) }
}

fn run(engine: &Arc<Engine>, session: &mut Session, mode: SpecMode) {
    let prompt = "def f(x):\n    return x * 2\n\n".repeat(60);
    let ids = engine.tokenizer().encode(&prompt, foretoken::tokenizer::Special::Ignore);
    let mut request =
        GenerateRequest { max_tokens: Some(40), ignore_eos: true, ..GenerateRequest::greedy(ids) };
    request.speculation.mode = mode;
    session.reset().unwrap();
    engine.generate(session, &request, &Cancel::default(), &mut |_| {}).unwrap();
}

/// Loads, makes a session, runs it; with room for trees, with a draft.
fn model(device: &Arc<dyn Device>, rows: Option<usize>) {
    let open = OpenOptions::default();
    let options = options(device, rows);
    let opened = free(device);
    let file = ModelFile::open(&nano().join("nano-code-Q4_K_M.gguf"), &open).unwrap();
    let mut planner = Planner::new(file, Arc::clone(device), Activations::Fast).unwrap();
    let draft = rows.map(|_| {
        let file = DflashFile::open(&nano().join("nano-dflash-Q8_0.gguf"), &open).unwrap();
        let config = &planner.file().config;
        let plan = DflashPlan::new(file, &**device, config, Activations::Fast).unwrap();
        let model = plan.rehearse(planner.stand_in()).unwrap();
        let make = move || Ok(Box::new(DflashDrafter::new(Arc::clone(&model))) as Box<dyn Drafter>);
        planner.draft_with(Box::new(make), None);
        plan
    });
    let start = std::time::Instant::now();
    let plan = planner.plan(&options).unwrap();
    let took = start.elapsed();
    // Code has been loaded, and nothing else.
    let planned = free(device);
    let engine = planner.load(&options, &mut |_| {}).unwrap();
    let model = draft.map(|draft| draft.load(device, &mut |_, _| {}).unwrap());
    let loaded = free(device);
    let start = std::time::Instant::now();
    let mut session = match &model {
        Some(model) => {
            let drafter = Box::new(DflashDrafter::new(Arc::clone(model)));
            engine.session_with_drafter(options, drafter).unwrap()
        }
        None => engine.session(options).unwrap(),
    };
    println!("planned in {took:?}, session made in {:?}", start.elapsed());
    assert_eq!(session.plan(), &plan);
    let made = free(device);
    let mode = if rows.is_some() { SpecMode::Tree } else { SpecMode::Off };
    run(&engine, &mut session, mode);
    let ran = free(device);
    for mode in [mode, SpecMode::Off, mode] {
        run(&engine, &mut session, mode);
    }
    let again = free(device);

    let overhead = device.overhead_bytes() as i64;
    let told = plan.total() as i64 - overhead;
    println!("{plan}");
    println!(
        "MiB: code {:.1}, weights {:.1}, session {:.1}, first run {:.1}, later {:.1}; planned {:.1} \
         and {:.1} for the driver, taken {:.1}",
        mib(opened - planned),
        mib(planned - loaded),
        mib(loaded - made),
        mib(made - ran),
        mib(ran - again),
        mib(told),
        mib(overhead),
        mib(planned - made),
    );
    assert_eq!(ran, again, "memory was taken after the first run");
    let all = opened - again;
    assert!(all <= told + overhead + PAGE, "{} taken", MemorySize(all as u64));
    // Without what the driver takes for itself, and with it.
    let off = |taken: i64| (taken - told).abs() <= (told as f64 * SHARE) as i64 + PAGE;
    assert!(!off(planned - again + told / 10), "the measure sees a tenth of the plan");
    assert!(off(planned - again), "{} of {} taken", planned - again, told);
    assert!(plan.of(MemoryKind::Driver) as i64 > overhead, "{plan}");
}
