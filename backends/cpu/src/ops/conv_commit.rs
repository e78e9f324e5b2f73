//! Bringing the state of a short convolution past an accepted path.

use foretoken::device::DeviceFault;
use foretoken::kernel::{ConvCommit, KernelKey};
use foretoken::tensor::DType;

use super::ancestry::Accepted;
use super::{Bind, Controls};
use crate::math::LANES;
use crate::memory::View;
use crate::pool::{CpuKernel, Worker};

pub(super) struct Kernel {
    control: Controls,
    path: Accepted,
    x: View<f32>,
    state: View<f32>,
    rows: usize,
    channels: usize,
    /// Inputs the state holds.
    past: usize,
}

impl Kernel {
    pub(super) fn new(bind: &Bind<'_>, op: &ConvCommit) -> Result<Self, DeviceFault> {
        let conv = &op.conv;
        let [rows, channels] = bind.dims(&conv.x, "x must be [M, C]")?;
        let [past, kept] = bind.dims(&conv.state, "state must be [width - 1, C]")?;
        bind.ensure(channels == kept, "x and state differ in channels")?;
        bind.apart(&[&conv.state], &[&conv.x, &conv.control.0, &op.path.0])?;
        Ok(Self {
            control: bind.control(&conv.control)?,
            path: Accepted::new(bind, &op.path)?,
            x: bind.view(&conv.x)?,
            state: bind.view(&conv.state)?,
            rows,
            channels,
            past,
        })
    }
}

impl CpuKernel for Kernel {
    fn run(&self, worker: &Worker<'_>) {
        let rows = self.control.rows(worker, self.rows);
        let path = self.path.read(worker, rows);
        let mine = worker.share(self.channels, LANES);
        let part = |row: usize| row * self.channels + mine.start..row * self.channels + mine.end;
        for place in 0..self.past {
            // In old state and path together, the input that ends up here. A path has a
            // row at least, so this is further on: no input is lost before it moves.
            let from = place + path.count();
            // SAFETY: the channels of a worker are its own, in every tensor, and the
            // rows of the state are different ones.
            let (old, new) = unsafe {
                let old = match from.checked_sub(self.past) {
                    Some(at) => self.x.read(part(path.row(at))),
                    None => self.state.read(part(from)),
                };
                (old, self.state.write(part(place)))
            };
            new.copy_from_slice(old);
        }
    }

    fn key(&self) -> KernelKey {
        KernelKey { op: "conv_commit", dtype: DType::F32, regime: None, variant: "copy" }
    }
}
