//! RMS norm, gated norm.

use super::{ROWS, SPARE, WIDTHS};
use crate::kernel::{GatedNorm, RmsNorm, RowSet};
use crate::testing::fault::CaseFault;
use crate::testing::reference::{gated_norm, rms_norm};
use crate::testing::report::Runner;
use crate::testing::rig::Rig;

const EPS: f32 = 1e-6;

pub(super) fn all(run: &mut Runner<'_>) {
    for (i, &rows) in ROWS.iter().enumerate() {
        let d = WIDTHS[i];
        for in_place in [false, true] {
            let name = format!("rms_norm/m={rows}/d={d}/in_place={in_place}");
            run.case(name, |rig| norm(rig, rows, d, in_place));
        }
        let name = format!("gated_norm/m={rows}/h=3/dv={d}");
        run.case(name, |rig| gated(rig, rows, 3, d, i % 2 == 0));
    }
    run.case("rms_norm/m=2/d=5120".into(), |rig| norm(rig, 2, 5120, false));
    run.case("rms_norm/tiny".into(), tiny);
    run.case("rms_norm/logit rows".into(), logit_rows);
    run.case("rms_norm/refused".into(), refused);
}

/// A root, a division and two products of the mean, whose sum of `d` squares is off
/// by far less than a unit per doubling: 16 units in all, of the value itself.
fn close(want: &[f64]) -> impl Fn(usize) -> f64 + '_ {
    |i| want[i].abs() * 16.0 * f64::from(f32::EPSILON) + 1e-37
}

fn norm(rig: &mut Rig<'_>, rows: usize, d: usize, in_place: bool) -> Result<(), CaseFault> {
    let (x, w) = (rig.rng.floats(rows * d), rig.rng.floats(d));
    let capacity = rows + SPARE;
    let control = rig.control([rows, 0, 0, rows])?;
    let weight = rig.f32("weight", &[d], &w)?;
    let x_tensor = rig.f32("x", &[capacity, d], &x)?;
    let out = if in_place { x_tensor.clone() } else { rig.blank("out", &[capacity, d])? };
    let op = RmsNorm { control, rows: RowSet::All, x: x_tensor, weight, eps: EPS, out };
    rig.launch(op.clone())?;
    let want: Vec<f64> = x.chunks_exact(d).flat_map(|x| rms_norm(x, &w, EPS)).collect();
    rig.expect("out", &op.out, &want, close(&want))
}

/// Rows so small that `eps` decides, and zeros.
fn tiny(rig: &mut Rig<'_>) -> Result<(), CaseFault> {
    let d = 64;
    let mut x = rig.rng.floats_between(d, -1e-5, 1e-5);
    x.extend(vec![0.0; d]);
    let w = rig.rng.floats(d);
    let op = RmsNorm {
        control: rig.control([2, 0, 0, 0])?,
        rows: RowSet::All,
        x: rig.f32("x", &[2, d], &x)?,
        weight: rig.f32("weight", &[d], &w)?,
        eps: EPS,
        out: rig.blank("out", &[2, d])?,
    };
    rig.launch(op.clone())?;
    let want: Vec<f64> = x.chunks_exact(d).flat_map(|x| rms_norm(x, &w, EPS)).collect();
    rig.expect("out", &op.out, &want, close(&want))
}

/// Rows chosen by the control block, then compact rows; the block changes between
/// launches of one kernel.
fn logit_rows(rig: &mut Rig<'_>) -> Result<(), CaseFault> {
    let (rows, d) = (20, 33);
    let (x, w) = (rig.rng.floats(rows * d), rig.rng.floats(d));
    let control = rig.control([rows, 7, 0, 0])?;
    let weight = rig.f32("weight", &[d], &w)?;
    let x_tensor = rig.f32("x", &[rows, d], &x)?;
    for (first, count) in [(0, 1), (19, 1), (5, 9), (0, 20)] {
        rig.set_control(&control, [rows, 7, first, count])?;
        let out = rig.blank("out", &[rows, d])?;
        let compact = rig.blank("compact", &[rows, d])?;
        let op = RmsNorm {
            control: control.clone(),
            rows: RowSet::Logits,
            x: x_tensor.clone(),
            weight: weight.clone(),
            eps: EPS,
            out: out.clone(),
        };
        rig.launch(op.clone())?;
        let chosen = &x[first * d..(first + count) * d];
        let want: Vec<f64> = chosen.chunks_exact(d).flat_map(|x| rms_norm(x, &w, EPS)).collect();
        rig.expect("out", &out, &want, close(&want))?;
        let (rows, x) = (RowSet::LogitsCompact, x_tensor.clone());
        rig.launch(RmsNorm { rows, x, out: compact.clone(), ..op })?;
        let chosen = x_rows(&rig.words(&x_tensor)?, count, d);
        let want: Vec<f64> = chosen.chunks_exact(d).flat_map(|x| rms_norm(x, &w, EPS)).collect();
        rig.expect("compact", &compact, &want, close(&want))?;
    }
    Ok(())
}

fn x_rows(words: &[u32], rows: usize, d: usize) -> Vec<f32> {
    words[..rows * d].iter().map(|&w| f32::from_bits(w)).collect()
}

fn refused(rig: &mut Rig<'_>) -> Result<(), CaseFault> {
    let op = RmsNorm {
        control: rig.control([2, 0, 0, 2])?,
        rows: RowSet::All,
        x: rig.blank("x", &[2, 32])?,
        weight: rig.blank("weight", &[31])?,
        eps: EPS,
        out: rig.blank("out", &[2, 32])?,
    };
    rig.refuses(op.clone(), "the weight is too short")?;
    let weight = rig.blank("weight", &[32])?;
    let moving = RmsNorm { weight, rows: RowSet::Logits, out: op.x.clone(), ..op };
    rig.refuses(moving, "moved rows are normed in place")
}

fn gated(
    rig: &mut Rig<'_>,
    rows: usize,
    h: usize,
    dv: usize,
    alias: bool,
) -> Result<(), CaseFault> {
    let n = rows * h * dv;
    let (x, z, w) = (rig.rng.floats(n), rig.rng.floats(n), rig.rng.floats(dv));
    let dims = [rows + SPARE, h, dv];
    let x_tensor = rig.f32("x", &dims, &x)?;
    let op = GatedNorm {
        control: rig.control([rows, 0, 0, 0])?,
        z: rig.f32("z", &dims, &z)?,
        weight: rig.f32("weight", &[dv], &w)?,
        eps: EPS,
        out: if alias { x_tensor.clone() } else { rig.blank("out", &dims)? },
        x: x_tensor,
    };
    rig.launch(op.clone())?;
    let heads = x.chunks_exact(dv).zip(z.chunks_exact(dv));
    let want: Vec<f64> = heads.flat_map(|(x, z)| gated_norm(x, z, &w, EPS)).collect();
    // The sigmoid's exponential adds a few units.
    rig.expect("out", &op.out, &want, |i| 2.0 * close(&want)(i))
}
