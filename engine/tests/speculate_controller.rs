//! The controller against made-up devices and drafters whose best choice is known.
//!
//! Rates are held against those that the true chances and times give on average. Played
//! stretches are random, so limits leave room for their spread: over 4000 tokens the mean
//! of accepted lengths has a standard error below 3 %.

use foretoken::speculate::{Choice, Decision, Outcome, Reason, SpecLimits, SpecMode};

mod speculate_support;
use speculate_support::{Played, Random, World, play};

fn limits() -> SpecLimits {
    SpecLimits::new(15, 32).unwrap()
}

fn auto(world: &World, tokens: usize, seed: u64) -> Played {
    let mut controller = world.controller(SpecMode::Auto, limits());
    play(world, &mut controller, tokens, &mut Random(seed))
}

#[test]
fn a_good_drafter_is_used_about_as_well_as_can_be() {
    let mut worlds: Vec<(String, World)> = Vec::new();
    for rate in [0.5, 0.7, 0.85, 0.95] {
        worlds.push((format!("flat {rate}"), World::flat(rate)));
        for row_s in [0.03, 0.1, 0.3] {
            worlds.push((format!("{row_s} a row, {rate}"), World::linear(rate, row_s)));
        }
        let useless_siblings = World { siblings: 1.0, ..World::flat(rate) };
        worlds.push((format!("chains are best, {rate}"), useless_siblings));
        let good_siblings = World { siblings: 0.7, ..World::flat(rate) };
        worlds.push((format!("trees are best, {rate}"), good_siblings));
    }
    for (name, world) in worlds {
        let (best, rate) = world.oracle(limits());
        let got: [f64; 6] =
            std::array::from_fn(|seed| auto(&world, 4000, seed as u64).rate() / rate);
        let mean = got.iter().sum::<f64>() / got.len() as f64;
        let worst = got.iter().fold(1.0f64, |worst, &got| worst.min(got));
        // What it costs to find out, and to tell near equals apart by a few dozen steps.
        assert!(mean > 0.92 && worst > 0.85, "{name}: {best} gives {rate:.2}, got {got:.3?}");
    }
}

#[test]
fn a_useless_drafter_costs_less_than_five_percent() {
    for (name, world) in [
        ("flat", World::flat(0.02)),
        ("none accepted", World::flat(0.0)),
        ("linear", World::linear(0.05, 0.3)),
        ("a row costs a step", World::linear(0.7, 1.0)),
        ("slow draft", World { draft_s: 3.0, ..World::flat(0.02) }),
        ("very slow draft", World { draft_s: 20.0, ..World::flat(0.3) }),
        ("nearly breaks even", World::flat(0.2)),
    ] {
        for seed in 0..6 {
            let played = auto(&world, 2000, seed);
            let speed = played.rate() * world.plain_s;
            assert!(speed > 0.95, "{name}, seed {seed}: {speed:.3} of plain speed");
        }
    }
}

#[test]
fn a_short_request_with_a_useless_drafter_loses_a_few_steps() {
    for seed in 0..20 {
        let world = World::flat(0.02);
        let played = auto(&world, 100, seed);
        assert!(played.seconds < 108.0, "seed {seed}: {:.1} s for 100 steps", played.seconds);
    }
}

#[test]
fn wrong_measurements_do_not_make_it_slow() {
    // Measured on an idle machine: verify passes look three times cheaper than they are.
    let world = World { noise: 1.1, ..World::linear(0.6, 0.05) };
    let busy = World { base_s: 3.0, row_s: 0.3, ..world.clone() };
    for seed in 0..6 {
        let mut controller = world.controller(SpecMode::Auto, limits());
        let speed = play(&busy, &mut controller, 2000, &mut Random(seed)).rate();
        assert!(speed > 0.95, "seed {seed}: {speed:.3} of plain speed");
    }
    // Measured on a busy one: plain steps look three times slower than they are, so that
    // speculation seems to win when it loses.
    let world = World { plain_s: 3.0, ..World::linear(0.3, 0.1) };
    let idle = World { plain_s: 1.0, base_s: 2.0, ..world.clone() };
    for seed in 0..6 {
        let mut controller = world.controller(SpecMode::Auto, limits());
        let speed = play(&idle, &mut controller, 2000, &mut Random(seed)).rate();
        assert!(speed > 0.95, "seed {seed}: {speed:.3} of plain speed");
    }
}

#[test]
fn it_adapts_when_acceptance_changes() {
    let (good, bad) = (World::flat(0.85), World::flat(0.02));
    for seed in 0..6 {
        let mut random = Random(seed);
        let mut controller = good.controller(SpecMode::Auto, limits());
        play(&good, &mut controller, 1000, &mut random);
        let after_good = play(&bad, &mut controller, 2000, &mut random);
        let speed = after_good.rate() * bad.plain_s;
        assert!(speed > 0.95, "seed {seed}: {speed:.3} of plain speed after the change");
        // From long failure back to success.
        let after_bad = play(&good, &mut controller, 3000, &mut random);
        let found = after_bad.steps.iter().position(|s| s.1.accepted >= 1).unwrap();
        // The longest wait, and what it takes until losses are made up for.
        assert!(found <= 400, "seed {seed}: first success after {found} steps");
        let rest = play(&good, &mut controller, 3000, &mut random).rate();
        let (_, best) = good.oracle(limits());
        assert!(rest > 0.88 * best, "seed {seed}: {rest:.2} of {best:.2}");
    }
}

#[test]
fn it_follows_costs_that_grow_with_the_context() {
    // Wide passes become dear, plain steps do not.
    let mut world = World::flat(0.8);
    let mut controller = world.controller(SpecMode::Auto, limits());
    let mut random = Random(3);
    play(&world, &mut controller, 1000, &mut random);
    for _ in 0..40 {
        world.row_s += 0.01;
        play(&world, &mut controller, 50, &mut random);
    }
    let (best, rate) = world.oracle(limits());
    let got = play(&world, &mut controller, 4000, &mut random).rate();
    assert!(got > 0.88 * rate, "{best}: {rate:.2}, got {got:.2}");
}

#[test]
fn it_does_not_thrash() {
    for (name, world, most) in [
        ("useless", World::flat(0.0), 0.05),
        ("good", World::flat(0.8), 0.2),
        // Two thirds of the lengths are as good as equal here.
        ("breaks even", World::flat(0.18), 0.2),
    ] {
        for seed in 0..6 {
            let mut controller = world.controller(SpecMode::Auto, limits());
            let mut random = Random(seed);
            play(&world, &mut controller, 300, &mut random);
            let played = play(&world, &mut controller, 3000, &mut random);
            let turns = played.turns() as f64 / played.steps.len() as f64;
            assert!(turns <= most, "{name}, seed {seed}: {turns:.3} turns per step");
        }
    }
}

#[test]
fn probes_lose_at_most_two_percent() {
    for draft_s in [0.2, 1.0, 4.0] {
        let world = World { draft_s, noise: 1.0, ..World::flat(0.0) };
        let played = auto(&world, 5000, 1);
        let probes = played.steps.iter().filter(|s| s.0.reason == Reason::Probe);
        let lost: f64 = probes.map(|s| s.1.total_s - world.plain_s).sum();
        // 4 plain steps are there from the start.
        assert!(lost <= 0.02 * played.seconds + 4.0, "{lost} of {}", played.seconds);
        assert!(lost > 0.0, "it goes on looking");
    }
}

#[test]
fn equal_outcomes_give_equal_decisions() {
    let world = World::flat(0.7);
    let (one, two) = (auto(&world, 2000, 9), auto(&world, 2000, 9));
    assert_eq!(one.steps, two.steps);
}

#[test]
fn forced_modes_obey() {
    let world = World::flat(0.0);
    for (mode, choice) in [
        (SpecMode::Off, Choice::Plain),
        (SpecMode::Chain, Choice::Chain { len: 15 }),
        (SpecMode::Tree, Choice::Tree { budget: 32 }),
    ] {
        let mut controller = world.controller(mode, limits());
        let played = play(&world, &mut controller, 500, &mut Random(0));
        let asked = Decision { choice, reason: Reason::Asked };
        assert!(played.steps.iter().all(|s| s.0 == asked), "{mode}");
        // Only the end cuts them.
        for (left, most) in [(33, 32), (16, 15), (5, 4), (2, 1)] {
            let drafts = choice.drafts().min(most);
            assert_eq!(controller.choose(left).choice.drafts(), drafts, "{mode}, {left} left");
        }
        for left in [0, 1] {
            assert_eq!(controller.choose(left).choice, Choice::Plain);
        }
    }
    let long = SpecLimits::new(63, 63).unwrap();
    let mut controller = world.controller(SpecMode::Chain, long);
    assert_eq!(controller.choose(100).choice, Choice::Chain { len: 15 });
}

#[test]
fn limits_and_the_end_hold_in_auto() {
    let world = World::flat(0.95);
    for (draft_len, budget) in [(1, 1), (2, 9), (15, 32), (63, 63)] {
        let limits = SpecLimits::new(draft_len, budget).unwrap();
        let mut controller = world.controller(SpecMode::Auto, limits);
        let mut random = Random(4);
        for step in 0..2000 {
            let left = if step % 3 == 0 { step % 40 } else { 1000 };
            let decision = controller.choose(left);
            let drafts = decision.choice.drafts();
            assert!(drafts < left.max(1), "{decision} with {left} left");
            match decision.choice {
                Choice::Plain => {}
                Choice::Chain { len } => assert!((1..=draft_len.min(15)).contains(&len)),
                Choice::Tree { budget: asked } => assert!((1..=budget).contains(&asked)),
            }
            assert_eq!(left <= 1, decision.reason == Reason::LastToken);
            controller.observe(&world.step(decision.choice, &mut random));
        }
    }
}

#[test]
fn without_positions_all_is_plain() {
    let world = World { positions: 0, ..World::flat(0.0) };
    for mode in SpecMode::ALL {
        let mut controller = world.controller(mode, limits());
        assert_eq!(controller.choose(100).choice, Choice::Plain);
        assert_eq!(controller.mode(), SpecMode::Off);
    }
}

/// A drafter that often has nothing, as a lookup: when it has something, it is good.
#[test]
fn a_drafter_that_often_proposes_nothing_is_still_asked() {
    let world = World { draft_s: 0.001, ..World::flat(0.8) };
    let mut controller = world.controller(SpecMode::Auto, limits());
    let mut random = Random(5);
    let (mut tokens, mut seconds, mut used, mut had) = (0, 0.0, 0, 0);
    for _ in 0..3000 {
        let has = random.unit() < 0.2;
        let decision = controller.choose(1000);
        let given = if has { decision.choice } else { Choice::Plain };
        let outcome = Outcome { choice: decision.choice, ..world.step(given, &mut random) };
        controller.observe(&outcome);
        tokens += outcome.tokens();
        seconds += outcome.total_s;
        had += usize::from(has);
        used += usize::from(outcome.is_speculative());
    }
    assert!(used as f64 > 0.9 * had as f64, "{used} of {had} proposals used");
    let (best, _) = world.oracle(limits());
    let expected = (0.8 + 0.2 * world.tokens(best)) / (0.8 + 0.2 * world.step_s(best));
    let rate = tokens as f64 / seconds;
    assert!(rate > 0.9 * expected, "{rate:.2} of {expected:.2}");
}

#[test]
fn hostile_outcomes_leave_it_working() {
    let world = World::flat(0.8);
    let mut controller = world.controller(SpecMode::Auto, limits());
    let mut random = Random(6);
    let values = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 0.0, 1e300];
    for turn in 0..600 {
        let decision = controller.choose(1000);
        let value = |n: usize| values[(turn / (n * n + 1)) % values.len()];
        controller.observe(&Outcome {
            choice: decision.choice,
            drafted_rows: if turn % 2 == 0 { usize::MAX } else { 0 },
            depth: usize::MAX,
            accepted: usize::MAX,
            draft_s: value(0),
            verify_s: value(1),
            commit_s: value(2),
            total_s: value(3),
        });
        let estimate = controller.estimate(decision.choice);
        assert!(estimate.rate().is_finite() && estimate.seconds > 0.0, "{estimate:?}");
    }
    let rate = play(&world, &mut controller, 4000, &mut random).rate();
    assert!(rate > 0.95, "{rate}");
}

#[test]
fn a_new_request_starts_from_what_was_learnt() {
    let world = World::flat(0.02);
    let mut controller = world.controller(SpecMode::Auto, limits());
    let mut random = Random(7);
    play(&world, &mut controller, 500, &mut random);
    controller.next_request();
    let next = play(&world, &mut controller, 50, &mut random);
    assert!(next.seconds < 53.0, "{} s for 50 steps", next.seconds);
    // And the other way: a good start is not lost.
    let world = World::flat(0.9);
    let mut controller = world.controller(SpecMode::Auto, limits());
    play(&world, &mut controller, 2000, &mut random);
    controller.next_request();
    let next = play(&world, &mut controller, 100, &mut random);
    assert!(next.rate() > 0.8 * world.oracle(limits()).1, "{}", next.rate());
}
