//! Flags of `synth`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::common::thread_count;
use super::parse::{positive, whole};
use crate::synth::{PRESETS, Preset, Quant, preset};

const AFTER_HELP: &str = "\
Examples:
  foretoken synth --preset qwen3.5-27b --out 27b.gguf
  foretoken synth --preset dflash-27b --out draft.gguf
  foretoken bench -m 27b.gguf -p 512 -n 64
The weights are random: the answers mean nothing, the times and sizes are those
of the real model. dflash presets draft for the model of that size.";

/// Write a model of random weights.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct SynthArgs {
    /// The shape
    #[arg(short, long, value_name = "PRESET", value_parser = presets())]
    pub(crate) preset: Preset,
    /// Types of the weights [default: what the preset is mostly used in]
    #[arg(long, value_name = "TYPE", value_parser = quants())]
    pub(crate) quant: Option<Quant>,
    /// The same seed gives the same file
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole::<u64>)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) seed: u64,
    /// GGUF file to write
    #[arg(short, long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// Layers instead of the preset's
    #[arg(long, value_name = "N", value_parser = layers, allow_negative_numbers = true)]
    pub(crate) layers: Option<usize>,
    /// Layers of the model that a draft is for, instead of the preset's
    #[arg(long, value_name = "N", value_parser = layers, allow_negative_numbers = true)]
    pub(crate) target_layers: Option<usize>,
    /// Longest context that the file allows, instead of the preset's
    #[arg(short, long, value_name = "N", value_parser = context, allow_negative_numbers = true)]
    pub(crate) context: Option<usize>,
    /// GGUF file to take the vocabulary from; otherwise one is made
    #[arg(long, value_name = "FILE")]
    pub(crate) tokenizer: Option<PathBuf>,
    /// Threads that write [default: one for each core]
    #[arg(short, long, value_name = "N", value_parser = thread_count)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) threads: Option<usize>,
    /// Write over a file that exists
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Only say how large the file would be
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

fn presets() -> impl TypedValueParser<Value = Preset> {
    PossibleValuesParser::new(PRESETS.map(|preset| preset.name))
        .try_map(|name| preset(&name).ok_or("no such preset"))
}

fn quants() -> impl TypedValueParser<Value = Quant> {
    PossibleValuesParser::new(Quant::ALL.map(Quant::name))
        .try_map(|name| Quant::named(&name).ok_or("no such type"))
}

/// As many layers as the engine takes.
fn layers(s: &str) -> Result<usize, String> {
    at_most(s, 1 << 12)
}

/// As long a context as the engine takes.
fn context(s: &str) -> Result<usize, String> {
    at_most(s, 1 << 28)
}

fn at_most(s: &str, most: usize) -> Result<usize, String> {
    let count = positive(s).ok().filter(|&n| n <= most);
    count.ok_or_else(|| format!("use a whole number from 1 to {most}"))
}
