//! Growing trees.

use crate::kernel::{Cursor, TreeBuild, TreeLimits, TreeRows};
use crate::tensor::Tensor;
use crate::testing::fault::CaseFault;
use crate::testing::reference::{Candidates, log_sum_exp};
use crate::testing::report::Runner;
use crate::testing::rig::Rig;

const BUDGETS: [usize; 8] = [0, 1, 2, 7, 16, 22, 40, 63];
const WIDTHS: [usize; 8] = [1, 2, 3, 5, 8, 22, 40, 63];
const VOCAB: usize = 1000;
const PENDING: i32 = 77;
const COMMITTED: i32 = 1234;

pub(super) fn all(run: &mut Runner<'_>) {
    for (b, budget) in BUDGETS.into_iter().enumerate() {
        for p in 1..=16 {
            let name = format!("tree_build/b={budget}/p={p}");
            run.case(name, |rig| {
                for (k, ties) in [(WIDTHS[(b + p) % 8], false), (WIDTHS[(b * 3 + p + 5) % 8], true)]
                {
                    let candidates = candidates(rig, p, k, ties);
                    // Exactly enough rows, too few, or as many as there can be.
                    let capacity = [budget + 1, (budget + 1).div_ceil(2), TreeRows::MAX][p % 3];
                    let limits = [budget, p, p, 0].map(|x| x as i32);
                    check(rig, &candidates, capacity, limits, COMMITTED)?;
                }
                Ok(())
            });
        }
        run.case(format!("tree_build/chain/b={budget}"), |rig| chains(rig, budget as i32));
    }
    run.case("tree_build/shallow".into(), shallow);
    run.case("tree_build/limits".into(), limits);
    run.case("tree_build/ends of lists".into(), ends);
    run.case("tree_build/minus infinity".into(), minus_infinity);
    run.case("tree_build/close".into(), close);
    run.case("tree_build/any bits".into(), any_bits);
    run.case("tree_build/last position".into(), |rig| {
        let candidates = candidates(rig, 3, 4, false);
        check(rig, &candidates, 64, [30, 3, 3, 3], i32::MAX - 3)
    });
    run.case("tree_build/operands".into(), operands);
}

/// Descending scores of `p` positions. With `ties` they are log-probabilities of four
/// values, else logits with their logarithmic sums.
fn candidates(rig: &mut Rig<'_>, p: usize, k: usize, ties: bool) -> Candidates {
    let (mut scores, mut sums) = (Vec::new(), Vec::new());
    for _ in 0..p {
        let mut list: Vec<f32> = match ties {
            true => (0..k).map(|_| -0.5 * rig.rng.below(4) as f32).collect(),
            false => rig.rng.floats_between(k, -4.0, 6.0),
        };
        list.sort_by(|a, b| b.total_cmp(a));
        // The rest of the vocabulary has a share too.
        sums.push((log_sum_exp(&list) + 0.1) as f32);
        scores.extend(list);
    }
    Candidates {
        k,
        ids: (0..p * k).map(|_| rig.rng.below(VOCAB) as i32).collect(),
        scores,
        log_sum_exp: (!ties).then_some(sums),
        vocab: VOCAB,
    }
}

/// An operation on new tensors.
fn operation(
    rig: &mut Rig<'_>,
    from: &Candidates,
    capacity: usize,
    limits: [i32; 4],
    committed: i32,
) -> crate::Result<TreeBuild> {
    let positions = from.ids.len() / from.k;
    let sums = from.log_sum_exp.as_ref();
    let log_sum_exp = sums.map(|sums| rig.f32("log_sum_exp", &[positions], sums)).transpose()?;
    Ok(TreeBuild {
        cursor: Cursor(rig.i32("cursor", &[Cursor::WORDS], &[committed, PENDING, 5, 6])?),
        limits: TreeLimits(rig.i32("limits", &[TreeLimits::WORDS], &limits)?),
        ids: rig.i32("ids", &[positions, from.k], &from.ids)?,
        scores: rig.f32("scores", &[positions, from.k], &from.scores)?,
        log_sum_exp,
        vocab: from.vocab,
        control: rig.control([0; 4])?,
        tokens: rig.stale("tokens", &[capacity])?,
        positions: rig.stale("positions", &[capacity])?,
        tree: TreeRows {
            parents: rig.stale("parents", &[capacity])?,
            depths: rig.stale("depths", &[capacity])?,
            masks: rig.stale("masks", &[capacity, 2])?,
        },
    })
}

/// Builds a tree and compares everything about it.
fn check(
    rig: &mut Rig<'_>,
    from: &Candidates,
    capacity: usize,
    limits: [i32; 4],
    committed: i32,
) -> Result<(), CaseFault> {
    let growth = from.growth(capacity, limits);
    let rows = growth.rows();
    if growth.rows_by_enumeration().is_some_and(|other| other != rows) {
        return Err(CaseFault::Blind("two references that differ"));
    }
    let op = operation(rig, from, capacity, limits, committed)?;
    rig.launch(op.clone())?;
    let row_of = |ranks: &[usize]| rows.iter().position(|r| r == ranks).map_or(-2, |r| r as i32);
    let (mut tokens, mut parents, mut masks) = (vec![PENDING], vec![-1], vec![1, 0]);
    for ranks in &rows[1..] {
        let depth = ranks.len();
        tokens.push(from.ids[(depth - 1) * from.k + ranks[depth - 1]]);
        parents.push(row_of(&ranks[..depth - 1]));
        let mask = (0..=depth).fold(0u64, |mask, n| mask | 1 << row_of(&ranks[..n]));
        masks.extend([mask as i32, (mask >> 32) as i32]);
    }
    let depths: Vec<i32> = rows.iter().map(|ranks| ranks.len() as i32).collect();
    let positions: Vec<i32> = depths.iter().map(|depth| committed + depth).collect();
    let live = rows.len() as i32;
    rig.expect_i32("control", &op.control.0, &[live, committed, 0, live])?;
    rig.expect_i32("parents", &op.tree.parents, &parents)?;
    rig.expect_i32("tokens", &op.tokens, &tokens)?;
    rig.expect_i32("depths", &op.tree.depths, &depths)?;
    rig.expect_i32("positions", &op.positions, &positions)?;
    rig.expect_i32("masks", &op.tree.masks, &masks)?;
    rig.expect_i32("cursor", &op.cursor.0, &[committed, PENDING, 5, 6])
}

/// A chain ahead of the rest: shorter and longer than budget, depth and positions.
fn chains(rig: &mut Rig<'_>, budget: i32) -> Result<(), CaseFault> {
    for chain in [1, 2, 3, 7, 15, 63] {
        for ties in [false, true] {
            let candidates = candidates(rig, 15, 8, ties);
            for (depth, positions) in [(15, 15), (4, 15), (15, 2)] {
                check(rig, &candidates, 64, [budget, depth, positions, chain], COMMITTED)?;
            }
        }
    }
    Ok(())
}

/// Fewer positions than were drafted, less depth than positions, less budget than
/// depth, fewer prefixes than budget.
fn shallow(rig: &mut Rig<'_>) -> Result<(), CaseFault> {
    for ties in [false, true] {
        let candidates = candidates(rig, 12, 3, ties);
        for limits in [[22, 12, 5, 0], [22, 3, 12, 0], [4, 12, 12, 0], [63, 2, 9, 0]] {
            check(rig, &candidates, 64, limits, COMMITTED)?;
        }
    }
    Ok(())
}

/// Each limit negative, zero and huge.
fn limits(rig: &mut Rig<'_>) -> Result<(), CaseFault> {
    let candidates = candidates(rig, 6, 5, false);
    for word in 0..TreeLimits::WORDS {
        for value in [i32::MIN, -1, 0, 64, 65, i32::MAX] {
            for capacity in [1, 2, 20, 64] {
                let mut limits = [30, 4, 5, 2];
                limits[word] = value;
                check(rig, &candidates, capacity, limits, 0)?;
            }
        }
    }
    check(rig, &candidates, 64, [i32::MAX; 4], 0)?;
    check(rig, &candidates, 64, [i32::MIN; 4], 0)
}

/// Candidates that end a list, in every place.
fn ends(rig: &mut Rig<'_>) -> Result<(), CaseFault> {
    let (p, k) = (5, 4);
    let whole = candidates(rig, p, k, false);
    for chain in [0, 4] {
        for at in 0..p * k {
            for id in [-1, VOCAB as i32, i32::MIN, i32::MAX] {
                let mut spoilt = whole.clone();
                spoilt.ids[at] = id;
                check(rig, &spoilt, 64, [40, 5, 5, chain], COMMITTED)?;
            }
            for score in [f32::NAN, -f32::NAN, f32::INFINITY] {
                let mut spoilt = whole.clone();
                spoilt.scores[at] = score;
                check(rig, &spoilt, 64, [40, 5, 5, chain], COMMITTED)?;
            }
            for sum in [f32::NAN, f32::NEG_INFINITY] {
                let mut spoilt = whole.clone();
                spoilt.log_sum_exp.iter_mut().for_each(|sums| sums[at / k] = sum);
                check(rig, &spoilt, 64, [40, 5, 5, chain], COMMITTED)?;
            }
        }
    }
    Ok(())
}

/// Impossible candidates come last, by their ranks.
fn minus_infinity(rig: &mut Rig<'_>) -> Result<(), CaseFault> {
    let (p, k) = (4, 3);
    for at in 0..p * k {
        let mut candidates = candidates(rig, p, k, at % 2 == 0);
        candidates.scores[at..(at / k + 1) * k].fill(f32::NEG_INFINITY);
        for budget in [5, 20, 63] {
            check(rig, &candidates, 64, [budget, 4, 4, 0], COMMITTED)?;
        }
    }
    let mut candidates = candidates(rig, 16, 5, true);
    candidates.scores.fill(f32::NEG_INFINITY);
    check(rig, &candidates, 64, [63, 16, 16, 0], COMMITTED)
}

/// Prefixes that only F64 tells apart: with the sum of logarithms subtracted, or
/// summed with a much larger score, F32 would call them equal.
fn close(rig: &mut Rig<'_>) -> Result<(), CaseFault> {
    let eps = f32::EPSILON;
    for (scores, log_sum_exp) in [
        ([1.0, 1.0 - eps, 1.0, 1.0 - 2.0 * eps, 1.0, 0.0], Some(vec![1e3, 1e3, 1e4])),
        ([-1.0, -1.0 - eps, -1.0, -1.0 - 2.0 * eps, -1e4, -2e4], None),
    ] {
        let (ids, scores) = (vec![1, 2, 3, 4, 5, 6], scores.to_vec());
        let candidates = Candidates { k: 2, ids, scores, log_sum_exp, vocab: VOCAB };
        check(rig, &candidates, 64, [63, 3, 3, 0], COMMITTED)?;
    }
    Ok(())
}

/// Scores in no order, of any size and sign.
fn any_bits(rig: &mut Rig<'_>) -> Result<(), CaseFault> {
    for round in 0..40 {
        let (p, k) = (1 + rig.rng.below(16), 1 + rig.rng.below(20));
        let mut candidates = candidates(rig, p, k, false);
        for score in &mut candidates.scores {
            *score = match round % 2 {
                0 => f32::from_bits(rig.rng.next() as u32),
                _ => rig.rng.between(-3.0, 3.0),
            };
        }
        let chain = rig.rng.below(4) as i32;
        check(rig, &candidates, 64, [63, 16, 16, chain], COMMITTED)?;
    }
    Ok(())
}

fn operands(rig: &mut Rig<'_>) -> Result<(), CaseFault> {
    let candidates = candidates(rig, 3, 4, false);
    let good = operation(rig, &candidates, 8, [7, 3, 3, 0], 0)?;
    let wrong = |change: fn(&mut TreeBuild, Tensor), tensor: &Tensor| {
        let mut op = good.clone();
        change(&mut op, tensor.clone());
        op
    };
    let flat = rig.stale("flat", &[4])?;
    rig.refuses(wrong(|op, t| op.scores = t, &flat), "scores are not [P, k]")?;
    rig.refuses(wrong(|op, t| op.log_sum_exp = Some(t), &flat), "there are too many sums")?;
    rig.refuses(wrong(|op, t| op.tree.masks = t, &flat), "masks are not [M, 2]")?;
    rig.refuses(wrong(|op, _| op.limits.0 = op.tokens.clone(), &flat), "limits are not [4]")?;
    rig.refuses(wrong(|op, _| op.positions = op.tokens.clone(), &flat), "outputs overlap")?;
    let large = operation(rig, &candidates, TreeRows::MAX + 1, [7, 3, 3, 0], 0)?;
    rig.refuses(large, "a tree of 65 rows has no masks")
}
