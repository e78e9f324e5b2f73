//! `completions` and `man`: what packagers install beside the binary.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::args::{Cli, ManArgs};
use crate::failure::{shown, usage};
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
        let mut commands = std::iter::once(&command).chain(command.get_subcommands());
        return commands.try_for_each(|command| write_page(command, dir));
    }
    match &args.command {
        None => print(page(&command)?.as_bytes()),
        Some(name) => {
            let found = command.find_subcommand(name);
            let found = found.ok_or_else(|| usage(format!("there is no command '{name}'")))?;
            print(page(found)?.as_bytes())
        }
    }
}

fn write_page(command: &Command, dir: &Path) -> Result<()> {
    let path = dir.join(Man::new(command.clone()).get_filename());
    std::fs::write(&path, page(command)?).with_context(|| shown(&path))
}

/// A page as `clap_mangen` makes it, but for the text after the options: there it would
/// run the lines of the examples together.
fn page(command: &Command) -> Result<String> {
    let man = Man::new(command.clone()).source(concat!("foretoken ", env!("CARGO_PKG_VERSION")));
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(text) = command.get_after_help() {
        notes(&text.to_string()).to_writer(&mut page)?;
    }
    man.render_version_section(&mut page)?;
    // Each part brings these lines; once is enough.
    let preamble = Roff::new().render();
    let parts = String::from_utf8(page)?.replace(&preamble, "");
    Ok(preamble + &parts)
}

/// Prose is filled; indented lines stay as they are.
fn notes(text: &str) -> Roff {
    let mut roff = Roff::new();
    let (heading, text) = match text.strip_prefix("Examples:\n") {
        Some(rest) => ("EXAMPLES", rest),
        None => ("NOTES", text),
    };
    roff.control("SH", [heading]);
    let mut filling = true;
    for line in text.lines() {
        if filling == line.starts_with(' ') {
            roff.control(if filling { "nf" } else { "fi" }, []);
            filling = !filling;
        }
        if line.is_empty() {
            roff.control("PP", []);
        } else {
            roff.text([roman(line)]);
        }
    }
    if !filling {
        roff.control("fi", []);
    }
    roff
}

fn print(bytes: &[u8]) -> Result<()> {
    let mut out = stdout();
    out.write_all(bytes)?;
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_indented_lines_stay_unfilled() {
        let page = notes("Examples:\n  a -b\n  .c\nProse\nof two lines.\n\nMore.\n  d").to_roff();
        let expected = ".SH EXAMPLES\n.nf\n  a \\-b\n  .c\n.fi\nProse\nof two lines.\n.PP\nMore.\n\
                        .nf\n  d\n.fi\n";
        assert_eq!(page, expected);
        assert_eq!(notes("Prose.").to_roff(), ".SH NOTES\nProse.\n");
    }
}
