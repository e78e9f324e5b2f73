//! Flags of the smaller commands.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

use super::parse::positive;
use super::{DeviceArgs, IdList, ModelArgs, PromptArgs, SessionArgs};

const CHUNK_HELP: &str = "Tokens of a chunk of the text; its second half is scored";

/// Print the most likely next tokens.
#[derive(Debug, Args)]
pub(crate) struct LogitsArgs {
    #[command(flatten)]
    pub(crate) prompt: PromptArgs,
    /// Prompt as token ids: 1,2,3
    #[arg(long, value_name = "IDS", conflicts_with_all = ["text", "prompt", "prompt_file"])]
    #[arg(conflicts_with = "no_special", allow_hyphen_values = true)]
    pub(crate) ids: Option<IdList>,
    /// Take text that spells special tokens as plain text
    #[arg(long)]
    pub(crate) no_special: bool,
    /// How many tokens to print at each position
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = positive)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) top: usize,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    #[command(flatten)]
    pub(crate) session: SessionArgs,
}

/// Print the tokens of a text.
#[derive(Debug, Args)]
pub(crate) struct TokenizeArgs {
    #[command(flatten)]
    pub(crate) prompt: PromptArgs,
    /// Print only the ids: 1,2,3
    #[arg(long)]
    pub(crate) ids: bool,
    /// Go the other way: print the text of these ids
    #[arg(long, value_name = "IDS", conflicts_with_all = ["text", "prompt", "prompt_file"])]
    #[arg(conflicts_with_all = ["ids", "no_special"], allow_hyphen_values = true)]
    pub(crate) decode: Option<IdList>,
    /// Take text that spells special tokens as plain text
    #[arg(long)]
    pub(crate) no_special: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
}

/// Print what is in a model file.
#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// The model, as for --model
    #[arg(value_name = "FILE", conflicts_with = "model")]
    pub(crate) file: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    #[command(flatten)]
    pub(crate) session: SessionArgs,
}

/// Measure how well a model predicts a text.
#[derive(Debug, Args)]
#[command(mut_arg("context", |context| context.default_value("512").help(CHUNK_HELP)))]
pub(crate) struct PerplexityArgs {
    /// The text, without one line break at its end; - is stdin
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    #[command(flatten)]
    pub(crate) session: SessionArgs,
}

/// Flags of commands that only print.
#[derive(Debug, Args)]
pub(crate) struct JsonArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Print a completion script.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: Shell,
}

/// Print the manual page.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Command whose page to print [default: the main page]
    pub(crate) command: Option<String>,
    /// Write all pages into this folder instead
    #[arg(long, value_name = "FOLDER", conflicts_with = "command")]
    pub(crate) dir: Option<PathBuf>,
}
