//! Foretoken on the command line.
//!
//! `args` says what can be typed, `commands` does it, one file each; what they share
//! lies beside them: finding models (`models`), choosing drivers (`drivers`), loading
//! (`load`), reading prompts (`prompt`), and talking to the user (`output`, `ui`).

mod args;
mod chat;
mod commands;
mod drafts;
mod drivers;
mod failure;
mod interrupt;
mod load;
mod models;
mod output;
mod prompt;
mod synth;
mod ui;

use std::process::ExitCode;

use clap::Parser;

use crate::args::Cli;
use crate::ui::Ui;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return failure::of_parsing(&error),
    };
    let ui = Ui::new(&cli);
    match commands::run(cli.command, &ui) {
        Ok(()) => {
            ui.release();
            ExitCode::SUCCESS
        }
        Err(error) => failure::of_running(&error),
    }
}
