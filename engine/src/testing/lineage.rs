//! A tree row's bits must be those of single steps along its path.
//!
//! Every row of a tree is computed alone from the state its parent left. The same rows
//! as a tree must give the same outputs and leave the state alone, and committing a path
//! must leave the state that the steps along it left. A wrong parent and a path that
//! lacks a row must be noticed.

use super::cases::delta::{Inputs, Shape};
use super::compare::{self, words};
use super::fault::CaseFault;
use super::report::Runner;
use super::rig::Rig;
use super::trees::{Kind, Tree, path_on_device};
use crate::kernel::{ConvCommit, DeltaCommit, GatedDelta, HeadMap, Regime, ShortConv};
use crate::tensor::Tensor;

/// Rows of the trees.
const ROWS: [usize; 2] = [13, 64];
/// Heads of the delta rule: a head is two slabs and not a whole number of vectors.
const SHAPE: Shape = (2, 4, 56, 40);
/// Channels of the convolution.
const CHANNELS: usize = 70;

pub(super) fn all(run: &mut Runner<'_>) {
    for rows in ROWS {
        for kind in Kind::ALL {
            for map in [HeadMap::Grouped, HeadMap::Tiled] {
                let name = format!("invariance/tree/gated_delta/{kind:?}/m={rows}/{map:?}");
                run.case(name, |rig| {
                    let op = Delta::new(rig, rows, map);
                    follows_steps(rig, &op, kind)
                });
            }
            for width in 2..=4 {
                let name = format!("invariance/tree/short_conv/{kind:?}/m={rows}/width={width}");
                run.case(name, |rig| {
                    let op = Conv::new(rig, rows, width);
                    follows_steps(rig, &op, kind)
                });
            }
        }
    }
    run.case("invariance/negative control/tree/gated_delta".into(), |rig| {
        let op = Delta::new(rig, 20, HeadMap::Tiled);
        notices(rig, &op)
    });
    run.case("invariance/negative control/tree/short_conv".into(), |rig| {
        let op = Conv::new(rig, 20, 4);
        notices(rig, &op)
    });
}

/// An operation that carries a state from row to row.
trait Recurrent {
    fn rows(&self) -> usize;

    /// The state before the first row.
    fn state(&self) -> &[f32];

    /// Runs one row from a state, without a tree.
    fn step(&self, rig: &mut Rig<'_>, row: usize, state: &[f32]) -> Result<Ran, CaseFault>;

    /// Runs all rows as a tree.
    fn verify(&self, rig: &mut Rig<'_>, tree: &Tree) -> Result<Ran, CaseFault>;

    /// The state after a path is committed.
    fn commit(&self, rig: &mut Rig<'_>, rows: &[usize]) -> Result<Vec<u32>, CaseFault>;
}

/// What an operation wrote, and the state after it.
struct Ran {
    out: Vec<u32>,
    state: Vec<u32>,
}

fn ran(rig: &mut Rig<'_>, out: &Tensor, state: &Tensor) -> Result<Ran, CaseFault> {
    Ok(Ran { out: rig.words(out)?, state: rig.words(state)? })
}

/// Every row, computed alone from the state its parent left.
fn single_steps(rig: &mut Rig<'_>, op: &dyn Recurrent, tree: &Tree) -> Result<Vec<Ran>, CaseFault> {
    let mut all: Vec<Ran> = Vec::new();
    for row in 0..tree.rows() {
        let state: Vec<f32> = match tree.parent(row) {
            Some(parent) => all[parent].state.iter().map(|&x| f32::from_bits(x)).collect(),
            None => op.state().to_vec(),
        };
        all.push(op.step(rig, row, &state)?);
    }
    Ok(all)
}

/// Compares rows run as a tree with rows run alone.
fn same_rows(
    rig: &mut Rig<'_>,
    op: &dyn Recurrent,
    tree: &Tree,
    alone: &[Ran],
) -> Result<(), CaseFault> {
    let together = op.verify(rig, tree)?;
    let out: Vec<u32> = alone.iter().flat_map(|row| &row.out).copied().collect();
    compare::bits("out", &out, &together.out)?;
    compare::bits("state", &words(op.state()), &together.state)
}

fn follows_steps(rig: &mut Rig<'_>, op: &dyn Recurrent, kind: Kind) -> Result<(), CaseFault> {
    let tree = Tree::new(&mut rig.rng, kind, op.rows());
    let alone = single_steps(rig, op, &tree)?;
    same_rows(rig, op, &tree, &alone)?;
    // Paths that end at the root, in the middle, at the last row, and somewhere.
    let last = tree.rows() - 1;
    for end in [0, 1, last / 2, last, rig.rng.below(tree.rows())] {
        let state = op.commit(rig, &tree.path(end))?;
        compare::bits("committed state", &alone[end].state, &state)?;
    }
    Ok(())
}

/// A tree with one wrong parent, then a path that lacks its last row but one.
fn notices(rig: &mut Rig<'_>, op: &dyn Recurrent) -> Result<(), CaseFault> {
    let tree = Tree::new(&mut rig.rng, Kind::Caterpillar, op.rows());
    let alone = single_steps(rig, op, &tree)?;
    same_rows(rig, op, &tree, &alone)?;
    for row in 2..tree.rows() {
        let mut wrong = tree.clone();
        // Another row of the spine, or a leaf of it.
        wrong.0[row] = (tree.0[row] + 1) % row as i32;
        match same_rows(rig, op, &wrong, &alone) {
            Err(CaseFault::Variant { tensor: "out", .. }) => {}
            Err(other) => return Err(other),
            Ok(()) => return Err(CaseFault::Blind("a wrong parent")),
        }
    }
    let end = tree.rows() - 1;
    let mut short = tree.path(end);
    short.remove(short.len() - 2);
    let state = op.commit(rig, &short)?;
    match compare::bits("committed state", &alone[end].state, &state) {
        Err(CaseFault::Variant { .. }) => Ok(()),
        _ => Err(CaseFault::Blind("a path that lacks a row")),
    }
}

struct Delta {
    inputs: Inputs,
    rows: usize,
    map: HeadMap,
}

impl Delta {
    fn new(rig: &mut Rig<'_>, rows: usize, map: HeadMap) -> Self {
        Self { inputs: Inputs::new(rig, rows, SHAPE), rows, map }
    }

    fn op(&self, rig: &mut Rig<'_>) -> crate::Result<GatedDelta> {
        self.inputs.op_of(rig, SHAPE, self.map, Regime::Step, 0..self.rows, self.rows)
    }
}

impl Recurrent for Delta {
    fn rows(&self) -> usize {
        self.rows
    }

    fn state(&self) -> &[f32] {
        &self.inputs.state
    }

    fn step(&self, rig: &mut Rig<'_>, row: usize, state: &[f32]) -> Result<Ran, CaseFault> {
        let inputs = Inputs { state: state.to_vec(), ..self.inputs.clone() };
        let op = inputs.op_of(rig, SHAPE, self.map, Regime::Step, row..row + 1, 1)?;
        rig.launch(op.clone())?;
        ran(rig, &op.out, &op.state)
    }

    fn verify(&self, rig: &mut Rig<'_>, tree: &Tree) -> Result<Ran, CaseFault> {
        let op = GatedDelta { tree: Some(tree.on_device(rig, self.rows)?), ..self.op(rig)? };
        rig.launch(op.clone())?;
        ran(rig, &op.out, &op.state)
    }

    fn commit(&self, rig: &mut Rig<'_>, rows: &[usize]) -> Result<Vec<u32>, CaseFault> {
        let (path, delta) = (path_on_device(rig, rows, self.rows)?, self.op(rig)?);
        rig.launch(DeltaCommit { path, delta: delta.clone() })?;
        Ok(rig.words(&delta.state)?)
    }
}

struct Conv {
    x: Vec<f32>,
    weight: Vec<f32>,
    state: Vec<f32>,
    rows: usize,
    width: usize,
}

impl Conv {
    fn new(rig: &mut Rig<'_>, rows: usize, width: usize) -> Self {
        let sizes = [rows, width, width - 1];
        let [x, weight, state] = sizes.map(|n| rig.rng.floats(n * CHANNELS));
        Self { x, weight, state, rows, width }
    }

    fn op(&self, rig: &mut Rig<'_>, x: &[f32], state: &[f32]) -> crate::Result<ShortConv> {
        let rows = x.len() / CHANNELS;
        Ok(ShortConv {
            control: rig.control([rows, 0, 0, 0])?,
            x: rig.f32("x", &[rows, CHANNELS], x)?,
            weight: rig.f32("weight", &[CHANNELS, self.width], &self.weight)?,
            state: rig.f32("state", &[self.width - 1, CHANNELS], state)?,
            tree: None,
            out: rig.blank("out", &[rows, CHANNELS])?,
        })
    }
}

impl Recurrent for Conv {
    fn rows(&self) -> usize {
        self.rows
    }

    fn state(&self) -> &[f32] {
        &self.state
    }

    fn step(&self, rig: &mut Rig<'_>, row: usize, state: &[f32]) -> Result<Ran, CaseFault> {
        let op = self.op(rig, &self.x[row * CHANNELS..(row + 1) * CHANNELS], state)?;
        rig.launch(op.clone())?;
        ran(rig, &op.out, &op.state)
    }

    fn verify(&self, rig: &mut Rig<'_>, tree: &Tree) -> Result<Ran, CaseFault> {
        let op = self.op(rig, &self.x, &self.state)?;
        let op = ShortConv { tree: Some(tree.on_device(rig, self.rows)?), ..op };
        rig.launch(op.clone())?;
        ran(rig, &op.out, &op.state)
    }

    fn commit(&self, rig: &mut Rig<'_>, rows: &[usize]) -> Result<Vec<u32>, CaseFault> {
        let (path, conv) =
            (path_on_device(rig, rows, self.rows)?, self.op(rig, &self.x, &self.state)?);
        rig.launch(ConvCommit { path, conv: conv.clone() })?;
        Ok(rig.words(&conv.state)?)
    }
}
