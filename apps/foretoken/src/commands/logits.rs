//! `logits`: the most likely next tokens at every position of a prompt.

use std::io::Write;

use anyhow::Result;
use foretoken::generate::{Cancel, Session, WantLogits};
use foretoken::sample::{TokenLogprob, TopLogprobs};
use foretoken::tokenizer::Tokenizer;
use serde::Serialize;

use super::tokenize::encode;
use crate::args::LogitsArgs;
use crate::load::{self, Demand, check_prompt, open_model, session_options};
use crate::output::{print_json, quoted, stdout};
use crate::prompt;
use crate::ui::Ui;

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report {
    positions: Vec<Position>,
}

/// One position: the input token there, and what may come next.
#[derive(Debug, Serialize)]
struct Position {
    id: u32,
    top: Vec<Entry>,
}

/// A token and its log-probability.
#[derive(Debug, Serialize)]
pub(super) struct Entry {
    id: u32,
    logprob: f64,
}

impl From<&TokenLogprob> for Entry {
    fn from(token: &TokenLogprob) -> Self {
        Self { id: token.id, logprob: token.logprob }
    }
}

/// Runs the command.
pub(super) fn run(args: &LogitsArgs, ui: &Ui) -> Result<()> {
    let text = match &args.ids {
        Some(_) => String::new(),
        None => prompt::non_empty_text(&args.prompt)?,
    };
    let file = open_model(args.model.model.as_deref(), &args.model.open_options())?;
    let ids = match &args.ids {
        Some(ids) => ids.0.clone(),
        None => encode(&file.tokenizer, &text, args.no_special),
    };
    let planner = load::planner(file, &args.device, &args.session)?;
    let demand = Demand { tokens: ids.len(), all_logits: true };
    let options = session_options(&planner, &args.session, demand)?;
    check_prompt(planner.file(), &ids, options.context, 0)?;
    let engine = load::load(planner, &options, ui)?;
    let mut session = engine.session(options)?;
    let positions = positions(&mut session, &ids, args.top, ui)?;
    if args.json {
        return print_json(&Report { positions });
    }
    print_text(&positions, engine.tokenizer())
}

fn positions(session: &mut Session, ids: &[u32], top: usize, ui: &Ui) -> Result<Vec<Position>> {
    let vocab = session.engine().config().vocab;
    let mut positions: Vec<Position> = Vec::with_capacity(ids.len());
    let mut bar = ui.progress("prefill");
    session.prefill(ids, WantLogits::All, &Cancel::default(), &mut |session, done| {
        for row in session.read_logits()?.chunks_exact(vocab) {
            // The chosen token plays no part here; any id of the vocabulary will do.
            let best = TopLogprobs::new(row, 0, top)?.top;
            let id = ids.get(positions.len()).copied().unwrap_or_default();
            positions.push(Position { id, top: best.iter().map(Entry::from).collect() });
        }
        bar.set(done, ids.len());
        Ok(())
    })?;
    Ok(positions)
}

fn print_text(positions: &[Position], tokenizer: &Tokenizer) -> Result<()> {
    let shown = |id| quoted(tokenizer.token_bytes(id).unwrap_or_default());
    let mut out = stdout();
    for (at, position) in positions.iter().enumerate() {
        writeln!(out, "{at:>6}  after {:>6} {}", position.id, shown(position.id))?;
        for Entry { id, logprob } in &position.top {
            writeln!(out, "        {logprob:>9.4} {id:>6} {}", shown(*id))?;
        }
    }
    Ok(out.flush()?)
}
