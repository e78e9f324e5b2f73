//! Where prompts come from, and that they arrive exactly.

use std::fs;

use serde_json::json;

use crate::support::{arg, ids_of, part_of_a_character, run, run_with_stdin};

#[test]
fn stdin_is_taken_to_its_end_and_exactly() {
    let plain = ids_of(b"def f():");
    let with_newline = ids_of(b"def f():\n");
    assert_ne!(plain, with_newline);
    assert_ne!(with_newline, ids_of(b"def f():\r\n"));
    assert_eq!(run(&["tokenize", "--json", "def f():"]).json()["ids"], plain);
    assert_eq!(run(&["tokenize", "--json", "def f():\n"]).json()["ids"], with_newline);
    for name in ["-", "/dev/stdin"] {
        let ran = run_with_stdin(&["tokenize", "--json", "--prompt-file", name], b"def f():\n");
        assert_eq!(ran.json()["ids"], with_newline, "{name}");
    }
}

#[test]
fn files_and_flags_give_the_same_ids() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("prompt");
    fs::write(&path, "def f():\n").unwrap();
    let expected = ids_of(b"def f():\n");
    let from_file = run(&["tokenize", "--json", "--prompt-file", arg(&path)]);
    assert_eq!(from_file.json()["ids"], expected);
    let from_flag = run(&["tokenize", "--json", "--prompt", "def f():\n"]);
    assert_eq!(from_flag.json()["ids"], expected);
    // A prompt given as a flag may begin with a dash.
    assert_ne!(run(&["tokenize", "--json", "--prompt", "-x"]).json()["ids"], json!([]));
}

#[test]
fn tokenize_prints_ids_pieces_and_text() {
    let ids = run(&["tokenize", "--ids", "def f():\n    return 'é'"]).ok();
    let text = run(&["tokenize", "--decode", ids.trim_end()]).ok();
    assert_eq!(text, "def f():\n    return 'é'");
    let report = run(&["tokenize", "--json", "--decode", ids.trim_end()]).json();
    assert_eq!(report["text"], "def f():\n    return 'é'");
    let table = run(&["tokenize", "def f():\n"]).ok();
    assert!(table.contains("\"def\"") && table.contains("\\n"), "{table}");
    assert_eq!(run(&["tokenize", "--json", ""]).json()["ids"], json!([]));
    let part = part_of_a_character().to_string();
    let table = run(&["tokenize", "日"]).ok();
    assert!(table.contains(&format!("\n{part}  \"\\xe6\"\n")), "{table}");
    let lossy = run(&["tokenize", "--json", "--decode", &part]).json();
    assert_eq!((&lossy["text"], &lossy["bytes"]), (&"\u{fffd}".into(), &json!([0xe6])));
    assert!(report.get("bytes").is_none(), "{report}");
    let message = run(&["tokenize", "--decode", "99999999"]).failure();
    assert!(message.contains("99999999"), "{message}");
}

#[test]
fn special_tokens_are_recognised_unless_told_not_to() {
    let special = run(&["tokenize", "--json", "<|im_end|>"]).json();
    assert_eq!(special["ids"].as_array().unwrap().len(), 1);
    let plain = run(&["tokenize", "--json", "--no-special", "<|im_end|>"]).json();
    assert!(plain["ids"].as_array().unwrap().len() > 1);
}

#[test]
fn empty_prompts_are_refused() {
    for command in ["generate", "logits"] {
        let by_flag = run(&[command, "--prompt", ""]).failure();
        let by_stdin = run_with_stdin(&[command], b"").failure();
        let by_ids = run(&[command, "--ids", ""]).failure();
        for message in [by_flag, by_stdin, by_ids] {
            assert!(message.contains("the prompt is empty"), "{message}");
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("nothing");
    fs::write(&path, "").unwrap();
    let message = run(&["generate", "--prompt-file", arg(&path)]).failure();
    assert!(message.contains(arg(&path)) && message.contains("empty"), "{message}");
}

#[test]
fn bytes_that_are_not_utf8_are_placed() {
    for command in ["generate", "logits", "tokenize"] {
        let message = run_with_stdin(&[command], b"abc\xffdef").failure();
        assert_eq!(message, "stdin: the prompt is not valid UTF-8 (byte 3)");
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("latin1");
    fs::write(&path, b"caf\xe9").unwrap();
    let message = run(&["generate", "--prompt-file", arg(&path)]).failure();
    assert_eq!(message, format!("{}: the prompt is not valid UTF-8 (byte 3)", path.display()));
    let message = run(&["perplexity", "--file", arg(&path)]).failure();
    assert_eq!(message, format!("{}: the text is not valid UTF-8 (byte 3)", path.display()));
}

#[cfg(unix)]
#[test]
fn arguments_that_are_not_utf8_are_placed() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let args = [OsStr::new("generate"), OsStr::from_bytes(b"ab\xff")];
    assert_eq!(run(&args).failure(), "the prompt is not valid UTF-8 (byte 2)");
}

#[test]
fn files_that_can_not_be_read_are_named() {
    let message = run(&["generate", "--prompt-file", "/no/such/file"]).failure();
    assert!(message.starts_with("/no/such/file: "), "{message}");
    let message = run(&["perplexity", "--file", "/no/such/file"]).failure();
    assert!(message.starts_with("/no/such/file: "), "{message}");
    let dir = tempfile::tempdir().unwrap();
    run(&["generate", "--prompt-file", arg(dir.path())]).failure();
    // Line breaks in names break no messages.
    for args in [["generate", "--prompt-file"], ["perplexity", "--file"]] {
        let message = run(&[&args[..], &["/no/such\nfile"]].concat()).failure();
        assert!(message.starts_with("/no/such\\nfile: "), "{message}");
    }
}
