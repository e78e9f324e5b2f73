//! The recorded drafts' trees, node for node.
//!
//! The record has the eight most likely candidates of each position. A tree can be
//! rebuilt from those as long as it does not want a ninth: up to a budget of eight in
//! any case, beyond that when none of its nodes is an eighth candidate.

use std::path::Path;

use foretoken::device::Device;
use serde_json::Value;

use crate::driver;
use crate::tree::builder::{Builder, Row};

use super::data::{json, nano, test_data};

fn int(value: &Value) -> i32 {
    value.as_i64().unwrap() as i32
}

/// Rows after row 0 as the record has them: parents count from 0, and -1 is row 0.
fn recorded(tree: &Value) -> Vec<Row> {
    let nodes = tree.as_array().unwrap().iter();
    nodes.map(|n| (int(&n["token"]), int(&n["parent"]) + 1, int(&n["depth"]))).collect()
}

/// Rebuilds all trees of a file; gives how many it compared and how many it could not.
fn rebuild(device: &dyn Device, golden: &Path) -> (usize, usize) {
    let golden = json(golden);
    let (mut compared, mut left) = (0, 0);
    for prompt in golden["prompts"].as_array().unwrap() {
        let rows = |key: &str| prompt["draft_first_block"][key].as_array().unwrap().clone();
        let flat = |rows: &[Value]| -> Vec<Value> {
            rows.iter().flat_map(|row| row.as_array().unwrap().clone()).collect()
        };
        let (top_ids, scores) = (rows("top_ids"), rows("top_logprob"));
        let (positions, k) = (top_ids.len(), top_ids[0].as_array().unwrap().len());
        let ids: Vec<i32> = flat(&top_ids).iter().map(int).collect();
        let scores: Vec<f32> = flat(&scores).iter().map(|x| x.as_f64().unwrap() as f32).collect();
        let mut builder = Builder::new(device, positions, k, 64, 1 << 30);
        for (budget, tree) in prompt["trees"].as_object().unwrap() {
            let (budget, want): (usize, _) = (budget.parse().unwrap(), recorded(tree));
            let eighth = |&(token, _, depth): &Row| token == ids[depth as usize * k - 1];
            if budget > k && want.iter().any(eighth) {
                left += 1;
                continue;
            }
            let deep = positions as i32;
            let got = builder.build(&ids, &scores, [budget as i32, deep, deep, 0]);
            assert_eq!(got[0], (0, -1, 0));
            assert_eq!(got[1..], want, "budget {budget}, prompt {}", prompt["text"]);
            compared += 1;
        }
    }
    (compared, left)
}

fn check(golden: &Path) {
    let Some(device) = driver::open() else { return };
    let (compared, left) = rebuild(&*device, golden);
    eprintln!("{}: {compared} trees compared, {left} need more candidates", golden.display());
    // Eleven prompts, whose budget of seven can always be compared.
    assert!(compared >= 11);
}

#[test]
fn shipped_drafts_give_the_recorded_trees() {
    check(&nano().join("golden/nano-q4.json"));
}

#[test]
fn bf16_drafts_give_the_recorded_trees() {
    let Some(data) = test_data("bf16_drafts_give_the_recorded_trees") else { return };
    check(&data.join("golden/nano.json"));
}
