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
mod synth;
mod tokenize;

use std::path::PathBuf;

use anyhow::Result;

use crate::args::Command;
use crate::load::in_model;
use crate::ui::Ui;

/// Runs a command.
///
/// # Errors
/// Whatever kept it from being done.
pub(crate) fn run(command: Command, ui: &Ui) -> Result<()> {
    match command {
        Command::Generate(args) => in_model(args.model.model.as_deref(), generate::run(&args, ui)),
        Command::Logits(args) => in_model(args.model.model.as_deref(), logits::run(&args, ui)),
        Command::Tokenize(args) => tokenize::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Perplexity(args) => {
            in_model(args.model.model.as_deref(), perplexity::run(&args, ui))
        }
        Command::Bench(args) => match args.model.as_slice() {
            // Of several it can not be told which.
            [_, _, ..] => bench::run(&args, ui),
            asked => in_model(asked.first().map(PathBuf::as_path), bench::run(&args, ui)),
        },
        Command::Synth(args) => synth::run(&args, ui),
        Command::Devices(args) => devices::run(args.json),
        Command::Doctor(args) => doctor::run(args.json),
        Command::Completions(args) => pages::completions(args.shell),
        Command::Man(args) => pages::man(&args),
    }
}
