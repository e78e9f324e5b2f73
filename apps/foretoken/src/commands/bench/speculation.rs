//! `bench --spec`: plain, chain, tree and auto decoding side by side, by kind of text.
//!
//! Whole requests through the engine, as `generate` serves them. In each repetition the
//! modes take turns on every prompt of a genre, so that load falls on all of them; a rate
//! is tokens after the first over the time they took, over all prompts of the genre.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use foretoken::generate::{
    Cancel, Engine, GenerateRequest, Generation, Session, SessionOptions, Speculate,
};
use foretoken::speculate::{CostPoints, SpecLimits, SpecMode};
use foretoken::tokenizer::Special;

use super::genres::{GENRES, Genre};
use super::report::{Row, Speculated};
use crate::args::{BenchArgs, DraftSource};
use crate::chat;
use crate::drafts::{self, Drafts};
use crate::failure::usage;

/// Modes, plain decoding first.
const MODES: [SpecMode; 4] = [SpecMode::Off, SpecMode::Chain, SpecMode::Tree, SpecMode::Auto];

/// One mode's session and what came of it.
struct Lane {
    mode: SpecMode,
    session: Session,
    rates: Vec<f64>,
    steps: u64,
    accepted: u64,
    answers: Vec<Vec<u32>>,
}

/// Measures all genres. `row` makes a result of a test's name, rates and acceptance.
///
/// # Errors
/// Engine faults; a mode whose answer differs from plain decoding's.
pub(super) fn measure(
    engine: &Arc<Engine>,
    source: &DraftSource,
    drafts: &Drafts,
    args: &BenchArgs,
    limits: SpecLimits,
    mut row: impl FnMut(String, SessionOptions, &[f64], Speculated) -> Result<Row>,
    mut add: impl FnMut(Row) -> Result<()>,
) -> Result<Option<CostPoints>> {
    let &[tokens] = args.n_gen.as_slice() else {
        return Err(usage("--spec takes one number of tokens: -n N"));
    };
    if tokens < 2 {
        return Err(usage("--spec needs at least 2 tokens: -n N"));
    }
    if matches!(drafts, Drafts::None(_)) {
        return Err(usage("--spec needs a drafter: --draft MODEL or lookup"));
    }
    let mut cost = None;
    for genre in GENRES {
        let prompts = prompts(engine, genre)?;
        let longest = prompts.iter().map(Vec::len).max().unwrap_or(0);
        let mut options = SessionOptions::on(&engine.device_info(), longest + tokens);
        options.kv_type = args.cache_type;
        options.chunk = args.chunk.unwrap_or(options.chunk);
        let mut lanes = Vec::new();
        for mode in MODES {
            options.speculation = drafts::room(source, mode, limits);
            let session = drafts.session(engine, options, mode, limits, args.activations.into())?;
            let (rates, answers) = (Vec::new(), Vec::new());
            lanes.push(Lane { mode, session, rates, steps: 0, accepted: 0, answers });
        }
        for repetition in 0..=args.repetitions {
            for lane in &mut lanes {
                let counts = repetition > 0;
                lane.run(engine, &prompts, tokens, limits, counts)?;
            }
        }
        let mut plain = f64::NAN;
        let answers = lanes.first().map(|lane| lane.answers.clone()).unwrap_or_default();
        for lane in &lanes {
            if lane.answers != answers {
                bail!("{} {}: the answer differs from plain decoding's", genre.name, lane.mode);
            }
            let name = if lane.mode == SpecMode::Off { "plain" } else { lane.mode.name() };
            let median = super::report::median_of(&lane.rates);
            if lane.mode == SpecMode::Off {
                plain = median;
            }
            let speculated = Speculated {
                acceptance_length_mean: (lane.steps > 0)
                    .then(|| 1.0 + lane.accepted as f64 / lane.steps as f64),
                times_plain: median / plain,
                drafter: drafts.name(),
                draft_len: limits.draft_len(),
                tree_budget: limits.tree_budget(),
            };
            let options = *lane.session.options();
            add(row(format!("{} {name}", genre.name), options, &lane.rates, speculated)?)?;
            drafts.keep_times(&lane.session, args.activations.into());
            cost = lane.session.cost().cloned().or(cost);
        }
    }
    Ok(cost)
}

fn prompts(engine: &Engine, genre: Genre) -> Result<Vec<Vec<u32>>> {
    let template = genre.chat && engine.chat_template().is_some();
    let ids = |text: &str| match template {
        true => chat::ids_for(engine, text),
        false => Ok(engine.tokenizer().encode(text, Special::Parse)),
    };
    genre.prompts().map(ids).collect::<Result<_>>().with_context(|| genre.name)
}

impl Lane {
    fn run(
        &mut self,
        engine: &Engine,
        prompts: &[Vec<u32>],
        tokens: usize,
        limits: SpecLimits,
        counts: bool,
    ) -> Result<()> {
        let (mut said, mut seconds) = (0, 0.0);
        self.answers.clear();
        for prompt in prompts {
            let request = GenerateRequest {
                max_tokens: Some(tokens),
                ignore_eos: true,
                speculation: Speculate { mode: self.mode, limits },
                ..GenerateRequest::greedy(prompt.clone())
            };
            let cancel = Cancel::default();
            let Generation { ids, stats, .. } =
                engine.generate(&mut self.session, &request, &cancel, &mut |_| {})?;
            said += ids.len() - 1;
            seconds += stats.decode.as_secs_f64();
            if let (true, Some(spec)) = (counts, &stats.speculation) {
                self.steps += spec.speculative_steps;
                self.accepted += spec.accepted;
            }
            self.answers.push(ids);
        }
        if counts {
            self.rates.push(said as f64 / seconds);
        }
        Ok(())
    }
}
