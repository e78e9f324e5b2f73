//! Help, completions and manual pages.

use crate::support::run;

const COMMANDS: [&str; 11] = [
    "generate",
    "logits",
    "tokenize",
    "inspect",
    "perplexity",
    "bench",
    "synth",
    "devices",
    "doctor",
    "completions",
    "man",
];

#[test]
fn every_help_text_fits_in_80_columns() {
    let fits = |args: &[&str]| {
        let help = run(args).ok();
        assert!(help.contains("Usage: foretoken"), "{args:?}");
        for line in help.lines() {
            assert!(line.chars().count() <= 80, "{args:?}: {line}");
        }
    };
    fits(&["--help"]);
    for command in COMMANDS {
        fits(&[command, "--help"]);
        fits(&[command, "-h"]);
    }
}

#[test]
fn the_overview_lists_every_command() {
    let help = run(&["--help"]).ok();
    for command in COMMANDS {
        assert!(help.contains(&format!("\n  {command} ")), "{command}");
    }
}

#[test]
fn the_version_is_that_of_the_package() {
    let version = format!("foretoken {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(run(&["--version"]).ok(), version);
}

#[test]
fn completions_know_commands_and_flags() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = run(&["completions", shell]).ok();
        assert!(script.contains("perplexity") && script.contains("prompt-file"), "{shell}");
    }
    run(&["completions", "no-such-shell"]).bad_usage();
}

#[test]
fn manual_pages_are_printed_or_written() {
    let page = run(&["man"]).ok();
    assert!(page.contains(".TH foretoken 1"), "{page}");
    let title =
        |name: &str| format!("\n.TH {name} 1  \"foretoken {}\" \n", env!("CARGO_PKG_VERSION"));
    assert!(page.contains(&title("foretoken")), "{page}");
    let generate = run(&["man", "generate"]).ok();
    assert!(generate.contains("ignore\\-eos"));
    assert!(generate.contains(&title("foretoken-generate")), "{generate}");
    let examples = "\n.SH EXAMPLES\n.nf\n  foretoken generate \"def fibonacci(n):\"\n";
    assert!(generate.contains(examples), "{generate}");
    assert!(run(&["man", "no-such-command"]).bad_usage().contains("no-such-command"));
    let dir = tempfile::tempdir().unwrap();
    run(&["man", "--dir", dir.path().to_str().unwrap()]).ok();
    for command in COMMANDS {
        let page = dir.path().join(format!("foretoken-{command}.1"));
        assert_eq!(std::fs::read_to_string(page).unwrap(), run(&["man", command]).ok());
    }
    assert_eq!(std::fs::read_to_string(dir.path().join("foretoken.1")).unwrap(), page);
    run(&["man", "--dir", "/no/such/folder"]).failure();
}
