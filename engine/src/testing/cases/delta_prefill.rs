//! The gated delta rule over prompts, where a driver may go by chunks of 64 rows.

use super::delta::{Inputs, Shape, prefill_close};
use super::{ROWS, SPARE};
use crate::kernel::{HeadMap, Regime};
use crate::testing::compare;
use crate::testing::fault::CaseFault;
use crate::testing::reference::gated_delta;
use crate::testing::report::Runner;
use crate::testing::rig::Rig;

/// Sizes that fill tiles and that do not, one, two and three value heads to a key head.
const SHAPES: [Shape; 7] = [
    (2, 6, 128, 128),
    (2, 2, 64, 64),
    (1, 3, 16, 16),
    (2, 4, 112, 48),
    (1, 1, 48, 112),
    (1, 2, 96, 33),
    (1, 1, 160, 16),
];

/// Where a prompt of 500 rows is cut in two.
const CUTS: [usize; 3] = [64, 256, 448];

/// Sizes of columns, if they differ.
const SIZES: usize = 7;

/// What is out of the ordinary.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Ordinary,
    /// Nothing is forgotten.
    NoDecay,
    /// All is forgotten, in ever larger steps, by some heads.
    StrongDecay,
    /// Each row writes all of its value, or nothing.
    Strength,
    /// Keys point nearly the same way: rows undo most of what the ones before wrote.
    AlikeKeys,
    /// Columns of values and state differ by powers of two.
    Magnitudes,
    /// Rows of zeros.
    Zeros,
}

const KINDS: [Kind; 7] = [
    Kind::Ordinary,
    Kind::NoDecay,
    Kind::StrongDecay,
    Kind::Strength,
    Kind::AlikeKeys,
    Kind::Magnitudes,
    Kind::Zeros,
];

pub(super) fn all(run: &mut Runner<'_>) {
    let rows = (1..=70).chain(ROWS.into_iter().filter(|&rows| rows > 70)).chain([500]);
    for (i, rows) in rows.enumerate() {
        let (shape, map) = (SHAPES[i % SHAPES.len()], map(i));
        let name = format!("gated_delta/prefill/m={rows}/{shape:?}/{map:?}");
        run.case(name, |rig| prefill(rig, rows, rows + SPARE, shape, map, Kind::Ordinary));
    }
    for (i, kind) in KINDS.into_iter().enumerate() {
        for (j, rows) in [40, 64, 200].into_iter().enumerate() {
            let (shape, map) = (SHAPES[(i + j) % 5], map(i + j));
            let name = format!("gated_delta/prefill/{kind:?}/m={rows}/{shape:?}/{map:?}");
            run.case(name, |rig| prefill(rig, rows, rows + SPARE, shape, map, kind));
        }
        let shape = SHAPES[2 * (i % 2)];
        let name = format!("gated_delta/prefill/resumed/{kind:?}/{shape:?}");
        run.case(name, |rig| resumed(rig, shape, map(i), kind));
    }
    // More rows than a driver may want to take at a time, live or not.
    let (shape, map) = ((1, 3, 128, 128), HeadMap::Tiled);
    for kind in [Kind::Ordinary, Kind::NoDecay, Kind::AlikeKeys] {
        let name = format!("gated_delta/prefill/long/{kind:?}");
        run.case(name, |rig| prefill(rig, 4096 - 3, 4096, shape, map, kind));
    }
    run.case("gated_delta/prefill/few of many".into(), |rig| {
        prefill(rig, 70, 5000, (1, 2, 16, 16), map, Kind::Ordinary)
    });
    run.case("gated_delta/prefill/no rows".into(), no_rows);
}

fn map(i: usize) -> HeadMap {
    if i.is_multiple_of(2) { HeadMap::Grouped } else { HeadMap::Tiled }
}

fn inputs(rig: &mut Rig<'_>, rows: usize, shape: Shape, kind: Kind) -> Inputs {
    let (hk, hv, dk, dv) = shape;
    let mut inputs = Inputs::new(rig, rows, shape);
    let width = 2 * hk * dk + hv * dv;
    match kind {
        Kind::Ordinary => {}
        Kind::NoDecay => inputs.a.fill(0.0),
        Kind::StrongDecay => {
            let size = |i: usize| -10f32.powi(1 + 2 * (i % 3) as i32);
            inputs.a = (0..hv).map(size).collect();
        }
        Kind::Strength => {
            let side = |x: &mut f32| *x = if *x < 0.0 { -200.0 } else { 200.0 };
            inputs.beta.iter_mut().for_each(side);
        }
        Kind::AlikeKeys => {
            for row in inputs.qkv.chunks_mut(width) {
                row[hk * dk..2 * hk * dk].iter_mut().for_each(|x| *x += 4.0);
            }
        }
        Kind::Magnitudes => {
            let size = |i: usize| 2f32.powi((i % SIZES) as i32 * 16 - 48);
            for row in inputs.qkv.chunks_mut(width) {
                let values = row[2 * hk * dk..].iter_mut().enumerate();
                values.for_each(|(i, x)| *x *= size(i % dv));
            }
            let columns = inputs.state.chunks_mut(dk).enumerate();
            columns.for_each(|(i, column)| column.iter_mut().for_each(|x| *x *= size(i % dv)));
        }
        Kind::Zeros => {
            let rows = inputs.qkv.chunks_mut(width).enumerate();
            rows.filter(|(i, _)| i % 3 == 1).for_each(|(_, row)| row.fill(0.0));
            inputs.state.fill(0.0);
        }
    }
    inputs
}

fn prefill(
    rig: &mut Rig<'_>,
    rows: usize,
    capacity: usize,
    shape: Shape,
    map: HeadMap,
    kind: Kind,
) -> Result<(), CaseFault> {
    let (key_heads, _, dk, dv) = shape;
    let inputs = inputs(rig, rows, shape, kind);
    let op = inputs.op_of(rig, shape, map, Regime::Prefill, 0..rows, capacity)?;
    rig.launch(op.clone())?;
    let mut state: Vec<f64> = inputs.state.iter().map(|&x| f64::from(x)).collect();
    let want = gated_delta(&inputs.plain((key_heads, dk, dv), map), &mut state);
    // Columns of a size of their own are measured by their own.
    let class = |column: usize| match kind {
        Kind::Magnitudes => column % dv % SIZES,
        _ => 0,
    };
    rig.expect("out", &op.out, &want, prefill_close(&want, class))?;
    rig.expect("state", &op.state, &state, prefill_close(&state, |i| class(i / dk)))
}

/// A prompt in two calls has the bits of one, whatever rows the calls were recorded for.
fn resumed(rig: &mut Rig<'_>, shape: Shape, map: HeadMap, kind: Kind) -> Result<(), CaseFault> {
    let (_, hv, _, dv) = shape;
    let rows = 500;
    let inputs = inputs(rig, rows, shape, kind);
    let op = inputs.op(rig, shape, map, Regime::Prefill, 0..rows)?;
    rig.launch(op.clone())?;
    let (mut out, state) = (rig.words(&op.out)?, rig.words(&op.state)?);
    out.truncate(rows * hv * dv);
    for (i, cut) in CUTS.into_iter().enumerate() {
        let first = inputs.op_of(rig, shape, map, Regime::Prefill, 0..cut, cut + 100 * i)?;
        rig.launch(first.clone())?;
        let mut two = rig.words(&first.out)?;
        two.truncate(cut * hv * dv);
        let carried = rig.words(&first.state)?.into_iter().map(f32::from_bits).collect();
        let rest = Inputs { state: carried, ..inputs.clone() };
        let second = rest.op(rig, shape, map, Regime::Prefill, cut..rows)?;
        rig.launch(second.clone())?;
        two.extend(rig.words(&second.out)?);
        two.truncate(rows * hv * dv);
        compare::bits("out", &out, &two)?;
        compare::bits("state", &state, &rig.words(&second.state)?)?;
    }
    Ok(())
}

/// Without live rows nothing is written.
fn no_rows(rig: &mut Rig<'_>) -> Result<(), CaseFault> {
    let shape = (1, 2, 64, 64);
    let inputs = Inputs::new(rig, 64, shape);
    let op = inputs.op(rig, shape, HeadMap::Tiled, Regime::Prefill, 0..0)?;
    rig.launch(op.clone())?;
    compare::untouched("out", &rig.words(&op.out)?, 0)?;
    compare::bits("state", &compare::words(&inputs.state), &rig.words(&op.state)?)
}
