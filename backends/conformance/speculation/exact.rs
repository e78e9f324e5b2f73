//! Whole requests: the ids, text, end and log-probabilities of plain decoding, with any
//! drafter, any tree and any sampling.

use std::sync::{Arc, Mutex};

use foretoken::generate::{Cancel, GenerateRequest, Generation, Session, WantLogits};
use foretoken::sample::{Sampler, SamplingParams};
use foretoken::speculate::{PromptLookup, SpecLimits, SpecMode};

use crate::driver;

use super::drafters::{Script, Scripted};
use super::support::{Random, Rig, Target, alone, rig, start};

/// Contexts of the sessions: one below a split of the attention, one above.
const CONTEXTS: [usize; 2] = [100, 300];

const TEXTS: [&str; 6] = [
    "def fibonacci(n):\n    \"\"\"Return the n-th number.\"\"\"\n    if n < 2:\n        return n\n",
    "import os\nimport sys\n\nclass Reader:\n    def __init__(self, path):\n        self.path = path\n",
    "for i in range(10):\n    print(i)\nfor i in range(10):\n    print(i)\nfor i in",
    "a = [1, 2, 3]\nb = [1, 2, 3]\nc = [1, 2, 3]\nd =",
    "The access code is 1234. Remember it.\n",
    "x",
];

fn prompt(rig: &Rig, r: &mut Random, most: usize) -> Vec<u32> {
    if r.chance(30) {
        return (0..1 + r.below(most)).map(|_| r.below(8192) as u32).collect();
    }
    let mut ids = rig.encode(r.pick(&TEXTS));
    while r.chance(40) {
        ids.extend(rig.encode(r.pick(&TEXTS)));
    }
    // Now and then the prompt leaves a few tokens of the context only.
    let keep = if r.chance(10) { most } else { 1 + r.below(most) };
    while ids.len() < keep && r.chance(90) {
        ids.extend_from_within(..ids.len().min(keep - ids.len()));
    }
    ids.truncate(keep.max(1));
    ids
}

fn sampling(r: &mut Random) -> SamplingParams {
    let mut params = SamplingParams { seed: r.next(), ..SamplingParams::greedy() };
    params.temperature = r.pick(&[0.0, 0.0, 0.7, 1.3]);
    if r.chance(45) {
        // Some are decided by the best candidates, some not, some for a row here and there.
        params.top_k = r.pick(&[0, 1, 5, 40, 300]);
        params.top_p = r.pick(&[1.0, 0.9, 0.3]);
        params.min_p = r.pick(&[0.0, 0.05]);
    }
    if r.chance(35) {
        params.repetition_penalty = r.pick(&[1.0, 1.3, 0.8]);
        params.frequency_penalty = r.pick(&[0.0, 0.7, -0.5]);
        params.presence_penalty = r.pick(&[0.0, 0.9]);
        params.penalty_last_n = r.pick(&[64, 8, -1]);
    }
    if r.chance(15) {
        params.logit_bias = vec![(258, -3.0), (310, 2.5), (r.below(8192) as u32, 6.0)];
    }
    params
}

fn run(rig: &Rig, session: &mut Session, request: &GenerateRequest) -> Generation {
    rig.engine.generate(session, request, &Cancel::default(), &mut |_| {}).unwrap()
}

fn assert_same(plain: &Generation, other: &Generation, what: &str) {
    assert_eq!(plain.ids, other.ids, "{what}");
    assert_eq!(plain.text, other.text, "{what}");
    assert_eq!(plain.finish, other.finish, "{what}");
    assert_eq!(plain.logprobs, other.logprobs, "{what}");
}

/// The sessions of one target.
struct Sessions {
    plain: Vec<Session>,
    scripted: Vec<Session>,
    lookup: Vec<Session>,
    dflash: Vec<Session>,
    script: Arc<Mutex<Script>>,
    /// Tokens whose choice the device left to the host.
    left: u64,
}

fn left(generation: &Generation) -> u64 {
    let fallbacks = generation.stats.fallbacks.iter();
    fallbacks.filter(|f| f.what.starts_with("sampling on the device")).map(|f| f.count).sum()
}

impl Sessions {
    fn new(rig: &Rig) -> Self {
        let script = Arc::new(Mutex::new(Script::Silent));
        let all = |make: &dyn Fn(usize) -> Session| CONTEXTS.iter().map(|&c| make(c)).collect();
        Self {
            plain: all(&|c| rig.plain(c)),
            scripted: all(&|c| rig.speculative(c, Scripted::new(&script))),
            lookup: all(&|c| rig.speculative(c, Box::new(PromptLookup::new(15).unwrap()))),
            dflash: all(&|c| rig.speculative(c, rig.dflash())),
            script,
            left: 0,
        }
    }

    /// One random request, plain and speculative. Returns rows accepted beyond one a step.
    fn case(&mut self, rig: &Rig, r: &mut Random, number: usize) -> usize {
        let size = r.below(CONTEXTS.len());
        let context = CONTEXTS[size];
        let mut request = GenerateRequest {
            max_tokens: Some(1 + r.below(20)),
            sampling: sampling(r),
            ignore_eos: r.chance(70),
            logprobs: r.chance(15).then_some(2),
            ..GenerateRequest::greedy(prompt(rig, r, context - 1))
        };
        request.speculation.mode = SpecMode::Off;
        let mut plain = run(rig, &mut self.plain[size], &request);
        if r.chance(25) && plain.text.chars().count() > 4 {
            // A stop string from the middle of the answer.
            let chars: Vec<char> = plain.text.chars().collect();
            let at = r.below(chars.len() - 1);
            let stop: String = chars[at..].iter().take(1 + r.below(4)).collect();
            request.stop_strings = vec![stop.into_bytes(), b"\0never".to_vec()];
            plain = run(rig, &mut self.plain[size], &request);
        }
        let (draft_len, tree_budget) = (1 + r.below(15), 1 + r.below(63));
        request.speculation.limits = SpecLimits::new(draft_len, tree_budget).unwrap();
        request.speculation.mode =
            r.pick(&[SpecMode::Chain, SpecMode::Tree, SpecMode::Tree, SpecMode::Auto]);
        let answer = [&request.prompt[..], &plain.ids].concat();
        let (session, drafter) = match r.below(8) {
            0 => (&mut self.lookup[size], "lookup".to_owned()),
            1 | 2 => (&mut self.dflash[size], "dflash".to_owned()),
            n => {
                let script = match n {
                    3 => Script::Garbage,
                    4 if r.chance(30) => Script::Silent,
                    _ => Script::Knows(answer, r.pick(&[60, 90, 100])),
                };
                let name = format!("{script:?}");
                *self.script.lock().unwrap() = script;
                (&mut self.scripted[size], name)
            }
        };
        let speculative = run(rig, session, &request);
        let what = format!("case {number}: {drafter}, {:?}, {:?}", request.speculation, request);
        assert_same(&plain, &speculative, &what);
        self.left += left(&plain) + left(&speculative);
        speculative.stats.generated_tokens.saturating_sub(speculative.stats.steps + 1)
    }
}

fn cases(target: Target, count: usize, seed: u64) {
    let Some(rig) = rig(target) else { return };
    let mut r = Random(seed);
    let mut sessions = Sessions::new(rig);
    let gained: usize = (0..count).map(|number| sessions.case(rig, &mut r, number)).sum();
    // The drafters that know the answer make most steps commit several tokens: were
    // nothing ever accepted, this test would prove nothing.
    assert!(gained > count, "{gained} tokens gained in {count} requests");
    // The device and the host took turns in some.
    assert!(sessions.left > 0, "none of {count} requests left a token to the host");
}

#[test]
fn ids_are_those_of_plain_decoding_q4() {
    let _alone = alone();
    cases(Target::Q4, driver::REQUESTS * 3 / 4, 2024);
}

#[test]
fn ids_are_those_of_plain_decoding_bf16() {
    let _alone = alone();
    cases(Target::Bf16, driver::REQUESTS / 4, 2025);
}

/// Every chain length and a spread of budgets, greedy, on one prompt.
#[test]
fn every_length_and_budget() {
    let _alone = alone();
    let Some(rig) = rig(Target::Q4) else { return };
    let mut request = GenerateRequest {
        max_tokens: Some(40),
        ignore_eos: true,
        ..GenerateRequest::greedy(rig.encode(TEXTS[0]))
    };
    request.speculation.mode = SpecMode::Off;
    let plain = run(rig, &mut rig.plain(256), &request);
    let mut session = rig.speculative(256, rig.dflash());
    for draft_len in 1..=15 {
        request.speculation.mode = SpecMode::Chain;
        request.speculation.limits = SpecLimits::new(draft_len, 1).unwrap();
        assert_same(&plain, &run(rig, &mut session, &request), &format!("chain {draft_len}"));
    }
    for tree_budget in 1..=63 {
        request.speculation.mode = SpecMode::Tree;
        request.speculation.limits = SpecLimits::new(1, tree_budget).unwrap();
        assert_same(&plain, &run(rig, &mut session, &request), &format!("tree {tree_budget}"));
    }
}

/// A sampled token is what a sampler chooses from the logits that a plain step leaves,
/// whoever chooses.
#[test]
fn plain_answers_are_the_sampler_s() {
    let _alone = alone();
    let Some(rig) = rig(Target::Q4) else { return };
    let mut session = rig.plain(128);
    let mut r = Random(77);
    for _ in 0..40 {
        let request = GenerateRequest {
            max_tokens: Some(12),
            sampling: sampling(&mut r),
            ignore_eos: true,
            ..GenerateRequest::greedy(prompt(rig, &mut r, 60))
        };
        let answer = run(rig, &mut session, &request);
        let mut sampler = Sampler::new(request.sampling.clone(), 8192).unwrap();
        let mut history = request.prompt.clone();
        let mut pending = start(&mut session, &history);
        for (i, &id) in answer.ids.iter().enumerate() {
            if i > 0 {
                session.step(&[pending], WantLogits::Last).unwrap();
            }
            let position = history.len() as u64;
            let logits = session.read_logits().unwrap();
            pending = sampler.choose_id(logits, &history, position).unwrap();
            assert_eq!(id, pending, "token {i} of {request:?}");
            history.push(pending);
        }
    }
}

/// The comparison can fail: another seed gives another answer.
#[test]
fn the_comparison_notices() {
    let _alone = alone();
    let Some(rig) = rig(Target::Q4) else { return };
    let request = |seed| GenerateRequest {
        max_tokens: Some(20),
        sampling: SamplingParams { temperature: 1.3, seed, ..SamplingParams::greedy() },
        ..GenerateRequest::greedy(rig.encode(TEXTS[0]))
    };
    let mut session = rig.speculative(256, rig.dflash());
    let one = run(rig, &mut session, &request(1));
    assert_ne!(one.ids, run(rig, &mut session, &request(2)).ids);
    assert_eq!(one.ids, run(rig, &mut session, &request(1)).ids);
}
