//! Requests: limits, stops, cancellation, sampling, logprobs, statistics.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use foretoken::device::Driver;
use foretoken::generate::{
    Cancel, Engine, EngineOptions, FinishReason, GenerateFault, GenerateRequest, Generation,
    Session, SessionOptions, StreamEvent, WantLogits,
};
use foretoken::sample::SamplingParams;
use foretoken::tokenizer::Special;
use foretoken::{Error, Result};
use foretoken_cpu::{CpuDriver, CpuOptions};

fn engine() -> &'static Arc<Engine> {
    static ENGINE: OnceLock<Arc<Engine>> = OnceLock::new();
    ENGINE.get_or_init(|| {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/nano/nano-code-Q4_K_M.gguf");
        let device = CpuDriver::new(CpuOptions::default()).open(0).unwrap();
        Engine::load(&path, device, &EngineOptions::default(), None, &mut |_| {}).unwrap()
    })
}

fn session(context: usize) -> Session {
    engine().session(SessionOptions::new(context)).unwrap()
}

fn prompt(text: &str) -> Vec<u32> {
    engine().tokenizer().encode(text, Special::Parse)
}

fn run(session: &mut Session, request: &GenerateRequest) -> Result<Generation> {
    engine().generate(session, request, &Cancel::default(), &mut |_| {})
}

fn request(text: &str, max_tokens: usize) -> GenerateRequest {
    let greedy = GenerateRequest::greedy(prompt(text));
    GenerateRequest { max_tokens: Some(max_tokens), ignore_eos: true, ..greedy }
}

fn fault(result: Result<Generation>) -> GenerateFault {
    match result {
        Err(Error::Generate(fault)) => fault,
        other => panic!("{other:?}"),
    }
}

#[test]
fn streamed_text_is_the_text_and_statistics_add_up() {
    let mut session = session(256);
    let request = request("def fibonacci(n):\n", 40);
    let mut said = String::new();
    let mut prefilled = Vec::new();
    let out = engine()
        .generate(&mut session, &request, &Cancel::default(), &mut |event| match event {
            StreamEvent::Text(t) => said.push_str(t),
            StreamEvent::Prefill { done, total } => prefilled.push((done, total)),
        })
        .unwrap();
    assert_eq!(said, out.text);
    assert_eq!(out.text.as_bytes(), engine().tokenizer().decode(&out.ids));
    assert_eq!((out.finish, out.ids.len()), (FinishReason::Length, 40));
    let n = request.prompt.len();
    assert_eq!(prefilled, [(n, n)]);
    assert_eq!((out.stats.prompt_tokens, out.stats.generated_tokens), (n, 40));
    // The first token comes from prefill, the last is never run.
    assert_eq!((out.stats.steps, session.committed()), (39, n + 39));
    assert!(out.stats.ttft >= out.stats.prefill && out.stats.memory.total() > 0);
}

#[test]
fn the_same_request_gives_the_same_ids_on_any_session() {
    let sampling = SamplingParams { temperature: 0.9, seed: 7, ..SamplingParams::default() };
    let request = GenerateRequest { sampling, ..request("import os\n", 48) };
    let first = run(&mut session(256), &request).unwrap();
    let mut used = session(512);
    for _ in 0..2 {
        assert_eq!(run(&mut used, &request).unwrap().ids, first.ids);
    }
    let other = SamplingParams { seed: 8, ..request.sampling.clone() };
    let other = GenerateRequest { sampling: other, ..request };
    assert_ne!(run(&mut used, &other).unwrap().ids, first.ids);
}

#[test]
fn penalties_bias_and_logprobs_reach_the_sampler() {
    let mut session = session(256);
    let plain = run(&mut session, &request("x = 1\nx = 1\nx = 1\n", 24)).unwrap();
    let with = |sampling| GenerateRequest { sampling, ..request("x = 1\nx = 1\nx = 1\n", 24) };
    let penalised = SamplingParams { repetition_penalty: 1.5, ..SamplingParams::greedy() };
    assert_ne!(run(&mut session, &with(penalised)).unwrap().ids, plain.ids);
    let biased = SamplingParams { logit_bias: vec![(345, 1000.0)], ..SamplingParams::greedy() };
    assert_eq!(run(&mut session, &with(biased)).unwrap().ids, [345; 24]);
    let logged = GenerateRequest { logprobs: Some(3), ..with(SamplingParams::greedy()) };
    let logged = run(&mut session, &logged).unwrap();
    assert_eq!(logged.ids, plain.ids);
    assert_eq!(logged.logprobs.len(), 24);
    for (entry, id) in logged.logprobs.iter().zip(&logged.ids) {
        assert_eq!((entry.chosen.id, entry.top[0].id, entry.top.len()), (*id, *id, 3));
        assert!(entry.top[0].logprob >= entry.top[1].logprob && entry.chosen.logprob <= 0.0);
    }
}

#[test]
fn stop_strings_end_the_text_before_them_wherever_tokens_split() {
    let mut session = session(256);
    let plain = run(&mut session, &request("def fibonacci(n):\n", 40)).unwrap();
    let text = plain.text.as_bytes();
    for start in [0, 7, 20, 33] {
        let stop = text[start..start + 5].to_vec();
        let find = text.windows(5).position(|w| w == stop).unwrap();
        let request = GenerateRequest {
            stop_strings: vec![b"never there".to_vec(), stop],
            ..request("def fibonacci(n):\n", 40)
        };
        let out = run(&mut session, &request).unwrap();
        assert_eq!(out.finish, FinishReason::Stop);
        assert_eq!(out.text.as_bytes(), &text[..find]);
        assert_eq!(out.ids, plain.ids[..out.ids.len()]);
        assert!(engine().tokenizer().decode(&out.ids).len() >= find + 5);
    }
}

#[test]
fn stop_tokens_and_end_tokens_are_not_in_the_ids() {
    let mut session = session(256);
    let plain = run(&mut session, &request("def fibonacci(n):\n", 40)).unwrap();
    let stop = plain.ids[9];
    let first = plain.ids.iter().position(|&id| id == stop).unwrap();
    let stopped = GenerateRequest { stop_tokens: vec![stop], ..request("def fibonacci(n):\n", 40) };
    let out = run(&mut session, &stopped).unwrap();
    assert_eq!((out.finish, out.ids.as_slice()), (FinishReason::Stop, &plain.ids[..first]));
    // Forcing the end token ends at once, and does not when told to go on.
    let eos = engine().tokenizer().eos_ids()[0];
    let sampling = SamplingParams { logit_bias: vec![(eos, 1000.0)], ..SamplingParams::greedy() };
    let forced = GenerateRequest { sampling, logprobs: Some(1), ..request("a", 3) };
    assert_eq!(run(&mut session, &forced).unwrap().ids, [eos; 3]);
    let ends = GenerateRequest { ignore_eos: false, ..forced };
    let out = run(&mut session, &ends).unwrap();
    assert_eq!((out.finish, out.ids.len(), out.logprobs.len()), (FinishReason::Stop, 0, 0));
}

#[test]
fn the_end_of_the_context_is_a_length_finish() {
    let mut session = session(40);
    let open = GenerateRequest { max_tokens: None, ..request("def f(x):\n", 0) };
    let out = run(&mut session, &open).unwrap();
    assert_eq!(out.finish, FinishReason::Length);
    assert_eq!(open.prompt.len() + out.ids.len(), 40);
    // It is a prefix of what a longer context gives.
    let longer = run(&mut engine().session(SessionOptions::new(80)).unwrap(), &open).unwrap();
    assert_eq!(out.ids, longer.ids[..out.ids.len()]);
    assert!(run(&mut session, &request("x", 0)).unwrap().ids.is_empty());
}

#[test]
fn bad_requests_are_refused_and_leave_the_session_usable() {
    let mut session = session(64);
    let good = request("x = 1", 5);
    let first = run(&mut session, &good).unwrap();
    assert_eq!(
        fault(run(&mut session, &GenerateRequest::greedy(vec![]))),
        GenerateFault::EmptyPrompt
    );
    let long = fault(run(&mut session, &GenerateRequest::greedy(vec![300; 64])));
    let (prompt, context, room, max) = (64, 64, 1, 32_768);
    assert_eq!(long, GenerateFault::ContextLengthExceeded { prompt, context, room, max });
    let text = long.to_string();
    assert!(text.starts_with("context_length_exceeded") && text.matches("64").count() == 2);
    let id = fault(run(&mut session, &GenerateRequest::greedy(vec![300, 8192])));
    assert_eq!(id, GenerateFault::TokenOutOfRange { id: 8192, vocab: 8192 });
    assert_eq!(run(&mut session, &good).unwrap().ids, first.ids);
    let rows = session.step(&[300; 65], WantLogits::Last);
    assert!(matches!(rows, Err(Error::Generate(GenerateFault::TooManyRows { asked: 65, .. }))));
}

#[test]
fn cancelling_ends_prefill_and_decode_with_what_there_is() {
    let mut session = session(2048);
    let full = request("def f(x):\n", 30);
    let cancel = Cancel::default();
    let mut pieces = 0;
    let out = engine()
        .generate(&mut session, &full, &cancel, &mut |event| {
            if matches!(event, StreamEvent::Text(_)) {
                pieces += 1;
                if pieces == 4 {
                    cancel.cancel();
                }
            }
        })
        .unwrap();
    assert_eq!(out.finish, FinishReason::Cancelled);
    assert!((1..30).contains(&out.ids.len()));
    assert_eq!(out.text.as_bytes(), engine().tokenizer().decode(&out.ids));
    // During prefill: nothing is generated.
    let cancel = Cancel::default();
    let long = GenerateRequest::greedy(vec![300; 1500]);
    let out = engine().generate(&mut session, &long, &cancel, &mut |_| cancel.cancel()).unwrap();
    assert_eq!((out.finish, out.ids.len()), (FinishReason::Cancelled, 0));
    assert!(session.committed() < 1500);
    // The session is as good as new.
    let again = run(&mut session, &full).unwrap();
    assert_eq!(again.ids.len(), 30);
}

#[test]
fn sessions_of_one_engine_run_at_the_same_time() {
    let request = request("class LRUCache:\n", 32);
    let want = run(&mut session(256), &request).unwrap().ids;
    std::thread::scope(|scope| {
        let run = || scope.spawn(|| run(&mut session(256), &request).unwrap().ids);
        let threads: Vec<_> = (0..3).map(|_| run()).collect();
        threads.into_iter().for_each(|t| assert_eq!(t.join().unwrap(), want));
    });
}
