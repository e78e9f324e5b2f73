//! Choosing among the best candidates.
//!
//! A choice must be the one that the sampler on the host makes from all logits, and agree
//! with a reference that sorts and sums them plainly. Where the best candidates can not
//! decide, there must be none.

use crate::kernel::{Sample, SampleParams, TopK};
use crate::sample::{Draw, Sampler, SamplingParams, uniform};
use crate::tensor::Tensor;
use crate::testing::compare;
use crate::testing::fault::CaseFault;
use crate::testing::reference::{Drawn, sample};
use crate::testing::report::Runner;
use crate::testing::rig::Rig;

use super::SPARE;

pub(super) fn all(run: &mut Runner<'_>) {
    for (i, v) in [1, 8, 63, 64, 65, 1000, 4097, 20_000].into_iter().enumerate() {
        for k in [1, 8, 64] {
            if k <= v {
                let rows = if v > 5000 { 3 } else { [1, 2, 17, 64][(i + k) % 4] };
                let name = format!("sample/m={rows}/v={v}/k={k}");
                run.case(name, |rig| plain(rig, rows, v, k));
            }
        }
    }
    for k in [1, 8, 64] {
        run.case(format!("sample/ties/k={k}"), |rig| ties(rig, k));
        run.case(format!("sample/not finite/k={k}"), |rig| not_finite(rig, k));
    }
    run.case("sample/edges".into(), edges);
    run.case("sample/undecided".into(), undecided);
    run.case("sample/any parameters".into(), any_parameters);
    run.case("sample/operands".into(), operands);
    run.case("sample/negative control".into(), |_| blind());
}

fn block(rig: &mut Rig<'_>, params: &SamplingParams) -> crate::Result<SampleParams> {
    // Every request may be tried, whether or not a device would be given it.
    let SamplingParams { temperature, top_k, top_p, min_p, seed, .. } = *params;
    let bits = |x: f32| x.to_bits() as i32;
    let seed = [seed as i32, (seed >> 32) as i32];
    let words = [bits(temperature), top_k as i32, bits(top_p), bits(min_p), seed[0], seed[1], 0, 0];
    Ok(SampleParams(rig.i32("params", &[SampleParams::WORDS], &words)?))
}

/// Finds the `k` best of rows at these positions and samples among them; in the step they
/// come after `first` other rows. Returns the operation and its output.
pub(in crate::testing) fn draw(
    rig: &mut Rig<'_>,
    logits: &[f32],
    positions: &[i32],
    k: usize,
    first: usize,
    params: &SamplingParams,
) -> crate::Result<(Sample, Tensor)> {
    let rows = positions.len();
    let (vocab, capacity) = (logits.len() / rows, rows + SPARE);
    let control = rig.control([first + rows, 9, first, rows])?;
    let place: Vec<i32> = vec![-7; first].into_iter().chain(positions.iter().copied()).collect();
    let best = TopK {
        control: control.clone(),
        logits: rig.f32("logits", &[capacity, vocab], logits)?,
        k,
        ids: rig.i32("ids", &[capacity, k], &[])?,
        values: rig.blank("values", &[capacity, k])?,
        log_sum_exp: Some(rig.blank("log_sum_exp", &[capacity])?),
    };
    rig.launch(best.clone())?;
    let TopK { ids, values, log_sum_exp, .. } = best;
    let choices = rig.stale("choices", &[capacity, 1])?;
    let op = Sample {
        control,
        params: block(rig, params)?,
        positions: rig.i32("positions", &[first + capacity], &place)?,
        ids,
        values,
        log_sum_exp: log_sum_exp.unwrap_or(choices.clone()),
        vocab,
        choices: choices.clone(),
    };
    rig.launch(op.clone())?;
    Ok((op, choices))
}

/// What a row should give: the sampler's choice, and the plain reference's.
fn wanted(
    row: &[f32],
    k: usize,
    params: &SamplingParams,
    position: i32,
) -> crate::Result<(u32, Drawn)> {
    let next = position as u64 + 1;
    let mut sampler = Sampler::new(params.clone(), row.len() as u32)?;
    let id = sampler.choose_id(row, &[], next)?;
    Ok((id, sample(row, k, params, uniform(params.seed, next))))
}

fn mismatch(index: usize, got: i32, want: i32) -> CaseFault {
    let (got, want) = (f64::from(got), f64::from(want));
    CaseFault::Mismatch { tensor: "choices", index, got, want, allowed: 0.0 }
}

/// Holds one choice against what it should be.
fn judge(index: usize, got: i32, id: u32, drawn: &Drawn) -> Result<(), CaseFault> {
    if !drawn.near && drawn.id != id as i32 {
        // The sampler itself is wrong.
        return Err(mismatch(index, id as i32, drawn.id));
    }
    let decided = got != Draw::UNDECIDED;
    match drawn.decided {
        Some(true) if !decided => Err(mismatch(index, got, id as i32)),
        Some(false) if decided => Err(mismatch(index, got, Draw::UNDECIDED)),
        _ if decided && got != id as i32 => Err(mismatch(index, got, id as i32)),
        _ => Ok(()),
    }
}

/// Samples rows and checks each. Returns how many were decided.
fn check(
    rig: &mut Rig<'_>,
    logits: &[f32],
    rows: usize,
    k: usize,
    params: &SamplingParams,
) -> Result<usize, CaseFault> {
    let positions: Vec<i32> = (0..rows).map(|_| rig.rng.below(100_000) as i32).collect();
    let first = rig.rng.below(3);
    let (_, choices) = draw(rig, logits, &positions, k, first, params)?;
    let got: Vec<i32> = rig.words(&choices)?.iter().map(|&w| w as i32).collect();
    for (i, row) in logits.chunks_exact(logits.len() / rows).enumerate() {
        let (id, drawn) = wanted(row, k, params, positions[i])?;
        judge(i, got[i], id, &drawn)?;
    }
    compare::integers("choices", &got, &got[..rows])?;
    Ok(got[..rows].iter().filter(|&&choice| choice != Draw::UNDECIDED).count())
}

fn pick<T: Copy>(rig: &mut Rig<'_>, from: &[T]) -> T {
    from[rig.rng.below(from.len())]
}

fn any(rig: &mut Rig<'_>) -> SamplingParams {
    SamplingParams {
        temperature: pick(rig, &[0.0, 1e-4, 0.3, 0.8, 1.0, 1.5, 100.0]),
        top_k: pick(rig, &[0, 0, 1, 2, 5, 8, 9, 40, 64, 65, 5000]),
        top_p: pick(rig, &[1.0, 1.0, 0.0, 0.3, 0.9, 0.95, 0.999]),
        min_p: pick(rig, &[0.0, 0.0, 0.02, 0.2, 1.0]),
        seed: rig.rng.next(),
        ..SamplingParams::greedy()
    }
}

fn plain(rig: &mut Rig<'_>, rows: usize, v: usize, k: usize) -> Result<(), CaseFault> {
    for round in 0..24 {
        let spread = [0.01, 1.0, 4.0, 20.0][round % 4];
        let shift = rig.rng.between(-30.0, 30.0);
        let logits = rig.rng.floats_between(rows * v, shift - spread, shift + spread);
        let params = any(rig);
        check(rig, &logits, rows, k, &params)?;
    }
    Ok(())
}

/// Few distinct values, both zeros among them: the order of ids decides.
fn ties(rig: &mut Rig<'_>, k: usize) -> Result<(), CaseFault> {
    let (rows, v) = (4, 500);
    let levels = [-1.0, -0.0, 0.0, 2.0, -3.0];
    for top in [1, 3, 4, 5] {
        for _ in 0..8 {
            let logits: Vec<f32> = (0..rows * v).map(|_| levels[rig.rng.below(top)]).collect();
            let params = any(rig);
            check(rig, &logits, rows, k, &params)?;
        }
    }
    Ok(())
}

fn not_finite(rig: &mut Rig<'_>, k: usize) -> Result<(), CaseFault> {
    let (rows, v) = (3, 300);
    for temperature in [0.0, 0.7] {
        let mut logits = rig.rng.floats_between(rows * v, -20.0, 20.0);
        (logits[5], logits[v + 299]) = (f32::NAN, f32::INFINITY);
        let params = SamplingParams { temperature, top_k: 1, ..SamplingParams::greedy() };
        let (_, choices) = draw(rig, &logits, &[4, 5, 6], k, 1, &params)?;
        let (id, _) = wanted(&logits[2 * v..], k, &params, 6)?;
        rig.expect_i32("choices", &choices, &[Draw::NOT_FINITE, Draw::NOT_FINITE, id as i32])?;
    }
    Ok(())
}

/// Cuts that fall on an edge exactly: the same sums in the same order, or another token.
fn edges(rig: &mut Rig<'_>) -> Result<(), CaseFault> {
    let rows = 64;
    for (top_k, top_p) in [(2, 0.5), (4, 0.25), (64, 0.5), (64, 0.625), (10, 0.3), (60, 0.9)] {
        let logits = vec![1.25; rows * 100];
        let temperature = 1.0;
        let params = SamplingParams { temperature, top_k, top_p, ..SamplingParams::greedy() };
        let decided = check(rig, &logits, rows, 64, &params)?;
        compare::integers("decided", &[decided as i32], &[rows as i32])?;
    }
    // A tail of weights so small that only the order of the sum tells how many count.
    let tail = |i: usize| if i == 0 { 0.0 } else { -36.7 - (i % 7) as f32 * 0.01 };
    let logits: Vec<f32> = (0..rows * 64).map(|i| tail(i % 64)).collect();
    for temperature in [1.0, 100.0] {
        let top_p = 1.0f32.next_down();
        let params = SamplingParams { temperature, top_p, ..SamplingParams::greedy() };
        check(rig, &logits, rows, 64, &params)?;
    }
    Ok(())
}

/// The mass of the best candidates does not reach top-p.
fn undecided(rig: &mut Rig<'_>) -> Result<(), CaseFault> {
    let (rows, v) = (5, 2000);
    let flat = rig.rng.floats_between(rows * v, -0.1, 0.1);
    let steep: Vec<f32> = flat.iter().enumerate().map(|(i, x)| x - (i % v) as f32 * 0.5).collect();
    let with =
        |top_p, min_p| SamplingParams { top_k: 0, top_p, min_p, ..SamplingParams::default() };
    for (logits, params, decided) in [
        (&flat, with(0.5, 0.0), 0),
        (&flat, with(1.0, 0.5), 0),
        (&flat, with(1.0, 0.0), 0),
        (&steep, with(1.0, 0.0), 0),
        (&steep, with(0.9, 0.0), 5),
        (&steep, with(1.0, 0.05), 5),
        (&steep, with(0.999_999_9, 0.05), 5),
    ] {
        let got = check(rig, logits, rows, 64, &params)?;
        compare::integers("decided", &[got as i32], &[decided])?;
    }
    Ok(())
}

/// Words that no request has lead to a choice or to none, never out of bounds.
fn any_parameters(rig: &mut Rig<'_>) -> Result<(), CaseFault> {
    let (rows, v, k) = (3, 200, 64);
    let logits = rig.rng.floats_between(rows * v, -2.0, 2.0);
    for _ in 0..40 {
        let words: [i32; SampleParams::WORDS] = std::array::from_fn(|_| rig.rng.next() as i32);
        let params = any(rig);
        let (mut op, _) = draw(rig, &logits, &[0, i32::MAX, -1], k, 0, &params)?;
        op.params = SampleParams(rig.i32("params", &[SampleParams::WORDS], &words)?);
        op.choices = rig.stale("choices", &[rows, 1])?;
        rig.launch(op.clone())?;
        let choices = op.choices;
        for (i, word) in rig.words(&choices)?.into_iter().enumerate() {
            let choice = word as i32;
            if choice != Draw::UNDECIDED && !(0..v as i32).contains(&choice) {
                return Err(mismatch(i, choice, Draw::UNDECIDED));
            }
        }
    }
    Ok(())
}

fn operands(rig: &mut Rig<'_>) -> Result<(), CaseFault> {
    let logits = rig.rng.floats_between(300, -2.0, 2.0);
    let (good, _) = draw(rig, &logits, &[0, 1, 2], 64, 0, &SamplingParams::default())?;
    let (ids, values) = (rig.i32("ids", &[6, 65], &[])?, rig.blank("values", &[6, 65])?);
    rig.refuses(Sample { ids, values: values.clone(), ..good.clone() }, "K is above 64")?;
    rig.refuses(Sample { values, ..good.clone() }, "ids and values differ in K")?;
    rig.refuses(Sample { vocab: 63, ..good.clone() }, "the vocabulary is smaller than K")?;
    let params = SampleParams(good.control.0.clone());
    rig.refuses(Sample { params, ..good.clone() }, "the parameters have 4 words")?;
    let choices = good.positions.clone();
    rig.refuses(Sample { choices, ..good }, "choices are not [L, 1]")
}

/// The judge must notice another token, a choice where there is none to make, and none
/// where there is one.
fn blind() -> Result<(), CaseFault> {
    let params = SamplingParams { temperature: 1.0, top_k: 3, ..SamplingParams::greedy() };
    let row = [1.0, 2.0, 0.5, 1.5];
    let (id, drawn) = wanted(&row, 64, &params, 3)?;
    judge(0, id as i32, id, &drawn)?;
    let undecided = Drawn { decided: Some(false), ..drawn };
    let other = (id as i32 + 1) % 4;
    for (got, drawn) in [(other, drawn), (Draw::UNDECIDED, drawn), (id as i32, undecided)] {
        if judge(0, got, id, &drawn).is_ok() {
            return Err(CaseFault::Blind("a wrong choice"));
        }
    }
    Ok(())
}
