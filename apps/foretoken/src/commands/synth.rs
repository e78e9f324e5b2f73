//! `synth`: a model of random weights.

use std::time::Instant;

use anyhow::{Context, Result};
use foretoken::format::{GgufFile, OpenOptions};
use foretoken::generate::Cancel;
use serde::Serialize;

use crate::args::SynthArgs;
use crate::failure::{shown, usage};
use crate::interrupt;
use crate::output::{print_json, size};
use crate::synth::{Family, Recipe, write};
use crate::ui::Ui;

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report<'a> {
    path: String,
    preset: &'a str,
    quant: &'a str,
    seed: u64,
    bytes: u64,
    tensors: usize,
    written: bool,
    seconds: f64,
}

/// Runs the command.
pub(super) fn run(args: &SynthArgs, ui: &Ui) -> Result<()> {
    let start = Instant::now();
    let recipe = recipe(args)?;
    let tokenizer = match &args.tokenizer {
        None => None,
        Some(path) => Some(GgufFile::open(path, &OpenOptions::default())?),
    };
    let named = |path: &std::path::Path| shown(path);
    let plan = recipe
        .plan(&args.out, tokenizer.as_ref().map(GgufFile::metadata))
        .with_context(|| named(args.tokenizer.as_deref().unwrap_or(&args.out)))?;
    let (bytes, tensors) = (plan.layout.len, plan.layout.tensors.len());
    if !args.dry_run {
        let cancel = Cancel::default();
        interrupt::cancels(&cancel)?;
        let threads =
            args.threads.or_else(|| Some(std::thread::available_parallelism().ok()?.get()));
        let mut bar = ui.progress("writing");
        // In megabytes, which the bar shows.
        let mut progress =
            |done: u64, total: u64| bar.set((done >> 20) as usize, (total >> 20) as usize);
        write(&plan, &args.out, threads.unwrap_or(1), args.force, &cancel, &mut progress)?;
    }
    let seconds = start.elapsed().as_secs_f64();
    if args.json {
        return print_json(&Report {
            path: args.out.to_string_lossy().into_owned(),
            preset: recipe.name,
            quant: recipe.quant.name(),
            seed: recipe.seed,
            bytes,
            tensors,
            written: !args.dry_run,
            seconds,
        });
    }
    let verb = if args.dry_run { "would have" } else { "has" };
    let name = shown(&args.out);
    ui.note(format!("{name} {verb} {tensors} tensors, {} ({seconds:.1} s)", size(bytes)));
    Ok(())
}

/// The preset with what was asked for otherwise.
fn recipe(args: &SynthArgs) -> Result<Recipe> {
    let preset = args.preset;
    let mut shape = preset.shape;
    shape.layers = args.layers.unwrap_or(shape.layers);
    shape.context = args.context.unwrap_or(shape.context);
    match (&mut shape.family, args.target_layers) {
        (Family::Draft { target, .. }, Some(layers)) => *target = layers,
        (_, Some(_)) => return Err(usage("--target-layers is for dflash presets")),
        (_, None) => {}
    }
    let quant = args.quant.unwrap_or(preset.quant);
    Ok(Recipe { name: preset.name, shape, quant, seed: args.seed })
}
