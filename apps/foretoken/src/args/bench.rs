//! Flags of `bench`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use foretoken::cache::KvType;
use foretoken::device::DeviceSpec;
use foretoken::kernel::TreeRows;

use super::DraftArgs;
use super::common::{ActivationsArg, chunk, kv_type, thread_count};
use super::parse::{positive, whole};

const AFTER_HELP: &str = "\
Lists are separated by commas: -p 128,512. Each row is one test: ppN runs a
prompt of N tokens, tgN generates N tokens one after another as `generate` does.
Rates are tokens per second, the median of the repetitions. passN is one
verification of N rows, as a speculative step runs it, in milliseconds of the
device's clock. With --spec each row
is a kind of text and a way to decode it: plain, chain, tree or auto; al is the
mean acceptance length, tokens per speculative step.";

/// Measure speed.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct BenchArgs {
    /// Models to measure; may be repeated
    #[arg(short, long, value_name = "MODEL")]
    pub(crate) model: Vec<PathBuf>,
    /// Prompt lengths; 0 for none
    #[arg(short = 'p', long, value_name = "N", value_delimiter = ',', default_value = "512")]
    #[arg(value_parser = whole::<usize>, allow_negative_numbers = true)]
    pub(crate) n_prompt: Vec<usize>,
    /// Numbers of tokens to generate; 0 for none
    #[arg(short = 'n', long, value_name = "N", value_delimiter = ',', default_value = "128")]
    #[arg(value_parser = whole::<usize>, allow_negative_numbers = true)]
    pub(crate) n_gen: Vec<usize>,
    /// Tokens already in the context when the test starts
    #[arg(
        short = 'd',
        long,
        visible_alias = "depth",
        value_name = "N",
        value_delimiter = ',',
        default_value = "0"
    )]
    #[arg(value_parser = whole::<usize>, allow_negative_numbers = true)]
    pub(crate) n_depth: Vec<usize>,
    /// Rows of verification passes to time, 1 to 64
    #[arg(long, value_name = "M", value_delimiter = ',', value_parser = rows)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) pass_rows: Vec<usize>,
    /// What their rows are
    #[arg(long, value_name = "SHAPE", value_delimiter = ',', value_enum, default_value = "chain")]
    pub(crate) pass_shape: Vec<PassShape>,
    /// Repetitions of each test, after one that does not count
    #[arg(short, long, value_name = "N", default_value_t = 5, value_parser = positive)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) repetitions: usize,
    /// CPU threads [default: one for each core]
    #[arg(short, long, value_name = "N", value_delimiter = ',', value_parser = thread_count)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) threads: Vec<usize>,
    /// Device to run on: auto, or one that `foretoken devices` lists
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    pub(crate) device: DeviceSpec,
    /// Activations into quantised weights
    #[arg(long, value_name = "TYPE", value_enum, default_value_t = ActivationsArg::Fast)]
    pub(crate) activations: ActivationsArg,
    /// Storage type of the KV cache
    #[arg(long, visible_alias = "kv-type", value_name = "TYPE", default_value = KvType::default().name())]
    #[arg(value_parser = kv_type())]
    pub(crate) cache_type: KvType,
    /// Prompt tokens of one pass, a multiple of 64 [default: what suits the device]
    #[arg(long, value_name = "N", value_parser = chunk)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) chunk: Option<usize>,
    /// Read the model into memory instead of mapping its file
    #[arg(long)]
    pub(crate) no_mmap: bool,
    /// Measure speculative decoding instead: whole requests on code, chat and prose, -n
    /// tokens each, plain and speculative side by side
    #[arg(long, conflicts_with_all = ["n_prompt", "n_depth", "pass_rows"])]
    pub(crate) spec: bool,
    #[command(flatten)]
    pub(crate) draft: DraftArgs,
    /// Format of the results
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = Format::Md)]
    output: Format,
    /// One JSON object a row, as --output json
    #[arg(long, conflicts_with = "output")]
    json: bool,
}

impl BenchArgs {
    /// Format of the results.
    pub(crate) fn format(&self) -> Format {
        if self.json { Format::Json } else { self.output }
    }
}

/// Parses the rows of a pass.
fn rows(s: &str) -> Result<usize, String> {
    let count = positive(s).ok().filter(|&n| n <= TreeRows::MAX);
    count.ok_or_else(|| format!("use a whole number from 1 to {}", TreeRows::MAX))
}

/// What the rows of a pass are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PassShape {
    // Each follows the one before.
    Chain,
    // As wide as eight candidates a position allow.
    Tree,
}

/// Formats of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    // A Markdown table.
    Md,
    // One JSON object a row.
    Json,
    // Comma-separated values.
    Csv,
}
