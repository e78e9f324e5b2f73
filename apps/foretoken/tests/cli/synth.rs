//! `synth`: models of random weights.

use std::fs;
use std::path::Path;

use foretoken::format::{GgufFile, OpenOptions, TensorSource};
use foretoken::model::ModelFile;
use foretoken::speculate::dflash::DflashFile;
use foretoken::tensor::DType;

use crate::support::{Ran, arg, nano, run};

fn synth(preset: &str, to: &Path, more: &[&str]) -> Ran {
    let args = ["synth", "--preset", preset, "--out", arg(to), "--json"];
    run(&[&args[..], more].concat())
}

#[test]
fn a_model_is_written_and_runs_with_its_draft() {
    let dir = tempfile::tempdir().unwrap();
    let (model, draft) = (dir.path().join("m.gguf"), dir.path().join("d.gguf"));
    let said = synth("nano", &model, &["--seed", "5"]).json();
    assert_eq!(said["bytes"], fs::metadata(&model).unwrap().len());
    assert_eq!(said["tensors"], 108);
    assert_eq!(said["path"], arg(&model));
    assert_eq!((&said["preset"], &said["seed"]), (&"nano".into(), &5.into()));
    assert!(said["seconds"].as_f64().unwrap() > 0.0);
    synth("dflash-nano", &draft, &[]).json();

    let prompt = ["--model", arg(&model), "--prompt", "the tone of the text"];
    let logits = run(&[&["logits", "--top", "3", "--json"][..], &prompt].concat()).json();
    for position in logits["positions"].as_array().unwrap() {
        let top = position["top"].as_array().unwrap();
        let logprobs: Vec<f64> = top.iter().map(|t| t["logprob"].as_f64().unwrap()).collect();
        assert!(logprobs.iter().all(|x| x.is_finite() && *x < 0.0), "{logprobs:?}");
        // Spread: neither one token alone nor all alike (8192 alike would have -9.01).
        assert!((-8.0..-0.01).contains(&logprobs[0]), "{logprobs:?}");
    }
    let generate =
        [&["generate", "-n", "16", "--ignore-eos", "--json", "--quiet"][..], &prompt].concat();
    let plain = run(&[&generate[..], &["--spec", "off"]].concat()).json();
    let tree = ["--spec", "tree", "--draft", arg(&draft)];
    let tree = run(&[&generate[..], &tree].concat()).json();
    assert_eq!(plain["ids"].as_array().unwrap().len(), 16);
    assert_eq!(plain["ids"], tree["ids"]);
    assert!(tree["stats"]["drafted"].as_u64().unwrap() > 0);
}

#[test]
fn bytes_follow_from_the_seed() {
    let dir = tempfile::tempdir().unwrap();
    let written = |name: &str, more: &[&str]| {
        let path = dir.path().join(name);
        synth("nano", &path, more).json();
        fs::read(path).unwrap()
    };
    let one = written("a", &["--threads", "1"]);
    assert!(one == written("b", &["--threads", "4"]));
    assert!(one != written("c", &["--seed", "1"]));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
}

#[test]
fn files_are_written_over_only_by_force() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.gguf");
    fs::write(&path, "mine").unwrap();
    let said = synth("nano", &path, &[]).failure();
    assert!(said.contains("a.gguf: exists; --force"), "{said}");
    assert_eq!(fs::read(&path).unwrap(), b"mine");
    synth("nano", &path, &["--dry-run"]).json();
    assert_eq!(fs::read(&path).unwrap(), b"mine");
    synth("nano", &path, &["--force"]).json();
    GgufFile::open(&path, &OpenOptions::default()).unwrap();
    let said = synth("nano", dir.path(), &["--force"]).failure();
    assert!(said.contains("is no file"), "{said}");
    let nowhere = dir.path().join("no/such/a.gguf");
    assert!(synth("nano", &nowhere, &[]).failure().contains("No such file"));
}

/// A limit on the size of files stands for a full disk.
#[cfg(unix)]
#[test]
fn too_little_room_is_one_line_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.gguf");
    let script = format!(
        "trap '' XFSZ; ulimit -f 1000; exec '{}' synth -p nano -o '{}'",
        env!("CARGO_BIN_EXE_foretoken"),
        arg(&path)
    );
    let out = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(said.contains("a.gguf: 20.3 MiB are needed: ") && said.lines().count() == 1, "{said}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn nonsense_is_bad_usage() {
    let bad: &[&[&str]] = &[
        &["synth", "--out", "x"],
        &["synth", "--preset", "nano"],
        &["synth", "--preset", "no-such", "--out", "x"],
        &["synth", "--preset", "nano", "--out", "x", "--quant", "q9"],
        &["synth", "--preset", "nano", "--out", "x", "--layers", "0"],
        &["synth", "--preset", "nano", "--out", "x", "--layers", "5000"],
        &["synth", "--preset", "nano", "--out", "x", "--context", "-1"],
        &["synth", "--preset", "nano", "--out", "x", "--seed", "-1"],
        &["synth", "--preset", "nano", "--out", "x", "--threads", "0"],
        &["synth", "--preset", "nano", "--out", "x", "--target-layers", "8"],
        &["bench", "--pass-rows", "0"],
        &["bench", "--pass-rows", "65"],
        &["bench", "--pass-rows", "2", "--pass-shape", "ring"],
        &["bench", "--pass-rows", "2", "--spec"],
    ];
    for args in bad {
        run(args).bad_usage();
    }
}

#[test]
fn every_quantisation_and_size_loads() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.gguf");
    let open = OpenOptions::default();
    for quant in ["f32", "f16", "bf16", "q8_0", "q4_0", "q4_k_m", "q5_k_m", "q6_k"] {
        let more = ["--quant", quant, "--layers", "4", "--context", "4096", "--force"];
        synth("nano", &path, &more).json();
        let model = ModelFile::open(&path, &open).unwrap();
        assert_eq!((model.config.layers.len(), model.config.context_length), (4, 4096));
        let ids = run(&["generate", "-m", arg(&path), "-n", "3", "--ignore-eos", "--json", "the"]);
        assert_eq!(ids.json()["ids"].as_array().unwrap().len(), 3, "{quant}");
    }
    for layers in ["1", "7"] {
        synth("nano", &path, &["--layers", layers, "--force"]).json();
        run(&["generate", "-m", arg(&path), "-n", "2", "-q", "the"]).ok();
    }
    synth("dflash-nano", &path, &["--target-layers", "4", "--force"]).json();
    assert_eq!(DflashFile::open(&path, &open).unwrap().config.target_layers, [0, 1, 2]);
}

#[test]
fn sliding_layers_are_marked() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.gguf");
    let said = synth("dflash-27b-swa", &path, &["--dry-run"]).json();
    assert_eq!((&said["written"], said["tensors"].as_u64()), (&false.into(), Some(58)));
    // One layer of the same shape takes a fifth of the room.
    synth("dflash-0.8b", &path, &["--layers", "1"]).json();
    let draft = DflashFile::open(&path, &OpenOptions::default()).unwrap().config;
    assert_eq!((draft.block, draft.mask_token), (16, 248_070));
    assert_eq!(draft.target_layers, [1, 6, 11, 16, 21]);
    assert_eq!(draft.vocab, Some(248_320));
}

#[test]
fn the_vocabulary_can_be_that_of_another_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.gguf");
    let other = nano("nano-code-Q4_K_M.gguf");
    synth("nano", &path, &["--tokenizer", arg(&other)]).json();
    let (open, key) = (OpenOptions::default(), "tokenizer.ggml.tokens");
    let tokens = |path: &Path| {
        let file = GgufFile::open(path, &open).unwrap();
        let tokens = file.metadata().require_str_array(key).unwrap();
        tokens.to_strs().unwrap().join("\0")
    };
    assert!(tokens(&path) == tokens(&other));
    let none = dir.path().join("none.gguf");
    fs::write(&none, [&b"GGUF\x03\0\0\0"[..], &[0; 16]].concat()).unwrap();
    let more = ["--tokenizer", arg(&none), "--force"];
    let said = synth("nano", &path, &more).failure();
    assert!(said.contains("none.gguf: has no tokenizer.ggml.tokens"), "{said}");
    let missing = ["--tokenizer", "no-such.gguf", "--force"];
    assert!(synth("nano", &path, &missing).failure().contains("no-such.gguf"));
}

/// Names, shapes, types and keys are those of the models that are trained.
#[test]
fn the_shipped_model_has_the_same_tensors_and_keys() {
    let dir = tempfile::tempdir().unwrap();
    let open = OpenOptions::default();
    for (preset, shipped) in
        [("nano", "nano-code-Q4_K_M.gguf"), ("dflash-nano", "nano-dflash-Q8_0.gguf")]
    {
        let path = dir.path().join(preset);
        synth(preset, &path, &[]).json();
        let files = [path, nano(shipped)].map(|path| GgufFile::open(&path, &open).unwrap());
        let [ours, theirs] = files.each_ref().map(|file| {
            let mut tensors: Vec<_> = file
                .tensors()
                .iter()
                // Newer versions give these matrices, of values too, a mixture as values.
                .map(|t| (t.name().to_owned(), t.shape(), mixed(t.name(), t.dtype())))
                .collect();
            tensors.sort_by(|a, b| a.0.cmp(&b.0));
            let mut keys: Vec<_> =
                file.metadata().iter().map(|(key, value)| (key.to_owned(), value.kind())).collect();
            keys.sort_by(|a, b| a.0.cmp(&b.0));
            (tensors, keys)
        });
        assert_eq!(ours.0, theirs.0);
        for key in &ours.1 {
            let found = theirs.1.contains(key);
            assert!(found || key.0 == "general.quantization_version", "{key:?}");
        }
    }
}

fn mixed(name: &str, dtype: DType) -> Option<DType> {
    (!name.ends_with("attn_qkv.weight")).then_some(dtype)
}

#[test]
fn passes_are_timed_beside_prompts_and_answers() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.gguf");
    synth("nano", &path, &["--layers", "4"]).json();
    let bench = ["bench", "-m", arg(&path), "-p", "16", "-n", "4", "--depth", "0,70", "-r", "2"];
    let passes = ["--pass-rows", "1,9", "--pass-shape", "chain,tree"];
    let out = run(&[&bench[..], &passes, &["--json"]].concat()).ok();
    let rows: Vec<serde_json::Value> =
        out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<&str> = rows.iter().map(|row| row["test"].as_str().unwrap()).collect();
    let at_0 = ["pp16", "tg4", "pass1", "pass9", "pass1 tree", "pass9 tree"];
    let all: Vec<String> = at_0
        .iter()
        .map(|s| s.to_string())
        .chain(at_0.iter().map(|s| format!("{s} @ d70")))
        .collect();
    assert_eq!(names, all);
    for row in &rows {
        let pass = row["test"].as_str().unwrap().starts_with("pass");
        assert_eq!(row["unit"], if pass { "ms" } else { "tok/s" });
        assert!(row["median"].as_f64().unwrap() > 0.0 && row["load_s"].as_f64().unwrap() > 0.0);
        assert_eq!(row["samples"].as_array().unwrap().len(), 2);
    }
    let table = run(&[&bench[..], &passes].concat()).ok();
    assert_eq!(table.lines().filter(|line| line.contains(" ms |")).count(), 8, "{table}");
}
