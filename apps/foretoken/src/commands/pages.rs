//! `completions` and `man`: what packagers install beside the binary.

use std::io::Write;

use anyhow::{Context, Result};
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::args::{Cli, ManArgs};
use crate::failure::usage;
use crate::output::stdout;

/// Prints the completion script of a shell.
pub(super) fn completions(shell: Shell) -> Result<()> {
    // Rendered first: the generator panics when its writer fails.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "foretoken", &mut script);
    print(&script)
}

/// Prints a manual page, or writes all of them.
pub(super) fn man(args: &ManArgs) -> Result<()> {
    let mut command = Cli::command();
    command.build();
    if let Some(dir) = &args.dir {
        return clap_mangen::generate_to(command, dir).with_context(|| dir.display().to_string());
    }
    let page = match &args.command {
        None => command,
        Some(name) => page_of(&command, name)?,
    };
    let mut roff = Vec::new();
    Man::new(page).render(&mut roff)?;
    print(&roff)
}

fn page_of(command: &Command, name: &str) -> Result<Command> {
    let found = command.find_subcommand(name);
    found.cloned().ok_or_else(|| usage(format!("there is no command '{name}'")))
}

fn print(bytes: &[u8]) -> Result<()> {
    let mut out = stdout();
    out.write_all(bytes)?;
    Ok(out.flush()?)
}
