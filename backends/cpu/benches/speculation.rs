//! Whether `auto` keeps the speed of plain decoding when the drafter is of no use.
//!
//! `cargo bench -p foretoken-cpu --bench speculation` decodes the same prompt plainly and
//! with `auto`, in turns, with two drafters: the shipped draft with its output norm set
//! to zero (it costs what a draft costs, and all tokens are equally likely to it), and
//! one on the host that proposes random tokens for free. Rates are medians.

#![allow(clippy::print_stdout)]

use std::path::Path;
use std::sync::Arc;

use foretoken::Result;
use foretoken::device::{Activations, Device, Driver};
use foretoken::format::{GgufFile, OpenOptions, SharedBytes, TensorSource};
use foretoken::generate::{
    Cancel, Engine, EngineOptions, GenerateRequest, Session, SessionOptions, SpeculationRoom,
};
use foretoken::kernel::Op;
use foretoken::speculate::dflash::{DflashFile, DflashPlan};
use foretoken::speculate::{Candidates, DflashDrafter, DraftSite, DraftSizes, Drafter, SpecMode};
use foretoken::tokenizer::Special;
use foretoken_cpu::{CpuDriver, CpuOptions};

const TOKENS: usize = 1024;
const RUNS: usize = 11;

/// Proposes any tokens at all.
struct Random(u64);

impl Drafter for Random {
    fn name(&self) -> &str {
        "random"
    }

    fn positions(&self) -> usize {
        15
    }

    fn bytes(&self, _: &DraftSizes, _: &dyn Device) -> Result<u64> {
        Ok(0)
    }

    fn attach(&mut self, _: &DraftSite<'_>) -> Result<()> {
        Ok(())
    }

    fn context(&self, _: usize) -> Result<Vec<Op>> {
        Ok(Vec::new())
    }

    fn proposal(&self) -> Result<Vec<Op>> {
        Ok(Vec::new())
    }

    fn propose(&mut self, _: &[u32], candidates: &mut Candidates<'_>) -> usize {
        for (i, id) in candidates.ids.iter_mut().enumerate() {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *id = ((self.0 >> 33) % 8192) as i32;
            candidates.scores[i] = -0.1 * (i % candidates.width) as f32;
        }
        15
    }
}

fn nano(file: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/nano").join(file)
}

/// The shipped draft with its output norm set to zero.
fn blind(engine: &Engine) -> Box<dyn Drafter> {
    let path = nano("nano-dflash-Q8_0.gguf");
    let mut bytes = std::fs::read(&path).expect("the shipped draft");
    let file = GgufFile::open(&path, &OpenOptions::default()).expect("a draft");
    let norm = file.tensor("output_norm.weight").expect("its norm");
    let held = file.data(norm).to_vec();
    let at = bytes.windows(held.len()).position(|w| w == held).expect("the norm's bytes");
    bytes[at..at + held.len()].fill(0);
    let file = GgufFile::from_bytes(&path, SharedBytes::from(bytes)).expect("a draft");
    let file = DflashFile::from_gguf(file).expect("a draft");
    let (device, target) = (engine.device(), engine.config());
    let plan =
        DflashPlan::new(file, &**device, target, Activations::Fast).expect("a fitting draft");
    Box::new(DflashDrafter::new(plan.load(device, &mut |_, _| {}).expect("memory")))
}

/// Tokens per second after the first, and the share of steps that speculated.
fn rate(engine: &Engine, session: &mut Session, mode: SpecMode) -> (f64, f64) {
    let prompt = engine.tokenizer().encode("def fibonacci(n):", Special::Parse);
    let mut request = GenerateRequest {
        max_tokens: Some(TOKENS),
        ignore_eos: true,
        ..GenerateRequest::greedy(prompt)
    };
    request.speculation.mode = mode;
    let out = engine.generate(session, &request, &Cancel::default(), &mut |_| {});
    let stats = out.expect("an answer").stats;
    let share = stats.speculation.map_or(0.0, |s| s.speculative_steps as f64 / s.steps as f64);
    ((TOKENS - 1) as f64 / stats.decode.as_secs_f64(), share)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let device = CpuDriver::new(CpuOptions::default()).open(0).expect("a CPU");
    let target = nano("nano-code-Q4_K_M.gguf");
    let engine = Engine::load(&target, device, &EngineOptions::default(), None, &mut |_| {});
    let engine: Arc<Engine> = engine.expect("the shipped model");
    let options = SessionOptions {
        speculation: Some(SpeculationRoom::for_budget(22)),
        ..SessionOptions::new(TOKENS + 64)
    };
    println!("| drafter | plain tok/s | auto tok/s | auto / plain | speculative steps |");
    println!("|---|---:|---:|---:|---:|");
    let drafters: [(&str, Box<dyn Drafter>); 2] =
        [("draft that sees nothing", blind(&engine)), ("random tokens", Box::new(Random(1)))];
    for (name, drafter) in drafters {
        let mut session = engine.session_with_drafter(options, drafter).expect("a session");
        session.calibrate().expect("times");
        rate(&engine, &mut session, SpecMode::Off);
        let (mut plain, mut auto, mut shares) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..RUNS {
            plain.push(rate(&engine, &mut session, SpecMode::Off).0);
            let (rate, share) = rate(&engine, &mut session, SpecMode::Auto);
            auto.push(rate);
            shares.push(share);
        }
        let (plain, auto) = (median(plain), median(auto));
        let share = 100.0 * median(shares);
        println!("| {name} | {plain:.0} | {auto:.0} | {:.3} | {share:.1} % |", auto / plain);
    }
}
