//! Short convolution and delta rule over a tree, and their commits.

use super::delta::{EPS, Inputs, SHAPES, Shape, close};
use super::{SPARE, WIDTHS};
use crate::device::Activations;
use crate::kernel::{
    ConvCommit, DeltaCommit, GatedDelta, HeadMap, Path, Regime, ShortConv, TreeRows,
};
use crate::testing::compare::{self, words};
use crate::testing::fault::CaseFault;
use crate::testing::reference::{conv_commit, gated_delta_row, gated_delta_tree, short_conv_tree};
use crate::testing::report::Runner;
use crate::testing::rig::Rig;
use crate::testing::trees::{Kind, TREE_ROWS, Tree, ascending, path_on_device};

pub(super) fn all(run: &mut Runner<'_>) {
    for (i, &rows) in TREE_ROWS.iter().enumerate() {
        for (j, kind) in Kind::ALL.into_iter().enumerate() {
            let (channels, width) = (WIDTHS[(i + 3 * j) % WIDTHS.len()], 2 + (i + j) % 3);
            let name = format!("short_conv/tree/{kind:?}/m={rows}/c={channels}/width={width}");
            run.case(name, |rig| conv(rig, (kind, rows), channels, width));
            let (shape, map) = shape_and_map(i + j, i);
            let name = format!("gated_delta/tree/{kind:?}/m={rows}/{shape:?}/{map:?}");
            run.case(name, |rig| delta(rig, (kind, rows), shape, map));
        }
        let mut counts = vec![1, 2, rows / 2, rows - 1, rows];
        counts.retain(|count| (1..=rows).contains(count));
        counts.sort_unstable();
        counts.dedup();
        for (j, count) in counts.into_iter().enumerate() {
            let (channels, width) = (WIDTHS[(i + 5 * j) % WIDTHS.len()], 2 + (i + j) % 3);
            let name = format!("conv_commit/m={rows}/path={count}/c={channels}/width={width}");
            run.case(name, |rig| commit_conv(rig, (rows, count), channels, width));
            let (shape, map) = shape_and_map(i + j, j);
            let name = format!("delta_commit/m={rows}/path={count}/{shape:?}/{map:?}");
            run.case(name, |rig| commit_delta(rig, (rows, count), shape, map));
        }
    }
    run.case("short_conv/tree/refused".into(), refused_conv);
    run.case("gated_delta/tree/refused".into(), refused_delta);
}

fn shape_and_map(shape: usize, map: usize) -> (Shape, HeadMap) {
    let map = if map.is_multiple_of(2) { HeadMap::Grouped } else { HeadMap::Tiled };
    (SHAPES[shape % SHAPES.len()], map)
}

/// Rows recorded: some more than the live ones where a tree may have them.
fn capacity(rows: usize) -> usize {
    TreeRows::MAX.min(rows + SPARE)
}

/// Inputs of a convolution on the device, without a tree.
fn conv_op(
    rig: &mut Rig<'_>,
    rows: usize,
    channels: usize,
    [x, w, past]: [&[f32]; 3],
) -> crate::Result<ShortConv> {
    let width = w.len() / channels;
    Ok(ShortConv {
        control: rig.control([rows, 9, 0, 0])?,
        x: rig.f32("x", &[capacity(rows), channels], x)?,
        weight: rig.f32("weight", &[channels, width], w)?,
        state: rig.f32("state", &[width - 1, channels], past)?,
        tree: None,
        out: rig.blank("out", &[capacity(rows), channels])?,
    })
}

fn conv_inputs(rig: &mut Rig<'_>, rows: usize, channels: usize, width: usize) -> [Vec<f32>; 3] {
    [rows * channels, channels * width, (width - 1) * channels].map(|n| rig.rng.floats(n))
}

fn conv(
    rig: &mut Rig<'_>,
    (kind, rows): (Kind, usize),
    channels: usize,
    width: usize,
) -> Result<(), CaseFault> {
    let tree = Tree::new(&mut rig.rng, kind, rows);
    let [x, w, past] = conv_inputs(rig, rows, channels, width);
    let op = conv_op(rig, rows, channels, [&x, &w, &past])?;
    // A tree may have been recorded for more rows than the operation.
    let room = if channels.is_multiple_of(2) { TreeRows::MAX } else { capacity(rows) };
    let op = ShortConv { tree: Some(tree.on_device(rig, room)?), ..op };
    rig.launch(op.clone())?;
    let want = short_conv_tree(&x, &w, &past, channels, &tree.0);
    // As without a tree.
    rig.expect("out", &op.out, &want, |i| 4e-6 * want[i].abs().max(8.0))?;
    compare::bits("state", &words(&past), &rig.words(&op.state)?)
}

fn delta(
    rig: &mut Rig<'_>,
    (kind, rows): (Kind, usize),
    shape: Shape,
    map: HeadMap,
) -> Result<(), CaseFault> {
    let tree = Tree::new(&mut rig.rng, kind, rows);
    let inputs = Inputs::new(rig, rows, shape);
    let op = inputs.op_of(rig, shape, map, Regime::Step, 0..rows, capacity(rows))?;
    let op = GatedDelta { tree: Some(tree.on_device(rig, capacity(rows))?), ..op };
    rig.launch(op.clone())?;
    let (key_heads, _, dk, dv) = shape;
    let state: Vec<f64> = inputs.state.iter().map(|&x| f64::from(x)).collect();
    let want = gated_delta_tree(&inputs.plain((key_heads, dk, dv), map), &state, &tree.0);
    rig.expect("out", &op.out, &want, close(&want))?;
    compare::bits("state", &words(&inputs.state), &rig.words(&op.state)?)
}

fn commit_conv(
    rig: &mut Rig<'_>,
    (rows, count): (usize, usize),
    channels: usize,
    width: usize,
) -> Result<(), CaseFault> {
    let [x, w, past] = conv_inputs(rig, rows, channels, width);
    let conv = conv_op(rig, rows, channels, [&x, &w, &past])?;
    let accepted = ascending(&mut rig.rng, rows, count);
    let path = path_on_device(rig, &accepted, capacity(rows))?;
    rig.launch(ConvCommit { path, conv: conv.clone() })?;
    let want = conv_commit(&x, &past, channels, &accepted);
    compare::bits("state", &words(&want), &rig.words(&conv.state)?)?;
    compare::untouched("out", &rig.words(&conv.out)?, 0)
}

fn commit_delta(
    rig: &mut Rig<'_>,
    (rows, count): (usize, usize),
    shape: Shape,
    map: HeadMap,
) -> Result<(), CaseFault> {
    let inputs = Inputs::new(rig, rows, shape);
    let delta = inputs.op_of(rig, shape, map, Regime::Step, 0..rows, capacity(rows))?;
    let accepted = ascending(&mut rig.rng, rows, count);
    let path = path_on_device(rig, &accepted, capacity(rows))?;
    rig.launch(DeltaCommit { path, delta: delta.clone() })?;
    let (key_heads, _, dk, dv) = shape;
    let plain = inputs.plain((key_heads, dk, dv), map);
    let mut want: Vec<f64> = inputs.state.iter().map(|&x| f64::from(x)).collect();
    for row in accepted {
        gated_delta_row(&plain, row, &mut want);
    }
    rig.expect("state", &delta.state, &want, close(&want))?;
    compare::untouched("out", &rig.words(&delta.out)?, 0)
}

/// Trees that do not fit an operation of three rows, and why.
fn misfits(rig: &mut Rig<'_>) -> crate::Result<Vec<(TreeRows, &'static str)>> {
    let mut tree = |parents: &[usize], depths: &[usize], masks: &[usize]| -> crate::Result<_> {
        Ok(TreeRows {
            parents: rig.i32("parents", parents, &[])?,
            depths: rig.i32("depths", depths, &[])?,
            masks: rig.i32("masks", masks, &[])?,
        })
    };
    Ok(vec![
        (tree(&[2], &[2], &[2, 2])?, "the tree has fewer rows than the operation"),
        (tree(&[65], &[65], &[65, 2])?, "a tree has at most 64 rows"),
        (tree(&[4], &[3], &[4, 2])?, "parents and depths differ in rows"),
        (tree(&[3], &[4], &[4, 2])?, "parents and depths differ in rows"),
        (tree(&[4], &[4], &[3, 2])?, "the masks have fewer rows"),
        (tree(&[4], &[4], &[4, 1])?, "a mask has two words"),
        (tree(&[4], &[4], &[8])?, "masks have a rank of two"),
        (tree(&[4, 1], &[4], &[4, 2])?, "parents have a rank of one"),
        (tree(&[4], &[1, 4], &[4, 2])?, "depths have a rank of one"),
    ])
}

/// Paths that no operation takes, and why.
fn bad_paths(rig: &mut Rig<'_>) -> crate::Result<Vec<(Path, &'static str)>> {
    let mut path = |dims: &[usize]| Ok::<_, crate::Error>(Path(rig.i32("path", dims, &[])?));
    Ok(vec![
        (path(&[1])?, "the path has no room for a row"),
        (path(&[66])?, "a path has at most 64 rows"),
        (path(&[4, 1])?, "a path has a rank of one"),
    ])
}

fn refused_conv(rig: &mut Rig<'_>) -> Result<(), CaseFault> {
    let (rows, channels) = (3, 8);
    let conv = ShortConv {
        control: rig.control([1, 0, 0, 0])?,
        x: rig.blank("x", &[rows, channels])?,
        weight: rig.blank("weight", &[channels, 4])?,
        state: rig.blank("state", &[3, channels])?,
        tree: None,
        out: rig.blank("out", &[rows, channels])?,
    };
    for (tree, why) in misfits(rig)? {
        rig.refuses(ShortConv { tree: Some(tree), ..conv.clone() }, why)?;
    }
    for (path, why) in bad_paths(rig)? {
        rig.refuses(ConvCommit { path, conv: conv.clone() }, why)?;
    }
    let path = path_on_device(rig, &[0], rows)?;
    let state = rig.blank("state", &[3, channels + 1])?;
    let narrow = ShortConv { state, ..conv.clone() };
    rig.refuses(ConvCommit { path: path.clone(), conv: narrow }, "x and state differ in channels")?;
    let shared = ShortConv { state: conv.x.clone(), ..conv };
    rig.refuses(ConvCommit { path, conv: shared }, "the state is the input")
}

fn refused_delta(rig: &mut Rig<'_>) -> Result<(), CaseFault> {
    let (rows, hk, hv, dk, dv) = (3, 1, 2, 16, 8);
    let delta = GatedDelta {
        control: rig.control([1, 0, 0, 0])?,
        regime: Regime::Step,
        activations: Activations::Fast,
        qkv: rig.blank("qkv", &[rows, 2 * hk * dk + hv * dv])?,
        alpha: rig.blank("alpha", &[rows, hv])?,
        beta: rig.blank("beta", &[rows, hv])?,
        a: rig.blank("a", &[hv])?,
        dt_bias: rig.blank("dt_bias", &[hv])?,
        state: rig.blank("state", &[hv, dv, dk])?,
        tree: None,
        out: rig.blank("out", &[rows, hv, dv])?,
        key_heads: hk,
        head_map: HeadMap::Tiled,
        eps: EPS,
    };
    for (tree, why) in misfits(rig)? {
        rig.refuses(GatedDelta { tree: Some(tree), ..delta.clone() }, why)?;
    }
    let tree = Some(Tree::new(&mut rig.rng, Kind::Star, rows).on_device(rig, rows)?);
    let prefill = GatedDelta { regime: Regime::Prefill, tree, ..delta.clone() };
    rig.refuses(prefill, "a tree is for the step regime")?;
    for (path, why) in bad_paths(rig)? {
        rig.refuses(DeltaCommit { path, delta: delta.clone() }, why)?;
    }
    let path = path_on_device(rig, &[0], rows)?;
    let delta = GatedDelta { key_heads: 0, ..delta };
    rig.refuses(DeltaCommit { path, delta }, "there are no key heads")
}
