//! Models that open and then turn out to be hostile, and the small files beside them.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use foretoken::format::Value as Setting;

use crate::support::{Changes, arg, changed, command, nano, run};

const CODE: &str = "nano-code-Q4_K_M.gguf";

/// A file with that model and those changes.
fn made(changes: &Changes<'_>) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("changed.gguf");
    changed(CODE, &path, changes);
    let path = arg(&path).to_owned();
    (dir, path)
}

#[test]
fn weights_that_are_not_numbers_name_the_model() {
    let (_dir, path) = made(&Changes { broken: "blk.0.ffn_down.weight", ..Changes::default() });
    for args in
        [&["generate", "a", "-n", "2"][..], &["logits", "a"], &["bench", "-n", "2", "-p", "2"]]
    {
        let args = [args, &["--model", &path]].concat();
        let message = run(&args).failure();
        assert!(message.starts_with(&path) && message.contains("non-finite"), "{message}");
        assert_eq!(message.matches(&path).count(), 1, "{message}");
    }
    // Negative control: the model as it was.
    run(&["generate", "a", "-n", "2", "--model", arg(&nano(CODE))]).ok();
}

#[test]
fn operations_that_the_device_refuses_name_the_model() {
    let (_dir, path) = made(&Changes {
        settings: &[("qwen35.ssm.conv_kernel", Setting::U32(17))],
        widened: Some(("ssm_conv1d.weight", 17)),
        ..Changes::default()
    });
    for args in [["generate", "a"], ["logits", "a"]] {
        let message = run(&[&args[..], &["--model", &path]].concat()).failure();
        assert!(message.starts_with(&path) && message.contains("taps"), "{message}");
        assert_eq!(message.matches(&path).count(), 1, "{message}");
    }
}

#[test]
fn long_names_are_cut() {
    let long = "x\n".repeat(5 << 20);
    let (_dir, path) = made(&Changes {
        settings: &[("general.architecture", Setting::string(&long))],
        ..Changes::default()
    });
    let message = run(&["generate", "a", "--model", &path]).failure();
    assert!(message.starts_with(&path) && message.len() < 1000, "{}", message.len());

    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("m");
    fs::create_dir(&folder).unwrap();
    let fails = || {
        let message = run(&["generate", "a", "--model", arg(&folder)]).failure();
        assert!(message.starts_with(arg(&folder)) && message.len() < 1500, "{}", message.len());
        message
    };
    let index = folder.join("model.safetensors.index.json");
    fs::write(&index, format!(r#"{{"weight_map":{{"a":"{}"}}}}"#, "q".repeat(4 << 20))).unwrap();
    assert!(fails().contains("index.json"));
    let shard = "q".repeat(200);
    fs::write(&index, format!(r#"{{"weight_map":{{"a":"{shard}"}}}}"#)).unwrap();
    assert!(fails().contains("missing"));
    fs::remove_file(&index).unwrap();
    let header = r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
    let mut weights = (header.len() as u64).to_le_bytes().to_vec();
    weights.extend_from_slice(header.as_bytes());
    weights.extend_from_slice(&[0; 4]);
    fs::write(folder.join("model.safetensors"), weights).unwrap();
    let config = folder.join("config.json");
    fs::write(&config, format!(r#"{{"model_type":"{}"}}"#, "q\\n".repeat(200_000))).unwrap();
    assert!(fails().contains("architecture"));
    let value = vec!["1"; 300_000].join(",");
    fs::write(&config, format!(r#"{{"model_type":"qwen3","hidden_size":[{value}]}}"#)).unwrap();
    assert!(fails().contains("hidden_size"));
    fs::write(&config, format!(r#"{{"model_type":"{}"}}"#, "q".repeat(1 << 20))).unwrap();
    assert!(fails().contains("limit"));
}

#[test]
fn inspect_escapes_what_it_lists() {
    let odd = "a\u{1b}[31m\nb\u{202e}";
    let (_dir, path) = made(&Changes {
        settings: &[
            (odd, Setting::string(odd)),
            ("general.architecture", Setting::string(odd)),
            ("tokenizer.chat_template", Setting::string(odd)),
        ],
        renamed: Some(("output_norm.weight", odd)),
        ..Changes::default()
    });
    let shown = "a\\u{1b}[31m\\nb\\u{202e}";
    let text = run(&["inspect", &path]).ok();
    assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text}");
    assert!(text.contains(&format!("gguf, architecture {shown}\n")), "{text}");
    let starts = text.lines().filter(|line| line.starts_with(shown)).count();
    assert_eq!(starts, 2, "a key and a tensor: {text}");
    // JSON says it as it is, in its own escapes.
    let report = run(&["inspect", "--json", &path]).json();
    assert_eq!(report["metadata"][odd], odd);
}

/// A pipe that nobody writes to, where `mkfifo` can make one.
fn pipe(at: &Path) {
    let made = std::process::Command::new("mkfifo").arg(at).status().unwrap();
    assert!(made.success());
}

#[cfg(unix)]
#[test]
fn files_that_never_end_are_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokenizer.json");
    let refused = |asked: &Path| {
        let start = Instant::now();
        let message = run(&["tokenize", "a", "--model", arg(asked)]).failure();
        assert!(message.starts_with(arg(&path)) && message.contains("regular"), "{message}");
        assert!(start.elapsed() < Duration::from_secs(60));
    };
    pipe(&path);
    refused(dir.path());
    refused(&path);
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
    refused(dir.path());
    fs::remove_file(&path).unwrap();
    fs::write(&path, "{}").unwrap();
    let message = run(&["tokenize", "a", "--model", arg(dir.path())]).failure();
    assert_eq!(message.matches("tokenizer.json").count(), 1, "{message}");
}

#[test]
fn templates_that_ask_too_much_end_in_one_line() {
    let levels = "{% set a = [a, a] %}{% set b = [b, b] %}".repeat(40);
    for (template, want) in [
        ("{{ '{:4000000000}'.format(1) }}", "width"),
        ("{{ '{:18446744073709551615}'.format(1) }}", "width"),
        (&format!("{{% set a = [1] %}}{{% set b = [1] %}}{levels}{{{{ a == b }}}}"), "too much"),
    ] {
        let (_dir, path) = made(&Changes {
            settings: &[("tokenizer.chat_template", Setting::string(template))],
            ..Changes::default()
        });
        let start = Instant::now();
        let message = run(&["generate", "--chat", "a", "--model", &path]).failure();
        assert!(message.starts_with(&path) && message.contains(want), "{message}");
        assert!(start.elapsed() < Duration::from_secs(60));
    }
}

/// Standard error that cannot be written is no reason to stop, nor to panic.
#[cfg(target_os = "linux")]
#[test]
fn warnings_that_cannot_be_written_are_let_go() {
    let args = ["generate", "a", "-n", "2", "--top-k", "5"];
    for verbose in [&[][..], &["-v"]] {
        let full = fs::File::create("/dev/full").unwrap();
        let output = command(&[&args[..], verbose].concat()).stderr(full).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let mut child = command(&[&args[..], verbose].concat())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stderr.take());
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
}

/// A warning comes with what was done, and not before an error.
#[test]
fn warnings_wait_for_success() {
    let args = ["generate", "a", "-n", "2", "--top-k", "5"];
    let ran = run(&args);
    assert!(ran.code == Some(0) && ran.stderr.contains("warning: "), "{ran:?}");
    let failing = [&args[..], &["--context", "1"]].concat();
    let message = run(&failing).failure();
    assert!(!message.contains("filters"), "{message}");
    // With -v the log is not held back.
    let ran = run(&[&failing[..], &["-v"]].concat());
    assert!(ran.stderr.contains("warning: ") && ran.stderr.contains("error: "), "{ran:?}");
}
