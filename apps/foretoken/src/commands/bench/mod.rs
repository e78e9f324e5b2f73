//! `bench`: speed of prompt processing and generation, as users get it.
//!
//! Every repetition goes through a session as `generate` does: prefill in chunks, then
//! one step a token with its choice read back; or one verification pass, as a speculative
//! step runs it. The median counts; the spread is shown.

mod genres;
mod measure;
mod report;
mod speculation;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use foretoken::format::OpenOptions;
use foretoken::generate::{Engine, Planner, SessionOptions, SpeculationRoom};
use foretoken::speculate::{PromptLookup, SpecLimits, SpecMode};

use self::measure::{Bed, Test, Work};
use self::report::{Conditions, Results, Row};
use crate::args::{BenchArgs, PassShape};
use crate::drafts;
use crate::drivers::{self, DriverOptions};
use crate::failure::usage;
use crate::load::{self, open_model};
use crate::ui::Ui;

/// Runs the command.
pub(super) fn run(args: &BenchArgs, ui: &Ui) -> Result<()> {
    let tests = tests(args);
    let limits = args.draft.limits().map_err(usage)?;
    if tests.is_empty() {
        return Err(usage("nothing to measure: give -p or -n a length above 0, or --pass-rows"));
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
        options(SessionOptions::new(test.context()), &[test], args)
            .validate(&config)
            .with_context(|| test.name())?;
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
            let loaded = load(model, threads, args, ui, |_| Ok(()))?;
            // Tests of a depth follow each other.
            for tests in tests.chunk_by(|a, b| a.depth == b.depth) {
                let mut bed = None;
                for &test in tests {
                    let row = row(&loaded, model, test, tests, &mut bed, args);
                    results.add(row.with_context(|| test.name())?)?;
                    done += 1;
                    bar.set(done, total);
                }
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
            let source = args.draft.source(SpecMode::Auto, model);
            let place = drafts::Place {
                device: args.draft.draft_device.as_ref(),
                drivers: DriverOptions { threads, ..DriverOptions::default() },
                target: model,
                open: OpenOptions { mmap: !args.no_mmap },
                activations: args.activations.into(),
            };
            let mut opened = drafts::Opened::None(None);
            let Loaded { engine, seconds } = load(model, threads, args, ui, |planner| {
                opened = drafts::open(&source, &place, limits, planner)?;
                Ok(())
            })?;
            let drafts = opened.load(ui)?;
            let info = engine.device_info();
            let row = |test, options, rates: &[f64], speculated| {
                let conditions = Conditions::new(&info, options, 0, args.activations.name());
                let name = model_name(&engine, model);
                let row = Row::new(test, name, &info, rates, "tok/s", conditions);
                Ok(row.speculated(speculated).loaded(seconds))
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

/// Every combination of depth and length, prompts first, passes last.
fn tests(args: &BenchArgs) -> Vec<Test> {
    let mut tests = Vec::new();
    for &depth in &args.n_depth {
        let prompts = args.n_prompt.iter().filter(|&&n| n > 0).map(|&n| Work::Prompt(n));
        let answers = args.n_gen.iter().filter(|&&n| n > 0).map(|&n| Work::Generate(n));
        let passes = args.pass_shape.iter().flat_map(|&shape| {
            let tree = shape == PassShape::Tree;
            args.pass_rows.iter().map(move |&rows| Work::Pass { rows, tree })
        });
        tests.extend(prompts.chain(answers).chain(passes).map(|work| Test { work, depth }));
    }
    tests
}

/// A model, and how long it took to open the file and take in the weights.
struct Loaded {
    engine: Arc<Engine>,
    seconds: f64,
}

fn load(
    model: Option<&Path>,
    threads: Option<usize>,
    args: &BenchArgs,
    ui: &Ui,
    with: impl FnOnce(&mut Planner) -> Result<()>,
) -> Result<Loaded> {
    let open = OpenOptions { mmap: !args.no_mmap };
    let device =
        drivers::open(&args.device, DriverOptions { threads, ..DriverOptions::default() })?;
    let start = Instant::now();
    let mut planner = Planner::new(open_model(model, &open)?, device, args.activations.into())?;
    with(&mut planner)?;
    let options = SessionOptions::on(&planner.device().info(), planner.default_context()?);
    let engine = load::load(planner, &options, ui)?;
    Ok(Loaded { engine, seconds: start.elapsed().as_secs_f64() })
}

/// A session in which all of these tests can run.
fn options(mut options: SessionOptions, tests: &[Test], args: &BenchArgs) -> SessionOptions {
    options.kv_type = args.cache_type;
    options.chunk = args.chunk.unwrap_or(options.chunk);
    // The least room there is has two rows.
    options.speculation =
        pass_rows(tests).map(|rows| SpeculationRoom { rows: rows.max(2), ..ROOM });
    options
}

/// Candidates of passes are those of a session that speculates.
const ROOM: SpeculationRoom = SpeculationRoom { rows: 2, width: SpeculationRoom::WIDTH };

/// Rows of the largest pass.
fn pass_rows(tests: &[Test]) -> Option<usize> {
    let rows = |test: &Test| match test.work {
        Work::Pass { rows, .. } => Some(rows),
        Work::Prompt(_) | Work::Generate(_) => None,
    };
    tests.iter().filter_map(rows).max()
}

/// Measures a test among those of its depth, whose `bed` the first of them makes.
fn row(
    loaded: &Loaded,
    model: Option<&Path>,
    test: Test,
    tests: &[Test],
    bed: &mut Option<Bed>,
    args: &BenchArgs,
) -> Result<Row> {
    let engine = &loaded.engine;
    let info = engine.device_info();
    let context = tests.iter().map(|test| test.context()).max().unwrap_or(0);
    let options = options(SessionOptions::on(&info, context), tests, args);
    let bed = match bed {
        Some(bed) => bed,
        None => {
            let session = match pass_rows(tests) {
                // Nothing is looked up: only passes are run.
                Some(rows) => {
                    let drafter = PromptLookup::new(rows.saturating_sub(1).max(1))?;
                    engine.session_with_drafter(options, Box::new(drafter))?
                }
                None => engine.session(options)?,
            };
            bed.insert(Bed::new(session, test.depth)?)
        }
    };
    let samples = bed.measure(test, args.repetitions)?;
    let conditions = Conditions::new(&info, options, test.depth, args.activations.name());
    let name = model_name(engine, model);
    let row = Row::new(test.name(), name, &info, &samples, test.unit(), conditions);
    Ok(row.loaded(loaded.seconds))
}

/// The file's name tells quantisations apart, which a model's own name does not.
fn model_name(engine: &Engine, model: Option<&Path>) -> String {
    let default = PathBuf::from(crate::models::DEFAULT);
    let stem = model.unwrap_or(&default).file_stem();
    stem.map_or_else(|| engine.name().to_owned(), |s| s.to_string_lossy().into_owned())
}
