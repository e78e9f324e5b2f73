//! Readers that go away and users who lose patience.

use std::io::Read;
use std::process::{Child, Stdio};

use crate::support::command;

/// Starts a long answer and waits for its first words.
fn long_answer() -> Child {
    let args = ["generate", "def f(", "-n", "20000", "--ignore-eos"];
    let mut command = command(&args);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 8];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    child
}

fn stderr_of(child: &mut Child) -> String {
    let mut text = String::new();
    child.stderr.as_mut().unwrap().read_to_string(&mut text).unwrap();
    text
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let mut child = long_answer();
    drop(child.stdout.take());
    assert_eq!(stderr_of(&mut child), "");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn long_listings_into_a_closed_pipe_end_quietly() {
    for args in [&["completions", "bash"][..], &["inspect"], &["man"], &["--help"]] {
        let mut command = command(args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let said = stderr_of(&mut child);
        assert_eq!((said.as_str(), child.wait().unwrap().code()), ("", Some(0)), "{args:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_a_failure() {
    for args in [
        &["devices"][..],
        &["generate", "a", "-n", "4"],
        &["tokenize", "--json", "a"],
        &["--help"],
        &["bench", "--help"],
        &["--version"],
    ] {
        let full = std::fs::File::create("/dev/full").unwrap();
        let output = command(args).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.starts_with("error: stdout: ") && said.lines().count() == 1, "{said}");
    }
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_the_answer_and_still_reports() {
    let mut child = long_answer();
    let pid = child.id().to_string();
    let sent = std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap();
    assert!(sent.success());
    let mut rest = String::new();
    child.stdout.as_mut().unwrap().read_to_string(&mut rest).unwrap();
    let said = stderr_of(&mut child);
    assert!(said.contains("cancelled") && said.contains("tok/s"), "{said}");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
