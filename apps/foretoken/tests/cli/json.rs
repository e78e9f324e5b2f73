//! The fields of the JSON contract.

use std::collections::BTreeSet;

use serde_json::Value;

#[cfg(unix)]
use crate::support::command;
use crate::support::{nano, run};

fn has_fields(value: &Value, fields: &[&str]) {
    let object = value.as_object().unwrap_or_else(|| panic!("no object: {value}"));
    for field in fields {
        assert!(object.contains_key(*field), "{field} is missing in {value}");
    }
}

#[test]
fn doctor_reports_build_and_machine() {
    let report = run(&["doctor", "--json"]).json();
    has_fields(&report, &["version", "cpu", "cuda", "hip"]);
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
    assert!(report["cpu"]["threads"].as_u64().unwrap() > 0);
    for driver in ["cuda", "hip"] {
        let report = &report[driver];
        has_fields(report, &["built", "driver", "architectures", "devices", "problems"]);
        assert!(report["built"].is_boolean());
        for list in ["architectures", "devices", "problems"] {
            assert!(report[list].is_array(), "{driver}.{list}");
        }
    }
    let text = run(&["doctor"]).ok();
    assert!(text.contains(env!("CARGO_PKG_VERSION")));
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn devices_lists_the_cpu() {
    let devices = run(&["devices", "--json"]).json();
    let cpu = devices.as_array().unwrap().iter().find(|d| d["id"] == "cpu:0").unwrap();
    has_fields(cpu, &["driver", "index", "name", "arch", "memory_total", "memory_free", "score"]);
    // There is one, so there is nothing to copy to.
    assert_eq!(cpu["peers"], serde_json::json!([]));
    assert!(run(&["devices"]).ok().contains("cpu:0"));
}

#[test]
fn inspect_reports_metadata_tensors_and_plan() {
    let path = nano("nano-code-Q4_K_M.gguf");
    let path = path.to_str().unwrap();
    let report =
        run(&["inspect", "--json", path, "--context", "1024", "--cache-type", "f16"]).json();
    has_fields(&report, &["architecture", "metadata", "tensors", "plan"]);
    assert_eq!(report["architecture"], "qwen35");
    assert_eq!(report["metadata"]["qwen35.block_count"], 8);
    // Long arrays are given by type and length.
    let tokens = &report["metadata"]["tokenizer.ggml.tokens"];
    assert_eq!((&tokens["of"], &tokens["len"]), (&"string".into(), &8192.into()));
    let tensors = report["tensors"].as_array().unwrap();
    assert_eq!(tensors.len(), 108);
    let find = |name: &str| tensors.iter().find(|t| t["name"] == name).unwrap();
    let table = find("token_embd.weight");
    assert_eq!(table["shape"], serde_json::json!([8192, 512]));
    let types: BTreeSet<_> = tensors.iter().map(|t| t["type"].as_str().unwrap()).collect();
    assert_eq!(types, BTreeSet::from(["F32", "Q4_K", "Q6_K"]));
    let bytes: u64 = tensors.iter().map(|t| t["bytes"].as_u64().unwrap()).sum();
    assert!(bytes < std::fs::metadata(path).unwrap().len());
    let plan = &report["plan"];
    has_fields(plan, &["weights", "kv_cache", "state", "scratch", "outputs", "driver", "total"]);
    assert_eq!(plan["devices"][0]["total"], plan["total"]);
    assert_eq!(plan["devices"][0]["device"], plan["entries"][0]["device"]);
    // Two attention layers, one KV head of 256, keys and values in 16 bits.
    assert_eq!(plan["kv_cache"], 2 * 256 * 2 * 2 * 1024);
    let text = run(&["inspect", path]).ok();
    assert!(text.contains("blk.0.attn_qkv.weight") && text.contains("kv_cache"));
    assert!(text.lines().all(|line| line.chars().count() <= 80 || line.contains('/')));
}

#[test]
fn inspect_refuses_a_context_past_the_model() {
    let message = run(&["inspect", "--context", "1000000"]).failure();
    assert!(message.contains("1000000") && message.contains("32768"), "{message}");
}

#[test]
fn bench_prints_one_object_a_row() {
    let args = ["bench", "--json", "-p", "16,32", "-n", "4", "-d", "0,8", "-r", "2"];
    let text = run(&args).ok();
    let rows: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let names: Vec<_> = rows.iter().map(|r| r["test"].as_str().unwrap()).collect();
    assert_eq!(names, ["pp16", "pp32", "tg4", "pp16 @ d8", "pp32 @ d8", "tg4 @ d8"]);
    for row in &rows {
        has_fields(row, &["model", "device", "driver", "median", "spread", "n", "conditions"]);
        let conditions = ["threads", "context", "kv_type", "activations", "build", "cpu"];
        has_fields(&row["conditions"], &conditions);
        let (median, spread) = (row["median"].as_f64().unwrap(), &row["spread"]);
        assert!(spread["min"].as_f64().unwrap() <= median, "{row}");
        assert!(spread["max"].as_f64().unwrap() >= median, "{row}");
        assert!(median > 0.0 && row["n"] == 2);
    }
}

#[test]
fn bench_checks_every_length_before_it_measures() {
    let args = ["bench", "-p", "16,40000", "-n", "0", "-r", "1"];
    for format in ["md", "csv", "json"] {
        let message = run(&[&args[..], &["--output", format]].concat()).failure();
        assert!(message.starts_with("pp40000: ") && message.contains("32768"), "{message}");
    }
}

#[cfg(unix)]
#[test]
fn bench_prints_what_it_measured_before_a_failure() {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;
    let (first, dir) = (nano("nano-scorer-Q8_0.gguf"), tempfile::tempdir().unwrap());
    let second = dir.path().join("second.gguf");
    std::fs::copy(&first, &second).unwrap();
    let models = ["bench", "-m", first.to_str().unwrap(), "-m", second.to_str().unwrap()];
    let mut command = command(&[&models[..], &["-v", "-p", "512", "-n", "64", "-r", "3"]].concat());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // When the plan is told, all models have been looked at and the first is being loaded.
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(said.any(|line| line.starts_with("memory on ")));
    std::fs::remove_file(&second).unwrap();
    let last = said.last().unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(last.starts_with("error: ") && last.contains("second.gguf"), "{last}");
    assert_eq!(output.status.code(), Some(1));
    let table = String::from_utf8(output.stdout).unwrap();
    assert_eq!(table.lines().count(), 4, "{table}");
    assert!(table.contains("| pp512 |") && table.contains("| tg64  |"), "{table}");
}

#[test]
fn bench_prints_tables() {
    let args = ["bench", "-p", "16", "-n", "2", "-r", "1", "-t", "1,2"];
    let markdown = run(&args).ok();
    assert_eq!(markdown.lines().count(), 6, "{markdown}");
    assert!(markdown.lines().all(|l| l.starts_with('|') && l.chars().count() <= 80), "{markdown}");
    let csv = run(&[&args[..], &["--output", "csv"]].concat()).ok();
    let columns = csv.lines().next().unwrap().split(',').count();
    assert_eq!(csv.lines().count(), 5);
    assert!(csv.lines().all(|line| line.split(',').count() == columns), "{csv}");
}
