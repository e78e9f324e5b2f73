//! Speculative decoding from the command line.

use serde_json::Value;

use super::support::{Changes, arg, changed, command, ids_of, nano, run};

const PROMPT: &str = "def fibonacci(n):";

fn generate(extra: &[&str]) -> Value {
    run(&[&["generate", PROMPT, "-n", "48", "--json"], extra].concat()).json()
}

#[test]
fn every_mode_and_drafter_gives_the_same_answer() {
    for sampling in [&[][..], &["--temperature", "0.9", "--seed", "3"]] {
        let with = |extra: &[&str]| generate(&[sampling, extra].concat());
        let plain = with(&["--spec", "off"]);
        assert_eq!(plain["stats"]["spec"], "off");
        assert!(plain["stats"]["speculation"].is_null());
        for spec in ["auto", "chain", "tree"] {
            for draft in [&[][..], &["--draft", "lookup"]] {
                let other = with(&[&["--spec", spec], draft].concat());
                assert_eq!(other["ids"], plain["ids"], "{spec} {draft:?}");
                assert_eq!(other["text"], plain["text"], "{spec} {draft:?}");
            }
        }
    }
}

#[test]
fn statistics_add_up() {
    let out = generate(&["--spec", "chain", "--draft-len", "4"]);
    let stats = &out["stats"];
    let number = |v: &Value| v.as_u64().unwrap();
    assert_eq!(stats["spec"], "chain");
    let histogram: Vec<u64> =
        stats["acceptance_histogram"].as_array().unwrap().iter().map(number).collect();
    let steps = number(&stats["speculation"]["speculative_steps"]);
    assert_eq!(histogram.iter().sum::<u64>(), steps);
    assert!(steps > 0 && histogram.len() <= 5, "{histogram:?}");
    let accepted: u64 = (0..).zip(&histogram).map(|(n, count)| n * count).sum();
    assert_eq!(number(&stats["accepted"]), accepted);
    assert!(number(&stats["drafted"]) <= 4 * steps);
    let mean = stats["acceptance_length_mean"].as_f64().unwrap();
    assert!((mean - 1.0 - accepted as f64 / steps as f64).abs() < 1e-9);
    // The first token comes from prefill; the last step may accept past the end.
    let tokens = number(&stats["generated_tokens"]) - 1;
    assert!(number(&stats["steps"]) + accepted >= tokens);
    let positions = stats["speculation"]["positions"].as_array().unwrap();
    assert_eq!(number(&positions[0]["tried"]), steps);
    assert!(stats["speculation"]["verify_s"].as_f64().unwrap() > 0.0);
    let choices = stats["speculation"]["choices"].as_object().unwrap();
    assert!(choices.contains_key("chain 4"), "{choices:?}");
    assert!(number(&stats["memory"]["draft"]) > 0 && number(&stats["memory"]["verify"]) > 0);
}

/// Requests whose choices are made on the host report their own last step.
#[test]
fn statistics_are_those_of_the_request_itself() {
    for n in ["3", "17", "48"] {
        let with = |extra: &[&str]| {
            let args = ["generate", PROMPT, "-n", n, "--spec", "tree", "--json"];
            run(&[&args[..], extra].concat()).json()["stats"].clone()
        };
        let (device, host) = (with(&[]), with(&["--logprobs", "1"]));
        for field in ["steps", "drafted", "acceptance_histogram"] {
            // The device walks past the end of the answer, the host stops at it: only the
            // last step may differ.
            if field == "acceptance_histogram" {
                let count = |v: &Value| {
                    v[field].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).sum::<u64>()
                };
                assert_eq!(count(&device), count(&host), "{n}");
            } else {
                assert_eq!(device[field], host[field], "{n}: {field}");
            }
        }
        let spent = |s: &Value| {
            let s = &s["speculation"];
            ["draft_s", "verify_s", "commit_s"].map(|t| s[t].as_f64().unwrap()).iter().sum::<f64>()
        };
        assert!(spent(&host) > 0.0 && spent(&host) <= host["decode_s"].as_f64().unwrap());
    }
}

#[test]
fn the_smallest_contexts_and_answers_need_no_timing() {
    let cache = tempfile::tempdir().unwrap();
    for context in ["2", "3", "4", "7", "8", "9", "12"] {
        let args = ["generate", "x", "-c", context, "--draft", "lookup", "-n", "8"];
        let output = command(&args).env("FORETOKEN_CACHE", cache.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{context}: {output:?}");
    }
    let empty = tempfile::tempdir().unwrap();
    let args = ["generate", "x", "-n", "1"];
    let output = command(&args).env("FORETOKEN_CACHE", empty.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(std::fs::read_dir(empty.path()).unwrap().next().is_none());
}

#[test]
fn reasons_are_told_to_those_who_ask() {
    let ran = run(&["generate", PROMPT, "-n", "8", "--spec", "tree", "-v"]);
    assert!(ran.stderr.contains("steps: ") && ran.stderr.contains("as asked: "), "{ran:?}");
    let ran = run(&["generate", PROMPT, "-n", "8", "--spec", "tree"]);
    assert!(!ran.stderr.contains("as asked"), "{ran:?}");
}

/// A token whose embedding is broken ends plain decoding with an error, unless the answer
/// ends with it: speculation, which looks past ends, must not see more.
#[test]
fn broken_logits_behind_the_end_of_an_answer_do_not_matter() {
    let dir = tempfile::tempdir().unwrap();
    let plain = generate(&["--spec", "off"]);
    let ids: Vec<u64> =
        plain["ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect();
    let prompt = ids_of(PROMPT.as_bytes());
    let known: Vec<u64> = prompt.as_array().unwrap().iter().map(|v| v.as_u64().unwrap()).collect();
    for token in ids.iter().copied().filter(|id| !known.contains(id)).take(6) {
        let path = dir.path().join(format!("{token}.gguf"));
        let changes = Changes { blind_to: Some(token), ..Changes::default() };
        changed("nano-code-Q4_K_M.gguf", &path, &changes);
        let draft = nano("nano-dflash-Q8_0.gguf");
        for spec in ["off", "chain", "tree", "auto"] {
            let args = ["generate", PROMPT, "-n", "48", "-m", arg(&path), "--json"];
            let rest = ["--spec", spec, "--draft", arg(&draft), "--stop-token", &token.to_string()];
            let out = run(&[&args[..], &rest].concat()).json();
            assert_eq!(out["finish"], "stop", "{spec}, token {token}");
            let end = ids.iter().position(|&id| id == token).unwrap();
            let said: Vec<u64> =
                out["ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect();
            assert_eq!(said, ids[..end], "{spec}, token {token}");
            let message = run(&[&args[..], &rest[..4]].concat()).failure();
            assert!(message.contains("non-finite"), "{spec}: {message}");
        }
    }
}

#[test]
fn what_can_not_be_is_refused() {
    for flags in [["--draft-len", "0"], ["--draft-len", "64"], ["--tree-budget", "0"]] {
        let message = run(&[&["generate", PROMPT][..], &flags].concat()).bad_usage();
        assert!(message.contains("use 1 to 63"), "{message}");
    }
    let message = run(&["generate", PROMPT, "--spec", "sideways"]).bad_usage();
    assert!(message.contains("auto"), "{message}");
    for spec in ["chain", "tree"] {
        let message = run(&["generate", PROMPT, "--spec", spec, "--draft", "none"]).failure();
        assert!(message.contains("no drafter") && message.contains("--spec off"), "{message}");
    }
    let message = run(&["generate", PROMPT, "--draft", "no/such.gguf"]).failure();
    assert!(message.contains("no/such.gguf"), "{message}");
    let message = run(&["generate", PROMPT, "--draft", "nosuch"]).failure();
    assert!(message.contains("--draft FILE"), "{message}");
    for flags in [&["-n", "0"][..], &["-n", "8,16"], &["--draft", "none"], &["-p", "8"]] {
        run(&[&["bench", "--spec"][..], flags].concat()).bad_usage();
    }
    // A draft's device is one there is, named, and for a draft model.
    run(&["generate", PROMPT, "--draft", "lookup", "--draft-device", "cpu:0"]).bad_usage();
    run(&["generate", PROMPT, "--draft-device", "auto"]).bad_usage();
    let message = run(&["generate", PROMPT, "--draft-device", "cpu:7"]).failure();
    assert!(message.contains("cpu:7"), "{message}");
    // The model's own device changes nothing.
    let flags = ["-n", "12", "--spec", "tree", "--json"];
    let plain = run(&[&["generate", PROMPT][..], &flags].concat()).json();
    let named =
        run(&[&["generate", PROMPT, "--draft-device", "cpu:0"][..], &flags].concat()).json();
    assert_eq!(plain["ids"], named["ids"]);
    // A target is no draft, and the shipped draft does not fit another model.
    let target = nano("nano-code-Q4_K_M.gguf");
    let message = run(&["generate", PROMPT, "--draft", arg(&target)]).failure();
    assert!(message.contains("nano-code-Q4_K_M.gguf"), "{message}");
    let (scorer, draft) = (nano("nano-scorer-Q8_0.gguf"), nano("nano-dflash-Q8_0.gguf"));
    let args = ["generate", PROMPT, "-m", arg(&scorer), "--draft", arg(&draft)];
    let message = run(&args).failure();
    assert!(message.contains("nano-dflash-Q8_0.gguf"), "{message}");
}

#[test]
fn bench_sets_the_modes_side_by_side() {
    let out = run(&["bench", "--spec", "-n", "8", "-r", "1", "--json"]);
    let rows: Vec<Value> =
        out.ok().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let tests: Vec<_> = rows.iter().filter_map(|row| row["test"].as_str()).collect();
    let modes = ["plain", "chain", "tree", "auto"];
    let want: Vec<_> = ["code", "chat", "prose"]
        .iter()
        .flat_map(|genre| modes.map(|mode| format!("{genre} {mode}")))
        .collect();
    assert_eq!(tests, want);
    assert!(rows[1]["acceptance_length_mean"].as_f64().unwrap() >= 1.0);
    assert_eq!(rows[0]["times_plain"].as_f64(), Some(1.0));
    let cost = &rows.last().unwrap()["step_times"];
    assert!(cost["plain_s"].as_f64().unwrap() > 0.0, "{cost}");
}

/// `auto` decodes plainly where drafting has no memory, and the result tells.
#[test]
fn drafting_without_memory_is_told_in_the_result() {
    let generate = |memory: Option<u64>, mode: &str| {
        let (target, draft) = (nano("nano-code-Q4_K_M.gguf"), nano("nano-dflash-Q8_0.gguf"));
        let mut args =
            vec!["generate", "--json", "--device", "cpu", "--prompt", "def f(", "-n", "4"];
        args.extend(["-m", arg(&target), "--draft", arg(&draft), "-c", "1024", "--spec", mode]);
        let memory = memory.map(|bytes| bytes.to_string());
        args.extend(memory.iter().flat_map(|bytes| ["--device-memory", bytes]));
        run(&args)
    };
    let all = generate(None, "auto").json()["stats"].clone();
    let memory = |kind: &str| all["memory"][kind].as_u64().unwrap();
    assert_eq!(all["fallbacks"], serde_json::json!([]));
    // The weights of the draft model fit, its caches do not.
    let less = memory("total") - memory("draft") / 20;
    let told = generate(Some(less), "auto");
    assert!(told.stderr.contains("drafting needs too much memory"), "{told:?}");
    let report: serde_json::Value = serde_json::from_str(&told.ok()).unwrap();
    let fallback = &report["stats"]["fallbacks"][0];
    assert_eq!((&fallback["what"], &fallback["count"]), (&"auto to plain".into(), &1.into()));
    assert!(fallback["reason"].as_str().unwrap().contains("memory"), "{fallback}");
    // What was asked for by name fails.
    assert!(generate(Some(less), "tree").failure().contains("memory"));
}
