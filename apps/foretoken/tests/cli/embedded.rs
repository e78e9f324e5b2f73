//! A build with its models inside, far from any file of them.

use std::process::Command;

use crate::support::nano;

#[test]
fn models_inside_the_binary_are_used_where_no_file_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let binary = dir.path().join("foretoken");
    std::fs::copy(env!("CARGO_BIN_EXE_foretoken"), &binary).unwrap();
    let run = |args: &[&str]| {
        let mut command = Command::new(&binary);
        command.args(args).current_dir(dir.path());
        // Cargo sets the second for the sake of this very test.
        command.env_remove("FORETOKEN_MODELS").env_remove("CARGO_MANIFEST_DIR");
        command.output().unwrap()
    };
    let output = run(&["generate", "def f(", "-n", "4", "--ignore-eos", "--json"]);
    assert!(output.status.success(), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["ids"].as_array().unwrap().len(), 4);
    assert!(run(&["tokenize", "a", "-m", "nano-scorer-Q8_0"]).status.success());
    assert!(run(&["inspect", "-m", "nano-dflash-Q8_0.gguf"]).status.success());
    // Negative control: the folder of the build, which has this file, is not looked into.
    assert!(nano("README.md").is_file());
    let output = run(&["inspect", "-m", "README.md"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("no model of that name"), "{said}");
}
