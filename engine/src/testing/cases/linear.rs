//! Linear operations: every weight type, both activation modes.

use super::{ROWS, SPARE};
use crate::device::{Activations, WeightRole};
use crate::kernel::{Linear, LinearPart, Regime, RowSet};
use crate::quant::is_computable;
use crate::tensor::DType;
use crate::testing::fault::CaseFault;
use crate::testing::reference::linear;
use crate::testing::report::Runner;
use crate::testing::rig::Rig;

/// Output features around the edges of panels.
const FEATURES: [usize; 14] = [1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129];

/// Rows of prompts and features, around the edges of their tiles.
const PROMPTS: [(usize, usize); 8] =
    [(65, 33), (127, 129), (129, 193), (192, 1), (257, 161), (513, 127), (1025, 16), (2049, 17)];

/// Both activation modes.
pub(in crate::testing) const MODES: [Activations; 2] = [Activations::Fast, Activations::F32];

pub(super) fn all(run: &mut Runner<'_>) {
    for &dtype in DType::ALL.iter().filter(|&&t| is_computable(t)) {
        // One block of 32 inputs where the type allows, then several.
        let least = dtype.block_len().max(32);
        for activations in MODES {
            for (rows, n, k) in [(1, 33, least), (5, 17, 3 * least), (17, 16, 1024)] {
                let name = format!("linear/{dtype}/{activations:?}/m={rows}/n={n}/k={k}");
                let part = Part { dtype, n, accumulate: false };
                run.case(name, |rig| product(rig, rows, k, activations, &[part]));
            }
        }
    }
    for (i, &rows) in ROWS.iter().enumerate() {
        let n = FEATURES[(i * 5) % FEATURES.len()];
        for (j, dtype) in [DType::Q4_K, DType::Q8_0, DType::F16].into_iter().enumerate() {
            let activations = MODES[(i + j) % 2];
            let name = format!("linear/edges/{dtype}/{activations:?}/m={rows}/n={n}/k=256");
            let part = Part { dtype, n, accumulate: j == 1 };
            run.case(name, |rig| product(rig, rows, 256, activations, &[part]));
        }
    }
    for (i, (rows, n)) in PROMPTS.into_iter().enumerate() {
        let types = [DType::Q4_K, DType::Q5_K, DType::Q6_K, DType::BF16, DType::Q8_0, DType::MXFP4];
        let (dtype, accumulate) = (types[i % types.len()], i % 2 == 1);
        for k in [256, 1536] {
            let name = format!("linear/prompts/{dtype}/m={rows}/n={n}/k={k}");
            let part = Part { dtype, n, accumulate };
            run.case(name, |rig| product(rig, rows, k, Activations::Fast, &[part]));
        }
    }
    let part = |dtype, n, accumulate| Part { dtype, n, accumulate };
    let parts = [
        part(DType::Q4_K, 48, false),
        part(DType::Q6_K, 17, true),
        part(DType::F32, 1, false),
        part(DType::BF16, 31, true),
    ];
    for activations in MODES {
        for rows in [1, 2, 9, 64, 300] {
            let name = format!("linear/parts/{activations:?}/m={rows}");
            run.case(name, |rig| product(rig, rows, 512, activations, &parts));
        }
        let name = format!("linear/logit rows/{activations:?}");
        run.case(name, |rig| logit_rows(rig, activations));
    }
    run.case("linear/refused".into(), refused);
}

#[derive(Clone, Copy)]
struct Part {
    dtype: DType,
    n: usize,
    accumulate: bool,
}

/// Error allowed for one output, given the row of activations, the row of weights and
/// the sum of the magnitudes of the terms.
fn allowed(dtype: DType, mode: Activations, x: &[f32], w: &[f32], size: f64) -> f64 {
    // Rounding of a sum of K terms: it grows as the root of K; and decoding.
    let rounding = f64::from(f32::EPSILON) * size * ((x.len() as f64).sqrt() + 8.0);
    if mode == Activations::F32 {
        return rounding;
    }
    // A fast path may round activations: to binary16, or to integers that are as fine
    // for the largest of 32 values, half a unit being 2^-12 of it; beside BF16 weights
    // to bfloat16, 2^-9. Eight-bit integers are too coarse, and are noticed. Errors of
    // different inputs are independent and uniform, so this is seven deviations.
    let unit = if dtype == DType::BF16 { 1.0 / 512.0 } else { 1.0 / 4096.0 };
    let square = |(x, w): (&[f32], &[f32])| {
        let top = x.iter().fold(0f64, |m, x| m.max(f64::from(x.abs())));
        w.iter().map(|&w| (f64::from(w) * top * unit).powi(2)).sum::<f64>()
    };
    let squares: f64 = x.chunks(32).zip(w.chunks(32)).map(square).sum();
    rounding + 4.0 * squares.sqrt()
}

fn product(
    rig: &mut Rig<'_>,
    rows: usize,
    k: usize,
    mode: Activations,
    parts: &[Part],
) -> Result<(), CaseFault> {
    let x = rig.rng.floats(rows * k);
    let capacity = rows + SPARE;
    let mut op = Linear {
        control: rig.control([rows, 0, 0, 0])?,
        regime: if rows > 64 { Regime::Prefill } else { Regime::Step },
        rows: RowSet::All,
        x: rig.f32("x", &[capacity, k], &x)?,
        parts: Vec::new(),
    };
    let mut wanted = Vec::new();
    for part in parts {
        let scale = if part.dtype == DType::NVFP4 { 0.75 } else { 1.0 };
        let role = WeightRole::Linear;
        let (weight, values) = rig.weight(part.dtype, part.n, k, role, mode, scale)?;
        let old = match part.accumulate {
            true => rig.rng.floats(rows * part.n),
            false => Vec::new(),
        };
        let out = rig.f32("out", &[capacity, part.n], &old)?;
        op.parts.push(LinearPart { weight, out, accumulate: part.accumulate });
        wanted.push((values, old, f64::from(scale)));
    }
    rig.launch(op.clone())?;
    for (part, (values, old, scale)) in op.parts.iter().zip(wanted) {
        let mut want = Vec::new();
        let mut tolerances = Vec::new();
        for row in x.chunks_exact(k) {
            for ((y, size), w) in linear(row, &values).into_iter().zip(values.chunks_exact(k)) {
                let base = old.get(want.len()).map_or(0.0, |&x| f64::from(x));
                want.push(base + y * scale);
                let rounding = f64::from(f32::EPSILON) * (base.abs() + y.abs());
                tolerances
                    .push(allowed(part.weight.spec.dtype, mode, row, w, size) * scale + rounding);
            }
        }
        rig.expect("out", &part.out, &want, |i| tolerances[i])?;
    }
    Ok(())
}

/// The head's rows, and the same kernel after the control block has changed.
fn logit_rows(rig: &mut Rig<'_>, mode: Activations) -> Result<(), CaseFault> {
    let (rows, n, k) = (20, 33, 256);
    let x = rig.rng.floats(rows * k);
    let (weight, values) = rig.weight(DType::Q4_K, n, k, WeightRole::Linear, mode, 1.0)?;
    let control = rig.control([rows, 3, 0, 0])?;
    let x_tensor = rig.f32("x", &[rows, k], &x)?;
    for (first, count) in [(19, 1), (3, 7), (0, 20)] {
        rig.set_control(&control, [rows, 3, first, count])?;
        for (set, from) in [(RowSet::Logits, first), (RowSet::LogitsCompact, 0)] {
            let out = rig.blank("out", &[rows, n])?;
            let part = LinearPart { weight: weight.clone(), out: out.clone(), accumulate: false };
            let (control, x_tensor) = (control.clone(), x_tensor.clone());
            rig.launch(Linear {
                control,
                regime: Regime::Step,
                rows: set,
                x: x_tensor,
                parts: vec![part],
            })?;
            let mut want = Vec::new();
            let mut tolerances = Vec::new();
            for row in x[from * k..(from + count) * k].chunks_exact(k) {
                for ((y, size), w) in linear(row, &values).into_iter().zip(values.chunks_exact(k)) {
                    want.push(y);
                    tolerances.push(allowed(DType::Q4_K, mode, row, w, size));
                }
            }
            rig.expect("out", &out, &want, |i| tolerances[i])?;
        }
    }
    Ok(())
}

fn refused(rig: &mut Rig<'_>) -> Result<(), CaseFault> {
    let mode = Activations::Fast;
    let (weight, _) = rig.weight(DType::Q8_0, 4, 64, WeightRole::Linear, mode, 1.0)?;
    let out = rig.blank("out", &[2, 4])?;
    let op = Linear {
        control: rig.control([1, 0, 0, 0])?,
        regime: Regime::Step,
        rows: RowSet::All,
        x: rig.blank("x", &[2, 32])?,
        parts: vec![LinearPart { weight: weight.clone(), out, accumulate: false }],
    };
    rig.refuses(op.clone(), "x is narrower than the weight")?;
    let x = rig.blank("x", &[2, 64])?;
    let out = rig.blank("out", &[2, 5])?;
    let parts = vec![LinearPart { weight, out, accumulate: false }];
    rig.refuses(Linear { x, parts, ..op }, "the output is wider than the weight has rows")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::rng::Rng;

    /// The tolerance is one that binary16 activations meet and 8-bit integers do not.
    #[test]
    fn the_tolerance_tells_precisions_apart() {
        let mut rng = Rng::new(5, "precisions");
        for k in [32, 256, 1024] {
            let (mut fine, mut coarse) = (0f64, 0f64);
            for _ in 0..100 {
                let (x, w) = (rng.floats(k), rng.floats_between(k, -1.0, 1.0));
                let [(exact, size)] = linear(&x, &w)[..] else { panic!("one output") };
                let allowed = allowed(DType::Q4_K, Activations::Fast, &x, &w, size);
                let off = |x: &[f32]| (linear(x, &w)[0].0 - exact).abs() / allowed;
                let half: Vec<f32> = x.iter().map(|&x| half::f16::from_f32(x).to_f32()).collect();
                let bytes = x.chunks(32).flat_map(|x| {
                    let step = x.iter().fold(0f32, |m, x| m.max(x.abs())) / 127.0;
                    x.iter().map(move |x| (x / step).round() * step)
                });
                fine = fine.max(off(&half));
                coarse = coarse.max(off(&bytes.collect::<Vec<_>>()));
            }
            assert!(fine < 0.5 && coarse > 2.0, "k={k}: {fine} {coarse}");
        }
    }
}
