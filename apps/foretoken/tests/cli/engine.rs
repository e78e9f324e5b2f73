//! Answers: generation, log-probabilities and perplexity with the small models.

use std::fs;

use serde_json::Value;

use crate::support::{arg, nano, part_of_a_character, run, run_with_stdin};

/// The reference for the shipped model: float32 arithmetic on its weights.
fn golden() -> Value {
    let bytes = fs::read(nano("golden/nano-q4.json")).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

fn list(ids: &Value) -> String {
    let ids = ids.as_array().unwrap().iter().map(Value::to_string);
    ids.collect::<Vec<_>>().join(",")
}

#[test]
fn generate_reports_what_the_contract_says() {
    let report = run(&["generate", "def f(", "-n", "8", "--ignore-eos", "--json"]).json();
    assert_eq!(report["ids"].as_array().unwrap().len(), 8);
    assert_eq!(report["finish"], "length");
    let stats = &report["stats"];
    assert_eq!(stats["generated_tokens"], 8);
    assert_eq!(stats["spec"], "off");
    let decoded = run(&["tokenize", "--decode", &list(&report["ids"])]).ok();
    assert_eq!(report["text"], decoded);
    let prompt = run(&["tokenize", "--json", "def f("]).json();
    assert_eq!(stats["prompt_tokens"], prompt["ids"].as_array().unwrap().len());
    let times = ["prefill_s", "decode_s", "ttft_s"];
    assert!(times.iter().all(|t| stats[t].as_f64().unwrap() >= 0.0), "{stats}");
    let counts = ["steps", "drafted", "accepted"];
    assert!(counts.iter().all(|c| stats[c].is_u64()), "{stats}");
    assert!(stats["acceptance_length_mean"].is_number());
    assert!(stats["acceptance_histogram"].is_array() && stats["fallbacks"].is_array());
    assert!(stats["memory"]["weights"].as_u64().unwrap() > 10 << 20);
    assert!(stats["pflash"].is_object());
    assert!(report.get("logprobs").is_none());
}

#[test]
fn no_tokens_asked_for_are_no_tokens_given() {
    let report = run(&["generate", "def f(", "-n", "0", "--json"]).json();
    assert_eq!((&report["text"], &report["ids"]), (&"".into(), &serde_json::json!([])));
    assert_eq!(report["finish"], "length");
}

#[test]
fn greedy_answers_are_the_reference() {
    let golden = golden();
    for prompt in &golden["prompts"].as_array().unwrap()[..2] {
        let ids = list(&prompt["ids"]);
        let args = ["generate", "--ids", &ids, "-n", "64", "--ignore-eos", "--json"];
        let report = run(&[&args[..], &["--activations", "f32", "--cache-type", "f32"]].concat());
        let (target, got) = (&prompt["target"], report.json()["ids"].clone());
        // A gap below this can be closed by the order of sums alone.
        let gaps = target["gap"].as_array().unwrap().iter();
        let sure = gaps.take_while(|g| g.as_f64().unwrap() > 1e-3).count();
        assert!(sure > 8, "too close a prompt to say anything");
        let head = |ids: &Value| ids.as_array().unwrap()[..sure].to_vec();
        assert_eq!(head(&got), head(&target["greedy"]));
    }
}

#[test]
fn logits_are_the_reference_at_every_position() {
    let golden = golden();
    let prompt = &golden["prompts"][0];
    let flags = ["--activations", "f32", "--cache-type", "f32", "--json"];
    let args = ["logits", "--ids", &list(&prompt["ids"]), "--top", "3"];
    let report = run(&[&args[..], &flags].concat()).json();
    let positions = report["positions"].as_array().unwrap();
    assert_eq!(positions.len(), prompt["ids"].as_array().unwrap().len());
    assert_eq!(prompt["target"]["first_row"], 0);
    for (at, position) in positions.iter().enumerate() {
        let top = position["top"].as_array().unwrap();
        assert_eq!(top.len(), 3);
        for (rank, entry) in top.iter().enumerate() {
            let want = prompt["target"]["top_logprob"][at][rank].as_f64().unwrap();
            let got = entry["logprob"].as_f64().unwrap();
            // The reference has five decimals; f32 sums of 512 terms add about 1e-4.
            assert!((got - want).abs() < 2e-3, "{at}, {rank}: {got}, expected {want}");
        }
        assert_eq!(top[0]["id"], prompt["target"]["top_ids"][at][0]);
    }
    let text = run(&["logits", "--prompt", "def f(", "--top", "2"]).ok();
    assert!(text.contains("after"), "{text}");
}

#[test]
fn streamed_text_is_the_reported_text() {
    let args = ["generate", "def f(", "-n", "12", "--ignore-eos"];
    let streamed = run(&args);
    assert!(streamed.stderr.contains("tok/s"), "{}", streamed.stderr);
    assert!(streamed.stderr.lines().all(|l| l.chars().count() <= 80));
    let streamed = streamed.ok();
    let report = run(&[&args[..], &["--json"]].concat()).json();
    assert_eq!(report["text"], streamed);
    let quiet = run(&[&args[..], &["--quiet"]].concat());
    assert_eq!((quiet.stderr.as_str(), quiet.stdout), ("", streamed));
}

#[test]
fn stop_strings_and_stop_tokens_end_the_answer() {
    let free = run(&["generate", "def f(", "-n", "24", "--ignore-eos", "--json"]).json();
    let text = free["text"].as_str().unwrap();
    let stop: String = text.chars().skip(6).take(3).collect();
    let args = ["generate", "def f(", "-n", "24", "--ignore-eos", "--json", "--stop", &stop];
    let stopped = run(&args).json();
    assert_eq!(stopped["finish"], "stop");
    assert_eq!(stopped["text"], text[..text.find(&stop).unwrap()]);

    let ids = free["ids"].as_array().unwrap();
    let stop = ids[5].to_string();
    let args = ["generate", "def f(", "-n", "24", "--ignore-eos", "--json", "--stop-token", &stop];
    let stopped = run(&args).json();
    let first = ids.iter().position(|id| *id == ids[5]).unwrap();
    assert_eq!(stopped["ids"].as_array().unwrap()[..], ids[..first]);
}

#[test]
fn end_tokens_end_the_answer_unless_ignored() {
    let ask = ["generate", "--chat", "What does len do?", "-n", "200", "--json"];
    let ended = run(&ask).json();
    let on = run(&[&ask[..], &["--ignore-eos"]].concat()).json();
    assert_eq!(on["finish"], "length");
    assert_eq!(on["ids"].as_array().unwrap().len(), 200);
    assert_eq!(ended["finish"], "stop", "the small model ends its answers");
    let (short, long) = (ended["ids"].as_array().unwrap(), on["ids"].as_array().unwrap());
    assert_eq!(short[..], long[..short.len()]);
    let next = long[short.len()].to_string();
    let end = run(&["tokenize", "--decode", &next]).ok();
    assert!(end == "<|im_end|>" || end == "<|endoftext|>", "{end}");
}

#[test]
fn chat_is_the_template_around_the_message() {
    // The template strips the line breaks before its tags.
    let by_hand = "<|im_start|>system\nBe brief.<|im_end|><|im_start|>user\nHi<|im_end|>\
                   <|im_start|>assistant";
    let plain = run(&["generate", by_hand, "-n", "8", "--json"]).json();
    let args = ["generate", "--chat", "--system", "Be brief.", "Hi", "-n", "8", "--json"];
    let chat = run(&args).json();
    assert_eq!(chat["ids"], plain["ids"]);
    assert_eq!(chat["stats"]["prompt_tokens"], plain["stats"]["prompt_tokens"]);
}

#[test]
fn seeds_repeat_and_differ() {
    let sample = |seed: &str| {
        let args = ["generate", "def f(", "-n", "24", "--ignore-eos", "--json"];
        let args = [&args[..], &["--temperature", "1.5", "--seed", seed]].concat();
        run(&args).json()["ids"].clone()
    };
    assert_eq!(sample("1"), sample("1"));
    assert_ne!(sample("1"), sample("2"));
}

#[test]
fn biases_ban_and_force_tokens() {
    let args = ["generate", "def f(", "-n", "3", "--ignore-eos", "--json"];
    let free = run(&args).json();
    let bias = format!("{}=-inf", free["ids"][0]);
    let banned = run(&[&args[..], &["--logit-bias", &bias]].concat()).json();
    assert_ne!(banned["ids"][0], free["ids"][0]);
    let forced = run(&[&args[..], &["--logit-bias", "100=1000"]].concat()).json();
    assert_eq!(forced["ids"], serde_json::json!([100, 100, 100]));
    let message = run(&[&args[..], &["--logit-bias", "9999999=1"]].concat()).failure();
    assert!(message.contains("9999999"), "{message}");
}

#[test]
fn logprobs_come_with_every_token() {
    let args = ["generate", "def f(", "-n", "4", "--ignore-eos", "--json", "--logprobs", "2"];
    let report = run(&args).json();
    let logprobs = report["logprobs"].as_array().unwrap();
    assert_eq!(logprobs.len(), 4);
    for (entry, id) in logprobs.iter().zip(report["ids"].as_array().unwrap()) {
        assert_eq!(&entry["id"], id);
        // Greedy: the chosen token is the most likely one.
        assert_eq!(entry["top"][0]["id"], entry["id"]);
        assert_eq!(entry["top"].as_array().unwrap().len(), 2);
        assert!(entry["logprob"].as_f64().unwrap() <= 0.0);
        assert!(entry.get("bytes").is_none(), "text needs none: {entry}");
    }
}

#[test]
fn logprobs_of_a_part_of_a_character_give_its_bytes() {
    let part = part_of_a_character();
    let bias = format!("{part}=1000");
    let args = ["generate", "a", "-n", "1", "--json", "--logprobs", "1", "--logit-bias", &bias];
    let entry = run(&args).json()["logprobs"][0].clone();
    assert_eq!(entry["id"], part);
    assert_eq!(entry["token"], "\u{fffd}");
    assert_eq!(entry["bytes"], serde_json::json!(["日".as_bytes()[0]]));
}

#[test]
fn prompts_past_the_context_say_both_numbers() {
    let prompt = "x = 1\n".repeat(200);
    let count = run_with_stdin(&["tokenize", "--json"], prompt.as_bytes()).json();
    let count = count["ids"].as_array().unwrap().len().to_string();
    for command in ["generate", "logits"] {
        let ran = run_with_stdin(&[command, "--context", "64"], prompt.as_bytes());
        let message = ran.failure();
        assert!(message.contains("context_length_exceeded"), "{message}");
        assert!(message.contains(&count) && message.contains("64"), "{message}");
    }
    // Past the longest context of the model, too, when none is asked for.
    let message = run_with_stdin(&["generate"], "x = 1\n".repeat(10_000).as_bytes()).failure();
    assert!(message.contains("context_length_exceeded") && message.contains("32768"), "{message}");
    assert!(!message.contains("--context"), "no more is to be had: {message}");
}

#[test]
fn a_free_token_is_asked_for_only_where_it_is_needed() {
    let ids = ["--ids", "1,2,3,4", "--context"];
    let message = run(&[&["generate"], &ids[..], &["4"]].concat()).failure();
    assert!(message.contains("(one must stay free)") && message.contains("--context"), "{message}");
    run(&[&["logits"], &ids[..], &["4"]].concat()).ok();
    let message = run(&[&["logits"], &ids[..], &["3"]].concat()).failure();
    assert!(message.contains("raise --context") && !message.contains("free"), "{message}");
}

#[test]
fn the_context_ends_the_answer() {
    let args = ["generate", "def f(", "-n", "500", "--ignore-eos", "--json", "--context", "32"];
    let report = run(&args).json();
    assert_eq!(report["finish"], "length");
    let (prompt, new) = (&report["stats"]["prompt_tokens"], &report["stats"]["generated_tokens"]);
    assert_eq!(prompt.as_u64().unwrap() + new.as_u64().unwrap(), 32);
}

#[test]
fn ids_outside_the_vocabulary_are_refused() {
    for command in ["generate", "logits"] {
        let message = run(&[command, "--ids", "1,8192"]).failure();
        assert!(message.contains("8192"), "{message}");
    }
    let message = run(&["generate", "a", "--stop-token", "5", "--stop-token", "8192"]).failure();
    assert_eq!(message, "--stop-token: token id 8192 is not in the vocabulary of 8192");
}

#[test]
fn perplexity_of_a_short_text_is_refused_and_of_a_longer_one_given() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("text");
    fs::write(&path, "x = 1\n").unwrap();
    let message = run(&["perplexity", "--file", arg(&path)]).failure();
    assert!(message.contains(arg(&path)) && message.contains("512"), "{message}");
    fs::write(&path, "def f(x):\n    return x + 1\n\n\n".repeat(40)).unwrap();
    let args = ["perplexity", "--file", arg(&path), "--context", "64", "--json"];
    let report = run(&args).json();
    let chunks = report["chunks"].as_u64().unwrap();
    assert!(chunks > 2);
    // Of 64 tokens, those after the 33rd are predicted from inside the second half.
    assert_eq!(report["tokens"].as_u64().unwrap(), chunks * 31);
    assert_eq!(report["context"], 64);
    // Text that repeats itself holds no surprises.
    let perplexity = report["perplexity"].as_f64().unwrap();
    assert!((1.0..2.0).contains(&perplexity), "{perplexity}");
}

#[test]
fn perplexity_drops_one_line_break_at_the_end() {
    let text = b"def f(x):\n    return x + 1";
    let ids = crate::support::ids_of(text).as_array().unwrap().len();
    let scored = |end: &[u8], context: usize| {
        let context = context.to_string();
        let args = ["perplexity", "-f", "-", "--json", "--context", &context];
        run_with_stdin(&args, &[&text[..], end].concat())
    };
    // A single chunk, which the text alone fills; a token more is too much to ask.
    let plain = scored(b"", ids).json();
    assert_eq!(plain["chunks"], 1);
    assert_eq!(plain, scored(b"\n", ids).json());
    let message = scored(b"\n", ids + 1).failure();
    let expected = format!(
        "stdin: {ids} tokens, a chunk takes {}; use a longer text or a smaller --context",
        ids + 1
    );
    assert_eq!(message, expected);
    // Of two line breaks one stays.
    assert_eq!(scored(b"\n\n", ids + 1).json()["chunks"], 1);
}

#[test]
fn perplexity_of_the_validation_text_is_the_reference() {
    let Some(data) = std::env::var_os("FORETOKEN_TEST_DATA") else {
        println!("skipped: perplexity of the validation text: FORETOKEN_TEST_DATA is not set");
        return;
    };
    let text = std::path::Path::new(&data).join("golden/val.txt");
    let model = nano("nano-scorer-Q8_0.gguf");
    let report = run(&["perplexity", "-m", arg(&model), "-f", arg(&text), "--json"]).json();
    // llama.cpp's figure; 0.2 % allows for 8-bit activations.
    let perplexity = report["perplexity"].as_f64().unwrap();
    assert!((perplexity / 7.4351 - 1.0).abs() < 2e-3, "{perplexity}");
}

#[test]
fn models_are_found_by_name_and_variable() {
    let args = ["generate", "a", "-n", "1", "--json", "--model", "nano-scorer-Q8_0"];
    assert_eq!(run(&args).json()["model"], "nano-scorer");
    let dir = tempfile::tempdir().unwrap();
    fs::copy(nano("nano-scorer-Q8_0.gguf"), dir.path().join("other.gguf")).unwrap();
    let mut command = crate::support::command(&["generate", "a", "-n", "1", "-m", "other"]);
    let output = command.env("FORETOKEN_MODELS", dir.path()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn verbose_runs_print_the_plan() {
    let ran = run(&["generate", "a", "-n", "1", "--verbose", "--context", "64"]);
    assert!(ran.stderr.contains("kv_cache") && ran.stderr.contains("total"), "{}", ran.stderr);
    assert!(ran.stderr.contains(" KiB  logits of 1 rows\n"), "{}", ran.stderr);
    assert!(ran.stderr.contains("\ninfo: model loaded"), "{}", ran.stderr);
}
