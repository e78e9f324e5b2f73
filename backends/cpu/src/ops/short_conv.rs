//! Short causal convolution, over rows in order or over a tree.

use foretoken::device::DeviceFault;
use foretoken::kernel::{KernelKey, ShortConv};
use foretoken::tensor::DType;

use super::ancestry::{Ancestry, Tree};
use super::{Bind, Controls};
use crate::math::{LANES, Simd, per_isa, silu1};
use crate::memory::{Span, View};
use crate::pool::{CpuKernel, Worker};
use crate::simd::Isa;

/// Most taps a filter may have.
const MAX_WIDTH: usize = 8;

pub(super) struct Kernel {
    control: Controls,
    x: View<f32>,
    weight: View<f32>,
    state: View<f32>,
    tree: Option<Tree>,
    out: View<f32>,
    rows: usize,
    channels: usize,
    width: usize,
    isa: Isa,
}

impl Kernel {
    pub(super) fn new(bind: &Bind<'_>, op: &ShortConv) -> Result<Self, DeviceFault> {
        let [xs, channels] = bind.dims(&op.x, "x must be [M, C]")?;
        let [outs, out_channels] = bind.dims(&op.out, "out must be [M, C]")?;
        let [filters, width] = bind.dims(&op.weight, "weight must be [C, width]")?;
        let [past, kept] = bind.dims(&op.state, "state must be [width - 1, C]")?;
        let same = channels == out_channels && channels == filters && channels == kept;
        bind.ensure(same, "x, weight, state and out differ in channels")?;
        bind.ensure(past + 1 == width, "state must be [width - 1, C]")?;
        bind.ensure((2..=MAX_WIDTH).contains(&width), "a filter must have 2 to 8 taps")?;
        bind.apart(&[&op.out, &op.state], &[&op.x, &op.weight, &op.control.0])?;
        let rows = xs.min(outs);
        let tree = op.tree.as_ref().map(|tree| Tree::new(bind, tree, rows, &op.out)).transpose()?;
        Ok(Self {
            control: bind.control(&op.control)?,
            x: bind.view(&op.x)?,
            weight: bind.view(&op.weight)?,
            state: bind.view(&op.state)?,
            tree,
            out: bind.view(&op.out)?,
            rows,
            channels,
            width,
            isa: bind.isa(),
        })
    }
}

impl CpuKernel for Kernel {
    fn run(&self, worker: &Worker<'_>) {
        let rows = self.control.rows(worker, self.rows);
        let tree = self.tree.as_ref().map(|tree| tree.read(worker, rows));
        let mine = worker.share(self.channels, LANES);
        for first in mine.clone().step_by(LANES) {
            let lanes = first..mine.end.min(first + LANES);
            let column = Column {
                x: *self.x,
                out: *self.out,
                state: *self.state,
                channels: self.channels,
                first,
                lanes: lanes.len(),
            };
            let taps = lanes.start * self.width..lanes.end * self.width;
            // SAFETY: inputs of an operation are not written while it runs.
            let weight = unsafe { self.weight.read(taps) };
            filter(self.isa, &column, weight, rows, tree.as_ref());
        }
        for row in 0..rows {
            let range = row * self.channels + mine.start..row * self.channels + mine.end;
            // SAFETY: the channels of a worker are its own, in every tensor.
            activate(self.isa, unsafe { self.out.write(range) });
        }
    }

    fn key(&self) -> KernelKey {
        KernelKey { op: "short_conv", dtype: DType::F32, regime: None, variant: self.isa.name() }
    }
}

/// Up to sixteen channels of all rows: what one worker works on at a time.
struct Column {
    x: Span<f32>,
    out: Span<f32>,
    state: Span<f32>,
    channels: usize,
    first: usize,
    lanes: usize,
}

impl Column {
    #[inline(always)]
    fn load<S: Simd>(&self, s: S, from: Span<f32>, row: usize) -> S::V {
        let at = row * self.channels + self.first;
        // SAFETY: the channels of a column belong to one worker, in every tensor.
        let values = unsafe { from.read(at..at + self.lanes) };
        match values.first_chunk() {
            Some(all) => s.load(all),
            None => s.load_part(values),
        }
    }

    #[inline(always)]
    fn store<S: Simd>(&self, s: S, to: Span<f32>, row: usize, x: S::V) {
        let at = row * self.channels + self.first;
        // SAFETY: as above.
        let values = unsafe { to.write(at..at + self.lanes) };
        match values.first_chunk_mut() {
            Some(all) => s.store(all, x),
            None => s.store_part(values, x),
        }
    }
}

per_isa! {
    fn filter[s](column: &Column, weight: &[f32], rows: usize, tree: Option<&Ancestry>) {
        match weight.len() / column.lanes {
            2 => filter_of::<_, 2>(s, column, weight, rows, tree),
            3 => filter_of::<_, 3>(s, column, weight, rows, tree),
            4 => filter_of::<_, 4>(s, column, weight, rows, tree),
            5 => filter_of::<_, 5>(s, column, weight, rows, tree),
            6 => filter_of::<_, 6>(s, column, weight, rows, tree),
            7 => filter_of::<_, 7>(s, column, weight, rows, tree),
            _ => filter_of::<_, 8>(s, column, weight, rows, tree),
        }
    }
}

per_isa! {
    fn activate[_s](x: &mut [f32]) {
        for x in x {
            *x = silu1(*x);
        }
    }
}

/// A filter of `W` taps over all rows of a column.
#[inline(always)]
fn filter_of<S: Simd, const W: usize>(
    s: S,
    column: &Column,
    weight: &[f32],
    rows: usize,
    tree: Option<&Ancestry>,
) {
    let mut taps = [[0.0; LANES]; W];
    for (lane, filter) in weight.as_chunks::<W>().0.iter().enumerate().take(LANES) {
        for j in 0..W {
            taps[j][lane] = filter[j];
        }
    }
    let mut tap = [s.splat(0.0); W];
    for j in 0..W {
        tap[j] = s.load(&taps[j]);
    }
    // The last inputs, oldest first; the current one comes last.
    let mut past = [s.splat(0.0); W];
    for (row, past) in past.iter_mut().take(W - 1).enumerate() {
        *past = column.load(s, column.state, row);
    }
    for row in 0..rows {
        // After its parent a row finds its inputs in place.
        if let Some(tree) = tree.filter(|tree| row > 0 && !tree.follows(row)) {
            let (mut node, mut kept) = (tree.parent(row), W - 1);
            for place in (0..W - 1).rev() {
                if let Some(at) = node {
                    past[place] = column.load(s, column.x, at);
                    node = tree.parent(at);
                } else {
                    kept -= 1;
                    past[place] = column.load(s, column.state, kept);
                }
            }
        }
        past[W - 1] = column.load(s, column.x, row);
        let mut sum = s.mul(tap[0], past[0]);
        for j in 1..W {
            sum = s.fma(tap[j], past[j], sum);
        }
        column.store(s, column.out, row, sum);
        for j in 1..W {
            past[j - 1] = past[j];
        }
    }
    if tree.is_none() {
        for (row, past) in past.iter().take(W - 1).enumerate() {
            column.store(s, column.state, row, *past);
        }
    }
}
