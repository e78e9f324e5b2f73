//! `generate`: text after a prompt, streamed or as one JSON object.

mod report;
mod stream;

use std::io::{self, IsTerminal};

use anyhow::{Context, Result};
use foretoken::generate::{
    Cancel, GenerateRequest, Generation, Speculate, StopMatcher, StreamEvent,
};
use foretoken::model::ModelFile;
use foretoken::speculate::SpecStats;

use self::report::Report;
use self::stream::TextStream;
use super::tokenize::encode;
use crate::args::GenerateArgs;
use crate::failure::usage;
use crate::load::{self, Demand, check_ids, check_prompt, open_model, session_options};
use crate::output::{print_json, wrapped};
use crate::ui::Ui;
use crate::{chat, drafts, interrupt, prompt};

/// Runs the command.
pub(super) fn run(args: &GenerateArgs, ui: &Ui) -> Result<()> {
    check(args)?;
    let limits = args.draft.limits().map_err(usage)?;
    let text = match &args.ids {
        Some(_) => String::new(),
        None => prompt::non_empty_text(&args.prompt)?,
    };
    let file = open_model(args.model.model.as_deref(), &args.model.open_options())?;
    check_ids(&file, &args.stop_token).context("--stop-token")?;
    let request = GenerateRequest {
        prompt: prompt_ids(args, &file, &text)?,
        max_tokens: Some(args.max_tokens),
        sampling: args.sampling.params(),
        stop_tokens: args.stop_token.clone(),
        stop_strings: args.stop.iter().map(|s| s.clone().into_bytes()).collect(),
        ignore_eos: args.ignore_eos,
        logprobs: args.logprobs,
        speculation: Speculate { mode: args.spec, limits },
    };
    let mut planner = load::planner(file, &args.device, &args.session)?;
    let tokens = request.prompt.len().saturating_add(args.max_tokens);
    let demand = Demand { tokens, all_logits: false };
    let mut options = session_options(&planner, &args.session, demand)?;
    check_prompt(planner.file(), &request.prompt, options.context, 1)?;
    let source = args.draft.source(args.spec, args.model.model.as_deref());
    options.speculation = drafts::room(&source, args.spec, limits);
    let activations = args.session.activations.into();
    let place = drafts::Place {
        device: args.draft.draft_device.as_ref(),
        drivers: args.device.driver_options(),
        target: args.model.model.as_deref(),
        open: args.model.open_options(),
        activations,
    };
    let drafts = drafts::open(&source, &place, limits, &mut planner)?;
    let drafts = drafts.or_none(&mut planner, &mut options, args.spec)?;
    let engine = load::load(planner, &options, ui)?;
    let drafts = drafts.load(ui)?;
    let mut session = drafts.session(&engine, options, args.spec, limits, activations)?;

    let cancel = Cancel::default();
    interrupt::cancels(&cancel)?;
    let mut bar = ui.progress("prefill");
    let mut stream = TextStream::new(!args.json, cancel.clone());
    let generation = engine.generate(&mut session, &request, &cancel, &mut |event| match event {
        StreamEvent::Prefill { done, total } => bar.set(done, total),
        StreamEvent::Text(text) => {
            ui.release();
            stream.write(text);
        }
    });
    drafts.keep_times(&session, activations);
    let generation = generation?;
    if args.json {
        return print_json(&Report::new(&generation, &engine, args));
    }
    stream.finish(io::stdout().is_terminal())?;
    if let Some(spec) = &generation.stats.speculation {
        // The answer may have ended in the middle of a line.
        ui.detail(format_args!("\n{}", choices(spec)));
    }
    ui.note(summary(&generation));
    Ok(())
}

/// What can be refused before anything is opened.
fn check(args: &GenerateArgs) -> Result<()> {
    let params = args.sampling.params();
    // The vocabulary is not known yet; ids are checked against it later.
    params.validate(u32::MAX).map_err(|fault| usage(fault.to_string()))?;
    StopMatcher::new(&args.stop).map_err(|fault| usage(fault.to_string()))?;
    if args.sampling.has_idle_filters() {
        tracing::warn!("without --temperature the most likely token is taken; filters do nothing");
    }
    args.draft.limits().map_err(usage)?;
    Ok(())
}

fn prompt_ids(args: &GenerateArgs, file: &ModelFile, text: &str) -> Result<Vec<u32>> {
    if let Some(ids) = &args.ids {
        return Ok(ids.0.clone());
    }
    if args.chat {
        return chat::ids(file, args.system.as_deref(), text);
    }
    Ok(encode(&file.tokenizer, text, args.no_special))
}

/// What the steps of a request were, and why, for those who asked for more.
fn choices(spec: &SpecStats) -> String {
    let list = |items: Vec<String>| items.join(", ");
    let choices = spec.choices.iter().map(|(choice, n)| format!("{choice}: {n}")).collect();
    let reasons = spec.reasons.iter().map(|(reason, n)| format!("{reason}: {n}")).collect();
    let text = format!("steps: {}\nreasons: {}", list(choices), list(reasons));
    let lines: Vec<_> = text.lines().map(|line| wrapped(line, 2)).collect();
    lines.join("\n")
}

/// Counts and speeds, in one line of at most 80 columns.
fn summary(generation: &Generation) -> String {
    let stats = &generation.stats;
    let rate = |tokens: usize, seconds: f64| {
        if seconds > 0.0 { format!("{:.0}", tokens as f64 / seconds) } else { "-".to_owned() }
    };
    let (prefill, decode) = (stats.prefill.as_secs_f64(), stats.decode.as_secs_f64());
    let said = stats.speculation.as_ref().filter(|s| s.shape() != "off");
    let mean = said.and_then(|s| Some((s.shape(), s.acceptance_length_mean()?)));
    let spec = mean.map_or(String::new(), |(shape, mean)| format!(", {shape} {mean:.2}"));
    format!(
        "[{} + {} tokens: prefill {} tok/s, decode {} tok/s{spec}; {}]",
        stats.prompt_tokens,
        stats.generated_tokens,
        rate(stats.prompt_tokens, prefill),
        // The first token comes from prefill.
        rate(stats.generated_tokens.saturating_sub(1), decode),
        generation.finish.name(),
    )
}
