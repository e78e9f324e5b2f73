//! Small trees against all prefixes there are, sorted.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::HashMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::driver;

use super::builder::{Builder, Row};

const MOST: usize = 4;
const CAPACITY: usize = 16;
const VOCAB: usize = 500;

/// A small draft and its limits.
#[derive(Clone, Debug)]
struct Draft {
    positions: usize,
    k: usize,
    ids: Vec<i32>,
    scores: Vec<f32>,
    limits: [i32; 4],
}

fn drafts() -> impl Strategy<Value = Draft> {
    let shape = (1..=MOST, 1..=MOST, prop_oneof![Just(2u32), Just(5), Just(100_000)]);
    shape.prop_flat_map(|(positions, k, levels)| {
        let n = positions * k;
        // One id in forty and one score in forty are out of order.
        let id = prop_oneof![39 => 0..VOCAB as i32, 1 => any::<i32>()];
        let score = prop_oneof![
            // Sums of quarters are exact, so that equal sums are ties.
            39 => (0..levels).prop_map(|x| -0.25 * x as f32),
            1 => prop_oneof![Just(f32::NEG_INFINITY), Just(f32::NAN), Just(f32::INFINITY)],
        ];
        let ids = prop::collection::vec(id, n);
        let scores = prop::collection::vec(score, n);
        // Mostly all there is, so that trees are more than a few rows.
        let limit = || prop_oneof![3 => Just(MOST as i32), 1 => -1..6];
        let limits = (-1..20, limit(), limit(), prop_oneof![Just(0), -1..6]);
        (ids, scores, limits).prop_map(move |(ids, mut scores, (budget, depth, used, chain))| {
            for list in scores.chunks_exact_mut(k) {
                // Descending, with NaN and infinity where they fell.
                let mut good: Vec<f32> = list.iter().copied().filter(|x| *x <= 0.0).collect();
                good.sort_by(|a, b| b.total_cmp(a));
                let places = list.iter_mut().filter(|x| **x <= 0.0);
                places.zip(good).for_each(|(place, x)| *place = x);
            }
            Draft { positions, k, ids, scores, limits: [budget, depth, used, chain] }
        })
    })
}

type Ranks = Vec<usize>;

/// All prefixes, sorted by score and then `ties`; the chain, then the best of them.
fn brute_force(draft: &Draft, chain: bool, ties: fn(&Ranks, &Ranks) -> Ordering) -> Vec<Row> {
    let [budget, depth, used, seed] = draft.limits.map(|x| x.max(0) as usize);
    let budget = budget.min(CAPACITY - 1);
    let valid =
        |at: usize| (0..VOCAB as i32).contains(&draft.ids[at]) && draft.scores[at] < f32::INFINITY;
    let mut all: Vec<(f64, Ranks)> = vec![(0.0, vec![])];
    let mut start = 0;
    for position in 0..depth.min(used).min(draft.positions) {
        let end = all.len();
        for at in start..end {
            let (sum, ranks) = all[at].clone();
            for rank in (0..draft.k).take_while(|r| valid(position * draft.k + r)) {
                let score = f64::from(draft.scores[position * draft.k + rank]);
                all.push((sum + score, [&ranks[..], &[rank]].concat()));
            }
        }
        start = end;
    }
    all.sort_by(|a, b| b.0.partial_cmp(&a.0).unwrap().then_with(|| ties(&a.1, &b.1)));
    let seed = if chain { seed.min(budget) } else { 0 };
    let seeded = |ranks: &Ranks| ranks.len() <= seed && ranks.iter().all(|&r| r == 0);
    let mut rows: Vec<Ranks> = all.iter().map(|p| p.1.clone()).filter(seeded).collect();
    rows.sort_by_key(Vec::len);
    rows.extend(all.into_iter().map(|p| p.1).filter(|r| !seeded(r)));
    rows.truncate(1 + budget);
    let row = |ranks: &Ranks| match ranks.split_last() {
        None => (0, -1, 0),
        Some((rank, above)) => {
            let parent = rows.iter().position(|r| r == above).map_or(-9, |p| p as i32);
            (draft.ids[above.len() * draft.k + rank], parent, ranks.len() as i32)
        }
    };
    rows.iter().map(row).collect()
}

#[test]
fn ten_thousand_trees_are_the_best_there_are() {
    let Some(device) = driver::open() else { return };
    let builders: RefCell<HashMap<(usize, usize), Builder>> = RefCell::default();
    // Trees that another order of ties, or no chain, would change.
    let (by_ties, by_chain) = (RefCell::new(0), RefCell::new(0));
    let config = Config { cases: 10_000, failure_persistence: None, ..Config::default() };
    TestRunner::new(config)
        .run(&drafts(), |draft| {
            let (shape, mut builders) = ((draft.positions, draft.k), builders.borrow_mut());
            let new = || Builder::new(&*device, shape.0, shape.1, CAPACITY, VOCAB);
            let builder = builders.entry(shape).or_insert_with(new);
            let got = builder.build(&draft.ids, &draft.scores, draft.limits);
            let want = brute_force(&draft, true, Ord::cmp);
            prop_assert_eq!(&got, &want);
            // Shorter first, or a row might come before its parent.
            let reverse = |a: &Ranks, b: &Ranks| a.len().cmp(&b.len()).then(b.cmp(a));
            *by_ties.borrow_mut() += i32::from(brute_force(&draft, true, reverse) != want);
            *by_chain.borrow_mut() += i32::from(brute_force(&draft, false, Ord::cmp) != want);
            Ok(())
        })
        .unwrap();
    let (by_ties, by_chain) = (by_ties.take(), by_chain.take());
    assert!(by_ties > 1000 && by_chain > 200, "{by_ties} by ties, {by_chain} by the chain");
}
