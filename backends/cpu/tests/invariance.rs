//! A row's bits depend on nothing but the row and its context.

use std::path::Path;
use std::sync::Arc;

use foretoken::cache::KvType;
use foretoken::device::{Activations, Driver};
use foretoken::generate::{Cancel, Engine, EngineOptions, Session, SessionOptions, WantLogits};
use foretoken_cpu::{CpuDriver, CpuOptions};

fn engine(model: &str, threads: usize, activations: Activations) -> Arc<Engine> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/nano").join(model);
    let driver = CpuDriver::new(CpuOptions { threads: Some(threads), ..CpuOptions::default() });
    let options = EngineOptions { activations, ..EngineOptions::default() };
    Engine::load(&path, driver.open(0).unwrap(), &options, None, &mut |_| {}).unwrap()
}

/// A text-like sequence of ids that repeats itself now and then.
fn tokens(count: usize) -> Vec<u32> {
    (0..count as u32).map(|i| 300 + (i * i * 7 + i * 131) % 3000).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

fn session(engine: &Arc<Engine>, chunk: usize, kv_type: KvType) -> Session {
    let options = SessionOptions { chunk, logit_rows: 64, kv_type, ..SessionOptions::new(2048) };
    engine.session(options).unwrap()
}

fn prefill(session: &mut Session, tokens: &[u32]) {
    let cancel = Cancel::default();
    session.prefill(tokens, WantLogits::Last, &cancel, &mut |_, _| Ok(())).unwrap();
}

/// Logits of `count` tokens after a prefix, in steps of `rows`.
fn in_steps(engine: &Arc<Engine>, prefix: &[u32], rest: &[u32], rows: usize) -> Vec<u32> {
    let mut session = session(engine, 512, KvType::F16);
    prefill(&mut session, prefix);
    let mut out = Vec::new();
    for part in rest.chunks(rows) {
        session.step(part, WantLogits::All).unwrap();
        out.extend(bits(session.read_logits().unwrap()));
    }
    out
}

#[test]
fn a_row_has_the_same_bits_alone_and_among_others() {
    let all = tokens(70 + 64);
    let (prefix, rest) = all.split_at(70);
    for (model, activations) in [
        ("nano-code-Q4_K_M.gguf", Activations::Fast),
        ("nano-code-Q4_K_M.gguf", Activations::F32),
        ("nano-scorer-Q8_0.gguf", Activations::Fast),
    ] {
        let engine = engine(model, 2, activations);
        let alone = in_steps(&engine, prefix, rest, 1);
        for rows in 2..=64 {
            let among = in_steps(&engine, prefix, rest, rows);
            assert!(alone == among, "{model} {activations:?}: {rows} rows differ from one");
        }
    }
}

#[test]
fn logits_and_state_do_not_depend_on_the_chunk() {
    let prompt = tokens(700);
    let engine = engine("nano-code-Q4_K_M.gguf", 2, Activations::Fast);
    let run = |chunk| {
        let mut session = session(&engine, chunk, KvType::F16);
        prefill(&mut session, &prompt);
        let logits = bits(session.read_logits().unwrap());
        (logits, bits(&session.read_state().unwrap()))
    };
    let reference = run(64);
    for chunk in [128, 192, 256, 512, 1024] {
        assert!(reference == run(chunk), "chunk {chunk}");
    }
}

#[test]
fn bits_do_not_depend_on_threads() {
    let prompt = tokens(130);
    let run = |threads| {
        let engine = engine("nano-code-Q4_K_M.gguf", threads, Activations::Fast);
        let mut session = session(&engine, 64, KvType::F16);
        prefill(&mut session, &prompt);
        bits(session.read_logits().unwrap())
    };
    let one = run(1);
    for threads in [2, 3, 5] {
        assert!(one == run(threads), "{threads} threads");
    }
}

#[test]
fn the_comparison_sees_a_changed_token_and_a_changed_cache_type() {
    let mut prompt = tokens(130);
    let engine = engine("nano-code-Q4_K_M.gguf", 2, Activations::Fast);
    let run = |prompt: &[u32], kv_type| {
        let mut session = session(&engine, 64, kv_type);
        prefill(&mut session, prompt);
        (bits(session.read_logits().unwrap()), bits(&session.read_state().unwrap()))
    };
    let reference = run(&prompt, KvType::F16);
    assert_ne!(reference.0, run(&prompt, KvType::F32).0);
    prompt[3] += 1;
    let changed = run(&prompt, KvType::F16);
    assert_ne!(reference.0, changed.0);
    assert_ne!(reference.1, changed.1);
}
