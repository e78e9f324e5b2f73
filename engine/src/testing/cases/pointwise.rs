//! Embedding, feed-forward activation, output gate.

use super::{ROWS, SPARE, WIDTHS};
use crate::device::{Activations, WeightRole};
use crate::kernel::{Embed, OutputGate, SwiGlu};
use crate::quant::is_computable;
use crate::tensor::DType;
use crate::testing::fault::CaseFault;
use crate::testing::reference::{sigmoid, silu};
use crate::testing::report::Runner;
use crate::testing::rig::Rig;

pub(super) fn all(run: &mut Runner<'_>) {
    for &dtype in DType::ALL.iter().filter(|&&t| is_computable(t)) {
        for (rows, cols) in [(1, dtype.block_len()), (17, 512)] {
            let name = format!("embed/{dtype}/m={rows}/d={cols}");
            run.case(name, |rig| embed(rig, dtype, rows, cols));
        }
    }
    for (i, &rows) in ROWS.iter().enumerate() {
        let width = WIDTHS[i];
        for (alias, word) in [(None, "apart"), (Some(0), "gate"), (Some(1), "up")] {
            let name = format!("swiglu/m={rows}/f={width}/out={word}");
            run.case(name, |rig| swiglu(rig, rows, width, alias));
        }
        let name = format!("output_gate/m={rows}/h=3/d={width}");
        run.case(name, |rig| output_gate(rig, rows, 3, width));
    }
    run.case("swiglu/m=3/f=3072".into(), |rig| swiglu(rig, 3, 3072, Some(0)));
    run.case("output_gate/m=2/h=8/d=256".into(), |rig| output_gate(rig, 2, 8, 256));
}

fn embed(rig: &mut Rig<'_>, dtype: DType, rows: usize, cols: usize) -> Result<(), CaseFault> {
    let entries = 37;
    let scale = if dtype == DType::NVFP4 { 0.75 } else { 1.0 };
    let (role, activations) = (WeightRole::Embedding, Activations::Fast);
    let (table, values) = rig.weight(dtype, entries, cols, role, activations, scale)?;
    let mut tokens: Vec<i32> = (0..rows).map(|_| rig.rng.below(entries) as i32).collect();
    if rows > 4 {
        // Outside the table: clamped.
        (tokens[1], tokens[2], tokens[3]) = (-5, entries as i32, i32::MAX);
    }
    let op = Embed {
        control: rig.control([rows, 0, 0, 0])?,
        tokens: rig.i32("tokens", &[rows + SPARE], &tokens)?,
        table,
        out: rig.blank("out", &[rows + SPARE, cols])?,
    };
    rig.launch(op.clone())?;
    let entry = |t: &i32| {
        let row = (*t).clamp(0, entries as i32 - 1) as usize;
        values[row * cols..(row + 1) * cols].iter().map(|&x| f64::from(x) * f64::from(scale))
    };
    let want: Vec<f64> = tokens.iter().flat_map(entry).collect();
    // Decoding takes a product or two and a sum; a fused sum may differ by the
    // rounding of the product, at most a unit of the largest value, 2.
    rig.expect("out", &op.out, &want, |_| 2.0 * f64::from(f32::EPSILON))
}

/// Four rounded steps around an exponential good to a few units.
fn close(want: &[f64]) -> impl Fn(usize) -> f64 + '_ {
    |i| want[i].abs() * 16.0 * f64::from(f32::EPSILON) + 1e-37
}

fn swiglu(
    rig: &mut Rig<'_>,
    rows: usize,
    width: usize,
    alias: Option<usize>,
) -> Result<(), CaseFault> {
    let (gate, up) = (rig.rng.floats(rows * width), rig.rng.floats(rows * width));
    let dims = [rows + SPARE, width];
    let inputs = [rig.f32("gate", &dims, &gate)?, rig.f32("up", &dims, &up)?];
    let out = match alias {
        Some(which) => inputs[which].clone(),
        None => rig.blank("out", &dims)?,
    };
    let control = rig.control([rows, 0, 0, 0])?;
    let [g, u] = inputs;
    rig.launch(SwiGlu { control, gate: g, up: u, out: out.clone() })?;
    let one = |(g, u): (&f32, &f32)| silu(f64::from(*g)) * f64::from(*u);
    let want: Vec<f64> = gate.iter().zip(&up).map(one).collect();
    rig.expect("out", &out, &want, close(&want))
}

fn output_gate(rig: &mut Rig<'_>, rows: usize, h: usize, d: usize) -> Result<(), CaseFault> {
    let (x, q) = (rig.rng.floats(rows * h * d), rig.rng.floats(rows * h * 2 * d));
    let op = OutputGate {
        control: rig.control([rows, 0, 0, 0])?,
        q: rig.f32("q", &[rows + SPARE, h, 2 * d], &q)?,
        x: rig.f32("x", &[rows + SPARE, h, d], &x)?,
    };
    rig.launch(op.clone())?;
    let gate = |i: usize| f64::from(q[i / d * 2 * d + d + i % d]);
    let one = |(i, x): (usize, &f32)| f64::from(*x) * sigmoid(gate(i));
    let want: Vec<f64> = x.iter().enumerate().map(one).collect();
    rig.expect("x", &op.x, &want, close(&want))
}
