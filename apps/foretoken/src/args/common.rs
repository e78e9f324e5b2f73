//! Flags that several commands share.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use foretoken::cache::KvType;
use foretoken::device::{Activations, DeviceSpec};

use super::parse::{bytes, positive};
use crate::drivers::DriverOptions;
use crate::load::kv_type_names;

/// Which model.
#[derive(Debug, Args)]
pub(crate) struct ModelArgs {
    /// GGUF file, safetensors folder, or a name under the model path
    #[arg(short, long, value_name = "MODEL", help_heading = "Model and device")]
    pub(crate) model: Option<PathBuf>,
    /// Read the model into memory instead of mapping its file
    #[arg(long, help_heading = "Model and device")]
    pub(crate) no_mmap: bool,
}

/// Where to run.
#[derive(Debug, Args)]
pub(crate) struct DeviceArgs {
    /// Device to run on: auto, or one that `foretoken devices` lists
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    #[arg(help_heading = "Model and device")]
    pub(crate) device: DeviceSpec,
    /// CPU threads [default: one for each core]
    #[arg(short, long, value_name = "N", value_parser = thread_count)]
    #[arg(help_heading = "Model and device", allow_negative_numbers = true)]
    pub(crate) threads: Option<usize>,
    /// Device memory to reserve at most, such as 800MiB or 24GiB [default: all there is]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    #[arg(help_heading = "Model and device", allow_negative_numbers = true)]
    pub(crate) device_memory: Option<u64>,
}

impl DeviceArgs {
    /// Settings of the drivers.
    pub(crate) fn driver_options(&self) -> DriverOptions {
        DriverOptions { threads: self.threads, memory: self.device_memory }
    }
}

/// Parses a number of threads.
pub(super) fn thread_count(s: &str) -> Result<usize, String> {
    let max = foretoken_cpu::CpuDriver::MAX_THREADS;
    let count = s.parse().ok().filter(|n| (1..=max).contains(n));
    count.ok_or_else(|| format!("use a number from 1 to {max}"))
}

/// Parses the tokens of a pass; the engine bounds them from above.
pub(super) fn chunk(s: &str) -> Result<usize, String> {
    let count = s.parse().ok().filter(|n: &usize| *n > 0 && n.is_multiple_of(64));
    count.ok_or_else(|| "use a multiple of 64".to_owned())
}

/// Parser of cache types, with their names for help and completion.
pub(super) fn kv_type() -> impl TypedValueParser<Value = KvType> {
    PossibleValuesParser::new(kv_type_names()).try_map(|name| name.parse::<KvType>())
}

/// How activations enter quantised weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ActivationsArg {
    // The device's fast path.
    Fast,
    // 32-bit floats: the reference.
    F32,
}

impl ActivationsArg {
    /// As typed.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Fast => "fast",
            Self::F32 => "f32",
        }
    }
}

impl From<ActivationsArg> for Activations {
    fn from(arg: ActivationsArg) -> Self {
        match arg {
            ActivationsArg::Fast => Self::Fast,
            ActivationsArg::F32 => Self::F32,
        }
    }
}

/// How a sequence is held and run.
#[derive(Debug, Args)]
pub(crate) struct SessionArgs {
    /// Context in tokens, prompt and answer together [default: the model's own, at
    /// most 32768 unless the prompt needs more]
    #[arg(short, long, value_name = "N", value_parser = positive)]
    #[arg(help_heading = "Precision and memory", allow_negative_numbers = true)]
    pub(crate) context: Option<usize>,
    /// Activations into quantised weights
    #[arg(long, value_name = "TYPE", value_enum, default_value_t = ActivationsArg::Fast)]
    #[arg(help_heading = "Precision and memory")]
    pub(crate) activations: ActivationsArg,
    /// Storage type of the KV cache
    #[arg(long, visible_alias = "kv-type", value_name = "TYPE", default_value = KvType::default().name())]
    #[arg(value_parser = kv_type(), help_heading = "Precision and memory")]
    pub(crate) cache_type: KvType,
    /// Prompt tokens of one pass, a multiple of 64 [default: what suits the device]
    #[arg(long, value_name = "N", value_parser = chunk)]
    #[arg(help_heading = "Precision and memory", allow_negative_numbers = true)]
    pub(crate) chunk: Option<usize>,
}

/// A text, from one place.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(crate) struct PromptArgs {
    /// The text; without it, --prompt-file or stdin
    #[arg(value_name = "PROMPT")]
    pub(crate) text: Option<OsString>,
    /// The text, as a flag
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) prompt: Option<OsString>,
    /// File with the text, taken exactly as it is; - is stdin
    #[arg(short = 'f', long, value_name = "FILE")]
    pub(crate) prompt_file: Option<PathBuf>,
}
