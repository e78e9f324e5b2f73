//! The largest logits.

use super::SPARE;
use crate::kernel::TopK;
use crate::testing::compare;
use crate::testing::fault::CaseFault;
use crate::testing::reference::{log_sum_exp, top_k};
use crate::testing::report::Runner;
use crate::testing::rig::Rig;

pub(super) fn all(run: &mut Runner<'_>) {
    let sizes = [1, 15, 16, 17, 127, 128, 129, 1000, 4095, 4096, 4097, 12_289];
    for (i, v) in sizes.into_iter().enumerate() {
        for k in [1, 2, 5, 33, 64, v] {
            if k > v || (k == v && v > 5000) {
                continue;
            }
            let rows = [1, 2, 17, 64][(i + k) % 4];
            let name = format!("top_k/m={rows}/v={v}/k={k}");
            run.case(name, |rig| plain(rig, rows, v, k, i % 3 != 0));
        }
    }
    for k in [1, 3, 40] {
        run.case(format!("top_k/not finite/k={k}"), |rig| not_finite(rig, k));
        run.case(format!("top_k/ties/k={k}"), |rig| ties(rig, k));
    }
    run.case("top_k/wide log sum".into(), wide);
}

fn launch(
    rig: &mut Rig<'_>,
    logits: &[f32],
    rows: usize,
    k: usize,
    with_sum: bool,
) -> crate::Result<TopK> {
    let (v, capacity) = (logits.len() / rows, rows + SPARE);
    // The rows of the step differ from those the head runs on.
    let op = TopK {
        control: rig.control([rows + 1, 0, 1, rows])?,
        logits: rig.f32("logits", &[capacity, v], logits)?,
        k,
        ids: rig.i32("ids", &[capacity, k], &[])?,
        values: rig.blank("values", &[capacity, k])?,
        log_sum_exp: if with_sum { Some(rig.blank("log_sum_exp", &[capacity])?) } else { None },
    };
    rig.launch(op.clone())?;
    Ok(op)
}

/// Ids, values and sums of rows that are all finite.
fn check(rig: &mut Rig<'_>, op: &TopK, logits: &[f32], rows: usize) -> Result<(), CaseFault> {
    let (k, v) = (op.k, logits.len() / rows);
    let best: Vec<Vec<usize>> = logits.chunks_exact(v).map(|row| top_k(row, k)).collect();
    let ids = rig.words(&op.ids)?;
    let want: Vec<u32> = best.iter().flatten().map(|&id| id as u32).collect();
    compare::bits("ids", &want, &ids[..rows * k])?;
    compare::untouched("ids", &ids, rows * k)?;
    let value = |(row, ids): (&[f32], &Vec<usize>)| -> Vec<f64> {
        ids.iter().map(|&id| f64::from(row[id])).collect()
    };
    let want: Vec<f64> = logits.chunks_exact(v).zip(&best).flat_map(value).collect();
    rig.expect("values", &op.values, &want, |_| 0.0)?;
    if let Some(tensor) = &op.log_sum_exp {
        let want: Vec<f64> = logits.chunks_exact(v).map(log_sum_exp).collect();
        // The sum may be off by some units, its logarithm by as much in absolute
        // terms; the result is then rounded.
        let eps = f64::from(f32::EPSILON);
        rig.expect("log_sum_exp", tensor, &want, |i| 32.0 * eps + eps * want[i].abs())?;
    }
    Ok(())
}

fn plain(
    rig: &mut Rig<'_>,
    rows: usize,
    v: usize,
    k: usize,
    with_sum: bool,
) -> Result<(), CaseFault> {
    let logits = rig.rng.floats_between(rows * v, -20.0, 20.0);
    let op = launch(rig, &logits, rows, k, with_sum)?;
    check(rig, &op, &logits, rows)
}

/// Few distinct values, both zeros among them.
fn ties(rig: &mut Rig<'_>, k: usize) -> Result<(), CaseFault> {
    let (rows, v) = (3, 9000);
    let levels = [-1.0, -0.0, 0.0, 0.0, -0.0, 2.0];
    let top = [3, 6, 6];
    let pick = |i: usize, rig: &mut Rig<'_>| levels[rig.rng.below(top[i / v])];
    let logits: Vec<f32> = (0..rows * v).map(|i| pick(i, rig)).collect();
    let op = launch(rig, &logits, rows, k, true)?;
    check(rig, &op, &logits, rows)
}

/// One NaN or infinity anywhere marks its row, and no other.
fn not_finite(rig: &mut Rig<'_>, k: usize) -> Result<(), CaseFault> {
    let (rows, v) = (5, 5000);
    let mut logits = rig.rng.floats_between(rows * v, -20.0, 20.0);
    let spoil = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -f32::NAN];
    for (row, x) in spoil.into_iter().enumerate() {
        logits[row * v + [0, 17, 4999, 4096][row]] = x;
    }
    let op = launch(rig, &logits, rows, k, true)?;
    let ids = rig.words(&op.ids)?;
    let firsts: Vec<u32> = ids.chunks_exact(k).take(spoil.len()).map(|row| row[0]).collect();
    compare::bits("ids", &[u32::MAX; 4], &firsts)?;
    let want: Vec<u32> = top_k(&logits[4 * v..], k).iter().map(|&id| id as u32).collect();
    compare::bits("ids", &want, &ids[4 * k..5 * k])
}

/// Logits so far apart, and so large, that exponentials without a shift would not do.
fn wide(rig: &mut Rig<'_>) -> Result<(), CaseFault> {
    let v = 4500;
    let mut logits = vec![-1e4; 3 * v];
    (logits[1], logits[4200]) = (500.0, 500.0);
    logits[v..2 * v].fill(3e38);
    logits[2 * v..].fill(-2.5);
    let op = launch(rig, &logits, 3, 2, true)?;
    check(rig, &op, &logits, 3)
}
