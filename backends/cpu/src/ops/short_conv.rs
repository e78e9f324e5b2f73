//! Short causal convolution.

use foretoken::device::DeviceFault;
use foretoken::kernel::{KernelKey, ShortConv};
use foretoken::tensor::DType;

use super::{Bind, Controls};
use crate::math::{LANES, Lanes, fma, load, load_part, mul, per_isa, silu, splat};
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
        Ok(Self {
            control: bind.control(&op.control)?,
            x: bind.view(&op.x)?,
            weight: bind.view(&op.weight)?,
            state: bind.view(&op.state)?,
            out: bind.view(&op.out)?,
            rows: xs.min(outs),
            channels,
            width,
            isa: bind.isa(),
        })
    }
}

impl CpuKernel for Kernel {
    fn run(&self, worker: &Worker<'_>) {
        let rows = self.control.rows(worker, self.rows);
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
            filter(self.isa, &column, weight, rows);
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
    fn load(&self, from: Span<f32>, row: usize) -> Lanes {
        let at = row * self.channels + self.first;
        // SAFETY: the channels of a column belong to one worker, in every tensor.
        let values = unsafe { from.read(at..at + self.lanes) };
        if values.len() == LANES { load(values) } else { load_part(values) }
    }

    #[inline(always)]
    fn store(&self, to: Span<f32>, row: usize, values: Lanes) {
        let at = row * self.channels + self.first;
        // SAFETY: as above.
        unsafe { to.write(at..at + self.lanes) }.copy_from_slice(&values[..self.lanes]);
    }
}

per_isa! {
    fn filter(column: &Column, weight: &[f32], rows: usize) {
        let width = weight.len() / column.lanes;
        let mut taps = [splat(0.0); MAX_WIDTH];
        for (lane, filter) in weight.chunks_exact(width).enumerate() {
            for (tap, w) in taps.iter_mut().zip(filter) {
                tap[lane] = *w;
            }
        }
        // The last `width` inputs, oldest first.
        let mut past = [splat(0.0); MAX_WIDTH];
        for (row, p) in past[1..width].iter_mut().enumerate() {
            *p = column.load(column.state, row);
        }
        for row in 0..rows {
            for j in 1..width {
                past[j - 1] = past[j];
            }
            past[width - 1] = column.load(column.x, row);
            let mut sum = mul(taps[0], past[0]);
            for j in 1..width {
                sum = fma(taps[j], past[j], sum);
            }
            column.store(column.out, row, silu(sum));
        }
        for (row, p) in past[1..width].iter().enumerate() {
            column.store(column.state, row, *p);
        }
    }
}
