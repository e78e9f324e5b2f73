//! Flags of `generate`.

use clap::Args;
use foretoken::sample::SamplingParams;
use foretoken::speculate::SpecMode;

use super::parse::{token_id, whole};
use super::speculation::mode;
use super::{DeviceArgs, DraftArgs, IdList, LogitBias, ModelArgs, PromptArgs, SessionArgs};

const AFTER_HELP: &str = "\
Examples:
  foretoken generate \"def fibonacci(n):\"
  foretoken generate --chat \"What does functools.partial do?\" -n 64
  git diff | foretoken generate -m model.gguf --temperature 0.7 --seed 1
A line break in a stop string is typed as $'\\n' in most shells.";

/// Generate text after a prompt.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct GenerateArgs {
    #[command(flatten)]
    pub(crate) prompt: PromptArgs,
    /// Prompt as token ids: 1,2,3
    #[arg(long, value_name = "IDS", conflicts_with_all = ["text", "prompt", "prompt_file"])]
    #[arg(conflicts_with_all = ["chat", "no_special"], allow_hyphen_values = true)]
    pub(crate) ids: Option<IdList>,
    /// Put the prompt into the model's chat template as the user's message
    #[arg(long)]
    pub(crate) chat: bool,
    /// System message that goes before it
    #[arg(long, value_name = "TEXT", requires = "chat")]
    pub(crate) system: Option<String>,
    /// Take text that spells special tokens as plain text
    #[arg(long, conflicts_with = "chat")]
    pub(crate) no_special: bool,
    /// Most tokens to generate
    #[arg(short = 'n', long, value_name = "N", default_value_t = 256)]
    #[arg(value_parser = whole::<usize>, allow_negative_numbers = true)]
    pub(crate) max_tokens: usize,
    /// Stop before this text; may be repeated
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) stop: Vec<String>,
    /// Stop before this token; may be repeated
    #[arg(long, value_name = "ID", value_parser = token_id, allow_negative_numbers = true)]
    pub(crate) stop_token: Vec<u32>,
    /// Go on past the model's end tokens
    #[arg(long)]
    pub(crate) ignore_eos: bool,
    /// Print one JSON object at the end instead of streaming text
    #[arg(long)]
    pub(crate) json: bool,
    /// With --json: log-probabilities of each token and of the N best
    #[arg(long, value_name = "N", requires = "json")]
    #[arg(value_parser = whole::<usize>, allow_negative_numbers = true)]
    pub(crate) logprobs: Option<usize>,
    /// Draft tokens and verify them together; the answer is the same in every mode. auto
    /// takes what pays, by times of steps measured once and kept in FORETOKEN_CACHE or
    /// the user's cache folder
    #[arg(long, value_name = "MODE", default_value = "auto", value_parser = mode())]
    #[arg(help_heading = "Speculative decoding")]
    pub(crate) spec: SpecMode,
    #[command(flatten)]
    pub(crate) draft: DraftArgs,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    #[command(flatten)]
    pub(crate) session: SessionArgs,
}

/// How the next token is chosen.
#[derive(Debug, Args)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct SamplingArgs {
    /// Randomness; 0 takes the most likely token
    #[arg(long, value_name = "T", default_value_t = 0.0, allow_hyphen_values = true)]
    temperature: f32,
    /// Keep this many of the most likely tokens; 0 keeps all
    #[arg(long, value_name = "N", default_value_t = 0)]
    #[arg(value_parser = whole::<u32>, allow_negative_numbers = true)]
    top_k: u32,
    /// Keep the most likely tokens up to this probability; 1 keeps all
    #[arg(long, value_name = "P", default_value_t = 1.0, allow_hyphen_values = true)]
    top_p: f32,
    /// Keep tokens this likely, as a share of the most likely; 0 keeps all
    #[arg(long, value_name = "P", default_value_t = 0.0, allow_hyphen_values = true)]
    min_p: f32,
    /// Divide logits of tokens already there; 1 is off
    #[arg(long, value_name = "X", default_value_t = 1.0, allow_hyphen_values = true)]
    repetition_penalty: f32,
    /// Lower logits for each time a token occurred; 0 is off
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_hyphen_values = true)]
    frequency_penalty: f32,
    /// Lower logits of tokens that occurred; 0 is off
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_hyphen_values = true)]
    presence_penalty: f32,
    /// Tokens that the penalties look back at; -1 is all
    #[arg(long, value_name = "N", default_value_t = 64, allow_hyphen_values = true)]
    penalty_last_n: i32,
    /// Add BIAS to the logit of a token; may be repeated
    #[arg(long, value_name = "ID=BIAS", allow_hyphen_values = true)]
    logit_bias: Vec<LogitBias>,
    /// Same seed, same answer
    #[arg(long, value_name = "N", default_value_t = 0)]
    #[arg(value_parser = whole::<u64>, allow_negative_numbers = true)]
    seed: u64,
}

impl SamplingArgs {
    /// As the engine wants them.
    pub(crate) fn params(&self) -> SamplingParams {
        SamplingParams {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty,
            frequency_penalty: self.frequency_penalty,
            presence_penalty: self.presence_penalty,
            penalty_last_n: self.penalty_last_n,
            logit_bias: self.logit_bias.iter().map(|b| (b.id, b.bias)).collect(),
            seed: self.seed,
        }
    }

    /// Whether filters are set that a temperature of 0 leaves without effect.
    pub(crate) fn has_idle_filters(&self) -> bool {
        let filters = self.top_k != 0 || self.top_p != 1.0 || self.min_p != 0.0;
        self.temperature == 0.0 && filters
    }
}
