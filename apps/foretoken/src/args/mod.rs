//! What can be typed: the flags of every command, each set in a file of its own.

mod bench;
mod common;
mod generate;
mod other;
mod parse;
mod speculation;
mod synth;

use clap::{ArgAction, Parser, Subcommand};

pub(crate) use bench::{BenchArgs, Format, PassShape};
pub(crate) use common::{DeviceArgs, ModelArgs, PromptArgs, SessionArgs};
pub(crate) use generate::GenerateArgs;
pub(crate) use other::{
    CompletionsArgs, InspectArgs, JsonArgs, LogitsArgs, ManArgs, PerplexityArgs, TokenizeArgs,
};
pub(crate) use parse::{IdList, LogitBias};
pub(crate) use speculation::{DraftArgs, DraftSource};
pub(crate) use synth::SynthArgs;

const AFTER_HELP: &str = "\
A model is a file or folder, or a name that is looked up in the folders of
FORETOKEN_MODELS (separated as in PATH), beside the executable, and in the
workspace. Without --model it is nano-code-Q4_K_M.gguf, a small model of Python
code that comes with Foretoken.

Exit codes: 0 done, 1 failed (one line on stderr), 2 bad usage.";

/// Local LLM inference: text from a model file, on the devices of this machine
#[derive(Debug, Parser)]
#[command(name = "foretoken", version, max_term_width = 80, after_help = AFTER_HELP)]
#[command(propagate_version = true, disable_help_subcommand = true)]
pub(crate) struct Cli {
    /// Tell more on stderr, the memory plan first; repeat for more
    #[arg(short, long, global = true, action = ArgAction::Count, conflicts_with = "quiet")]
    #[arg(help_heading = "Messages")]
    pub(crate) verbose: u8,
    /// Tell nothing on stderr but errors
    #[arg(short, long, global = true, help_heading = "Messages")]
    pub(crate) quiet: bool,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Generate text after a prompt
    Generate(GenerateArgs),
    /// Print the most likely next tokens at every position of a prompt
    Logits(LogitsArgs),
    /// Print the tokens of a text
    Tokenize(TokenizeArgs),
    /// Print what is in a model file, and the memory it would take
    Inspect(InspectArgs),
    /// Measure how well a model predicts a text
    Perplexity(PerplexityArgs),
    /// Measure speed: prompt processing (pp) and text generation (tg)
    Bench(BenchArgs),
    /// Write a model of random weights, to measure speed and memory with
    Synth(SynthArgs),
    /// List the devices that can run a model
    Devices(JsonArgs),
    /// Report on this build and this machine
    Doctor(JsonArgs),
    /// Print a script that completes commands in a shell
    Completions(CompletionsArgs),
    /// Print the manual page
    Man(ManArgs),
}

impl Command {
    /// Whether stdout is to be JSON.
    pub(crate) fn is_json(&self) -> bool {
        match self {
            Self::Generate(args) => args.json,
            Self::Logits(args) => args.json,
            Self::Tokenize(args) => args.json,
            Self::Inspect(args) => args.json,
            Self::Perplexity(args) => args.json,
            Self::Bench(args) => args.format() == Format::Json,
            Self::Synth(args) => args.json,
            Self::Devices(args) | Self::Doctor(args) => args.json,
            Self::Completions(_) | Self::Man(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_flags_are_consistent() {
        Cli::command().debug_assert();
    }
}
