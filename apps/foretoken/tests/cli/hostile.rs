//! Model files that are broken, absent or for something else.

use std::fs;
use std::path::Path;

use foretoken::format::{GgufFile, GgufWriter, OpenOptions, Value};

use crate::support::{arg, nano, run};

/// Every command that opens a model fails with one line that names the file.
fn refused(path: &Path) -> String {
    let mut message = String::new();
    for command in ["generate", "logits", "tokenize", "inspect"] {
        let mut args = vec![command, "--model", arg(path)];
        if command != "inspect" {
            args.extend(["--prompt", "a"]);
        }
        message = run(&args).failure();
        assert!(message.contains(arg(path)), "{command}: {message}");
    }
    message
}

fn written(name: &str, bytes: &[u8]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    fs::write(&path, bytes).unwrap();
    refused(&path)
}

#[test]
fn what_is_not_a_model_is_refused() {
    assert!(written("empty.gguf", b"").contains("empty"));
    assert!(written("text.gguf", b"hello, world").contains("GGUF"));
    written("short.gguf", b"GG");
    let dir = tempfile::tempdir().unwrap();
    refused(dir.path());
    let path = dir.path().join("empty.safetensors");
    fs::write(&path, b"").unwrap();
    let message = run(&["generate", "a", "--model", arg(&path)]).failure();
    assert!(message.contains(arg(&path)), "{message}");
}

#[test]
fn damaged_headers_are_refused() {
    let model = fs::read(nano("nano-scorer-Q8_0.gguf")).unwrap();
    let damaged = |at: usize, bytes: &[u8]| {
        let mut copy = model[..64 << 10].to_vec();
        copy[at..at + bytes.len()].copy_from_slice(bytes);
        written("damaged.gguf", &copy)
    };
    assert!(damaged(4, &99u32.to_le_bytes()).contains("99"));
    // Counts of tensors and of metadata entries that no file can hold.
    damaged(8, &u64::MAX.to_le_bytes());
    damaged(16, &u64::MAX.to_le_bytes());
    // The length of the first key.
    damaged(24, &u64::MAX.to_le_bytes());
}

#[test]
fn truncation_anywhere_is_refused() {
    let model = fs::read(nano("nano-scorer-Q8_0.gguf")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cut.gguf");
    for keep in [10, 100, 10_000, 300_000, model.len() / 2, model.len() - 1] {
        fs::write(&path, &model[..keep]).unwrap();
        let message = run(&["inspect", arg(&path)]).failure();
        assert!(message.contains("cut.gguf"), "{keep}: {message}");
    }
    // Negative control: the whole file is fine.
    fs::write(&path, &model).unwrap();
    run(&["inspect", arg(&path)]).ok();
}

#[test]
fn absent_models_say_where_was_looked() {
    let message = run(&["generate", "a", "--model", "/no/such/model.gguf"]).failure();
    assert!(message.contains("/no/such/model.gguf"), "{message}");
    let message = run(&["generate", "a", "--model", "no-such-model"]).failure();
    assert!(message.contains("no-such-model") && message.contains("FORETOKEN_MODELS"), "{message}");
}

#[test]
fn architectures_that_can_not_run_are_refused_but_can_be_inspected() {
    let draft = nano("nano-dflash-Q8_0.gguf");
    let message = run(&["generate", "a", "--model", arg(&draft)]).failure();
    assert!(message.contains("dflash") && message.contains("qwen3"), "{message}");
    let report = run(&["inspect", "--json", arg(&draft)]).json();
    assert_eq!(report["architecture"], "dflash");
    assert!(report["plan"].is_null());
    assert!(report["plan_problem"].as_str().unwrap().contains("dflash"));
    assert_eq!(report["tensors"].as_array().unwrap().len(), 25);
    let settings = &report["draft"];
    assert_eq!((&settings["block"], &settings["mask_token"]), (&16.into(), &8187.into()));
    // The file counts these from 1.
    assert_eq!(settings["target_layers"], serde_json::json!([1, 3, 5]));
    let full = serde_json::json!({"window": null, "causal": false});
    assert_eq!(settings["layers"], serde_json::json!([full, full]));
    let text = run(&["inspect", arg(&draft)]).ok();
    assert!(text.contains("full, block bidirectional"), "{text}");
}

#[test]
fn names_with_control_characters_stay_on_one_line() {
    let message = run(&["generate", "a", "--model", "a\nb\u{1b}[31m"]).failure();
    assert!(message.contains("a\\nb\\u{1b}[31m"), "{message}");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a\nb.gguf");
    fs::write(&path, b"no model").unwrap();
    let message = run(&["generate", "a", "--model", arg(&path)]).failure();
    assert!(message.contains("a\\nb.gguf: not a GGUF file"), "{message}");
    fs::copy(nano("nano-scorer-Q8_0.gguf"), &path).unwrap();
    let text = run(&["inspect", arg(&path)]).ok();
    assert!(text.lines().next().unwrap().ends_with("a\\nb.gguf"), "{text}");
    // In JSON it is the name itself.
    assert_eq!(run(&["inspect", "--json", arg(&path)]).json()["file"], arg(&path));
}

#[test]
fn a_vocabulary_alone_serves_tokenize_and_says_so() {
    let whole = nano("nano-scorer-Q8_0.gguf");
    let source = GgufFile::open(&whole, &OpenOptions::default()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vocabulary.gguf");
    let mut writer = GgufWriter::new(&path);
    for (key, value) in source.metadata().iter() {
        // As converters write it.
        let value = if key == "qwen3.block_count" { &Value::U32(0) } else { value };
        writer.metadata(key, value.clone()).unwrap();
    }
    writer.begin(fs::File::create(&path).unwrap()).unwrap().finish().unwrap();
    let says = "the file holds only a vocabulary";
    for command in ["generate", "logits"] {
        let message = run(&[command, "--prompt", "a", "--model", arg(&path)]).failure();
        assert!(message.starts_with(&format!("{}: {says}", path.display())), "{message}");
        assert!(message.contains("foretoken tokenize"), "{message}");
    }
    let report = run(&["inspect", "--json", arg(&path)]).json();
    assert!(report["plan_problem"].as_str().unwrap().contains(says), "{report}");
    let ids = |path| run(&["tokenize", "--json", "def f():", "--model", arg(path)]).json();
    assert_eq!(ids(&path), ids(&whole));
}

#[test]
fn devices_that_are_not_here_are_refused() {
    let message = run(&["generate", "a", "--device", "nodriver:3"]).failure();
    assert!(message.contains("nodriver:3") && message.contains("cpu:0"), "{message}");
}
