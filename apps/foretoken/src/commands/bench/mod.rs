//! `bench`: speed of prompt processing and generation, as users get it.
//!
//! Every repetition goes through a session as `generate` does: prefill in chunks, then
//! one step a token with its choice read back. The median counts; the spread is shown.

mod genres;
mod measure;
mod report;
mod speculation;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use foretoken::format::OpenOptions;
use foretoken::generate::{Engine, EngineOptions, LoadStage, SessionOptions};
use foretoken::speculate::{SpecLimits, SpecMode};

use self::measure::{Test, measure};
use self::report::{Conditions, Results, Row};
use crate::args::BenchArgs;
use crate::drafts;
use crate::drivers::{self, DriverOptions};
use crate::failure::usage;
use crate::load::open_model;
use crate::ui::Ui;

/// Runs the command.
pub(super) fn run(args: &BenchArgs, ui: &Ui) -> Result<()> {
    let tests = tests(args);
    let limits = args.draft.limits().map_err(usage)?;
    if tests.is_empty() {
        return Err(usage("nothing to measure: give -p or -n a length above 0"));
    }
    let models: Vec<Option<&Path>> = match args.model.as_slice() {
        [] => vec![None],
        models => models.iter().map(|m| Some(m.as_path())).collect(),
    };
    let threads: Vec<Option<usize>> = match args.threads.as_slice() {
        [] => vec![None],
        threads => threads.iter().copied().map(Some).collect(),
    };
    let mut results = Results::new(args.format(), args.spec);
    let measured = if args.spec {
        speculate_all(&models, &threads, args, limits, ui, &mut results)
    } else {
        for &model in &models {
            check(model, &tests, args)?;
        }
        measure_all(&models, &threads, &tests, args, ui, &mut results)
    };
    // What was measured before a failure took its time and is not to be lost.
    let printed = results.finish();
    measured.and(printed)
}

/// Refuses tests that a model has no room for before any of them takes its time.
fn check(model: Option<&Path>, tests: &[Test], args: &BenchArgs) -> Result<()> {
    let config = open_model(model, &OpenOptions { mmap: !args.no_mmap })?.config;
    for &test in tests {
        options(test, args).validate(&config).with_context(|| test.name())?;
    }
    Ok(())
}

fn measure_all(
    models: &[Option<&Path>],
    threads: &[Option<usize>],
    tests: &[Test],
    args: &BenchArgs,
    ui: &Ui,
    results: &mut Results,
) -> Result<()> {
    let mut bar = ui.progress("measuring");
    let total = models.len() * threads.len() * tests.len();
    let mut done = 0;
    for &model in models {
        for &threads in threads {
            let engine = load(model, threads, args, ui)?;
            for &test in tests {
                results.add(row(&engine, model, test, args).with_context(|| test.name())?)?;
                done += 1;
                bar.set(done, total);
            }
        }
    }
    Ok(())
}

fn speculate_all(
    models: &[Option<&Path>],
    threads: &[Option<usize>],
    args: &BenchArgs,
    limits: SpecLimits,
    ui: &Ui,
    results: &mut Results,
) -> Result<()> {
    for &model in models {
        for &threads in threads {
            let engine = load(model, threads, args, ui)?;
            let source = args.draft.source(SpecMode::Auto, model);
            let open = OpenOptions { mmap: !args.no_mmap };
            let drafts = drafts::load(&source, &engine, &open, args.activations.into(), ui)?;
            let info = engine.device_info();
            let row = |test, options, rates: &[f64], speculated| {
                let conditions = Conditions::new(&info, options, 0, args.activations.name());
                let row = Row::new(test, model_name(&engine, model), &info, rates, conditions);
                Ok(row.speculated(speculated))
            };
            let add = |row| results.add(row);
            let cost = speculation::measure(&engine, &source, &drafts, args, limits, row, add)?;
            if let Some(cost) = cost {
                let of = format!(
                    "{} with {}, {} threads",
                    model_name(&engine, model),
                    drafts.name(),
                    info.units
                );
                results.cost(&of, &cost)?;
            }
        }
    }
    Ok(())
}

/// Every combination of depth and length, prompts first.
fn tests(args: &BenchArgs) -> Vec<Test> {
    let mut tests = Vec::new();
    for &depth in &args.n_depth {
        let prompts = args.n_prompt.iter().filter(|&&n| n > 0);
        tests.extend(prompts.map(|&tokens| Test { prompt: true, tokens, depth }));
        let answers = args.n_gen.iter().filter(|&&n| n > 0);
        tests.extend(answers.map(|&tokens| Test { prompt: false, tokens, depth }));
    }
    tests
}

fn load(
    model: Option<&Path>,
    threads: Option<usize>,
    args: &BenchArgs,
    ui: &Ui,
) -> Result<Arc<Engine>> {
    let open = OpenOptions { mmap: !args.no_mmap };
    let file = open_model(model, &open)?;
    let device = drivers::open(&args.device, DriverOptions { threads })?;
    let options = EngineOptions { open, activations: args.activations.into() };
    let mut bar = ui.progress("loading");
    Ok(Engine::from_file(file, device, &options, None, &mut |stage| match stage {
        LoadStage::Planned(plan) => ui.detail(plan),
        LoadStage::Weights { done, total } => bar.set(done, total),
    })?)
}

fn options(test: Test, args: &BenchArgs) -> SessionOptions {
    let mut options = SessionOptions::new(test.context());
    options.kv_type = args.cache_type;
    options.chunk = args.chunk;
    options
}

fn row(engine: &Arc<Engine>, model: Option<&Path>, test: Test, args: &BenchArgs) -> Result<Row> {
    let options = options(test, args);
    let mut session = engine.session(options)?;
    let rates = measure(&mut session, test, args.repetitions)?;
    let info = engine.device_info();
    let conditions = Conditions::new(&info, options, test.depth, args.activations.name());
    Ok(Row::new(test.name(), model_name(engine, model), &info, &rates, conditions))
}

/// The file's name tells quantisations apart, which a model's own name does not.
fn model_name(engine: &Engine, model: Option<&Path>) -> String {
    let default = PathBuf::from(crate::models::DEFAULT);
    let stem = model.unwrap_or(&default).file_stem();
    stem.map_or_else(|| engine.name().to_owned(), |s| s.to_string_lossy().into_owned())
}
