//! The commands, one file each. A command reads its flags, does its work with the engine
//! and prints; a failure goes up to `main`.

mod bench;
mod devices;
mod doctor;
mod generate;
mod inspect;
mod logits;
mod pages;
mod perplexity;
mod plan;
mod speculation;
mod tokenize;

use anyhow::Result;

use crate::args::Command;
use crate::ui::Ui;

/// Runs a command.
///
/// # Errors
/// Whatever kept it from being done.
pub(crate) fn run(command: Command, ui: &Ui) -> Result<()> {
    match command {
        Command::Generate(args) => generate::run(&args, ui),
        Command::Logits(args) => logits::run(&args, ui),
        Command::Tokenize(args) => tokenize::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Perplexity(args) => perplexity::run(&args, ui),
        Command::Bench(args) => bench::run(&args, ui),
        Command::Devices(args) => devices::run(args.json),
        Command::Doctor(args) => doctor::run(args.json),
        Command::Completions(args) => pages::completions(args.shell),
        Command::Man(args) => pages::man(&args),
    }
}
