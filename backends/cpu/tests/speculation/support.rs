//! Engines, sessions and prompts.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use foretoken::device::{Activations, Driver};
use foretoken::format::OpenOptions;
use foretoken::generate::{
    Cancel, Engine, EngineOptions, Session, SessionOptions, SpeculationRoom, WantLogits,
};
use foretoken::speculate::{DflashDrafter, DflashModel, Drafter};
use foretoken_cpu::{CpuDriver, CpuOptions};

/// The shipped target, or the BF16 one of the test data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Q4,
    Bf16,
}

/// A loaded target and its draft model.
pub(crate) struct Rig {
    pub(crate) engine: Arc<Engine>,
    pub(crate) draft: Arc<DflashModel>,
}

/// Two pools that spin on the same cores take each other's time.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(|e| e.into_inner())
}

pub(crate) fn nano(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/nano").join(file)
}

fn load(target: &Path) -> Rig {
    let device = CpuDriver::new(CpuOptions::default()).open(0).unwrap();
    let options = EngineOptions::default();
    let engine = Engine::load(target, Arc::clone(&device), &options, None, &mut |_| {}).unwrap();
    let draft = DflashModel::load(
        &nano("nano-dflash-Q8_0.gguf"),
        &OpenOptions::default(),
        &device,
        engine.config(),
        Activations::Fast,
        &mut |_, _| {},
    );
    Rig { engine, draft: draft.unwrap() }
}

/// The engine of a target; `None`, said once, when its file is not here.
pub(crate) fn rig(target: Target) -> Option<&'static Rig> {
    static Q4: OnceLock<Rig> = OnceLock::new();
    static BF16: OnceLock<Option<Rig>> = OnceLock::new();
    match target {
        Target::Q4 => Some(Q4.get_or_init(|| load(&nano("nano-code-Q4_K_M.gguf")))),
        Target::Bf16 => BF16
            .get_or_init(|| match std::env::var_os("FORETOKEN_TEST_DATA") {
                Some(dir) => Some(load(&Path::new(&dir).join("models/nano/nano-code-BF16.gguf"))),
                None => {
                    eprintln!("skipped: BF16 target: FORETOKEN_TEST_DATA is not set");
                    None
                }
            })
            .as_ref(),
    }
}

impl Rig {
    pub(crate) fn dflash(&self) -> Box<dyn Drafter> {
        Box::new(DflashDrafter::new(Arc::clone(&self.draft)))
    }

    pub(crate) fn plain(&self, context: usize) -> Session {
        self.engine.session(SessionOptions::new(context)).unwrap()
    }

    pub(crate) fn speculative(&self, context: usize, drafter: Box<dyn Drafter>) -> Session {
        let room = SpeculationRoom { rows: 64, width: 24 };
        let options =
            SessionOptions { speculation: Some(room), chunk: 128, ..SessionOptions::new(context) };
        self.engine.session_with_drafter(options, drafter).unwrap()
    }

    pub(crate) fn encode(&self, text: &str) -> Vec<u32> {
        self.engine.tokenizer().encode(text, foretoken::tokenizer::Special::Parse)
    }
}

/// Resets, prefills and returns the most likely next token.
pub(crate) fn start(session: &mut Session, prompt: &[u32]) -> u32 {
    session.reset().unwrap();
    let cancel = Cancel::default();
    session.prefill(prompt, WantLogits::Last, &cancel, &mut |_, _| Ok(())).unwrap();
    session.argmax(0).unwrap()
}

pub(crate) fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

/// Numbers that look random and are the same each time (SplitMix64).
#[derive(Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}
