//! What `generate --json` prints.

use foretoken::generate::{Engine, Generation};
use foretoken::sample::{TokenLogprob, TopLogprobs};
use foretoken::speculate::SpecStats;
use foretoken::tokenizer::Tokenizer;
use serde::Serialize;

use crate::args::GenerateArgs;
use crate::commands::plan::PlanReport;
use crate::commands::speculation::SpeculationReport;
use crate::output::text_of;

/// The whole object.
#[derive(Debug, Serialize)]
pub(super) struct Report<'a> {
    text: &'a str,
    ids: &'a [u32],
    finish: &'static str,
    stats: Stats,
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<Vec<Logprobs>>,
    model: &'a str,
    device: String,
    seed: u64,
}

/// Counts and times.
#[derive(Debug, Serialize)]
struct Stats {
    prompt_tokens: usize,
    generated_tokens: usize,
    prefill_s: f64,
    decode_s: f64,
    ttft_s: f64,
    spec: &'static str,
    steps: usize,
    drafted: u64,
    accepted: u64,
    /// Tokens a step commits; plain decoding commits one.
    acceptance_length_mean: f64,
    /// Steps by drafted tokens accepted, from none on.
    acceptance_histogram: Vec<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    speculation: Option<SpeculationReport>,
    fallbacks: Vec<FallbackReport>,
    memory: PlanReport,
    pflash: Pflash,
}

/// A degradation.
#[derive(Debug, Serialize)]
struct FallbackReport {
    what: String,
    reason: String,
    count: u64,
}

/// Speculative prefill.
#[derive(Debug, Serialize)]
struct Pflash {
    used: bool,
}

/// Log-probabilities at one generated token.
#[derive(Debug, Serialize)]
struct Logprobs {
    id: u32,
    token: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<Vec<u8>>,
    logprob: f64,
    top: Vec<Entry>,
}

/// One of the most likely tokens there.
#[derive(Debug, Serialize)]
struct Entry {
    id: u32,
    token: String,
    /// What the text lost: only of tokens that are no valid UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<Vec<u8>>,
    logprob: f64,
}

impl<'a> Report<'a> {
    /// The report of a finished request.
    pub(super) fn new(generation: &'a Generation, engine: &'a Engine, args: &GenerateArgs) -> Self {
        let info = engine.device_info();
        let tokenizer = engine.tokenizer();
        let logprobs = generation.logprobs.iter().map(|l| Logprobs::new(l, tokenizer));
        Self {
            text: &generation.text,
            ids: &generation.ids,
            finish: generation.finish.name(),
            stats: Stats::new(generation),
            logprobs: args.logprobs.map(|_| logprobs.collect()),
            model: engine.name(),
            device: format!("{}:{}", info.driver, info.index),
            seed: args.sampling.params().seed,
        }
    }
}

impl Stats {
    fn new(generation: &Generation) -> Self {
        let stats = &generation.stats;
        let spec = stats.speculation.as_ref();
        let fallbacks = stats.fallbacks.iter().map(|f| FallbackReport {
            what: f.what.clone(),
            reason: f.reason.clone(),
            count: f.count,
        });
        Self {
            prompt_tokens: stats.prompt_tokens,
            generated_tokens: stats.generated_tokens,
            prefill_s: stats.prefill.as_secs_f64(),
            decode_s: stats.decode.as_secs_f64(),
            ttft_s: stats.ttft.as_secs_f64(),
            spec: spec.map_or("off", SpecStats::shape),
            steps: stats.steps,
            drafted: spec.map_or(0, |s| s.drafted),
            accepted: spec.map_or(0, |s| s.accepted),
            acceptance_length_mean: spec
                .and_then(SpecStats::acceptance_length_mean)
                .unwrap_or(if stats.steps > 0 { 1.0 } else { 0.0 }),
            acceptance_histogram: spec.map_or(Vec::new(), |s| s.histogram.clone()),
            speculation: spec.map(SpeculationReport::from),
            fallbacks: fallbacks.collect(),
            memory: PlanReport::from(&stats.memory),
            pflash: Pflash { used: false },
        }
    }
}

impl Logprobs {
    fn new(logprobs: &TopLogprobs, tokenizer: &Tokenizer) -> Self {
        let entry = |t: &TokenLogprob| {
            let (token, bytes) = text_of(tokenizer.token_bytes(t.id).unwrap_or_default());
            Entry { id: t.id, token, bytes, logprob: t.logprob }
        };
        let Entry { id, token, bytes, logprob } = entry(&logprobs.chosen);
        Self { id, token, bytes, logprob, top: logprobs.top.iter().map(entry).collect() }
    }
}
