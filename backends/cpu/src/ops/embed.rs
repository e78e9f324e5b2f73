//! Gathering rows of the embedding table.

use std::sync::Arc;

use foretoken::device::DeviceFault;
use foretoken::kernel::{Embed, KernelKey};
use foretoken::quant::decode_scaled;

use super::{Bind, Controls};
use crate::device::{CpuWeight, Table};
use crate::memory::View;
use crate::pool::{CpuKernel, Worker};

pub(super) struct Kernel {
    control: Controls,
    tokens: View<i32>,
    table: Arc<Table>,
    out: View<f32>,
    rows: usize,
}

impl Kernel {
    pub(super) fn new(bind: &Bind<'_>, op: &Embed) -> Result<Self, DeviceFault> {
        let [tokens] = bind.dims(&op.tokens, "tokens must be [M]")?;
        let [rows, cols] = bind.dims(&op.out, "out must be [M, D]")?;
        let CpuWeight::Table(table, _) = bind.weight(&op.table)? else {
            return Err(bind.bad("the table was loaded for linear operations"));
        };
        bind.ensure(table.cols == cols, "out and the table must have the same width")?;
        bind.apart(&[&op.out], &[&op.tokens, &op.control.0])?;
        Ok(Self {
            control: bind.control(&op.control)?,
            tokens: bind.view(&op.tokens)?,
            table: Arc::clone(table),
            out: bind.view(&op.out)?,
            rows: tokens.min(rows),
        })
    }
}

impl CpuKernel for Kernel {
    fn run(&self, worker: &Worker<'_>) {
        let table = &*self.table;
        for row in worker.share(self.control.rows(worker, self.rows), 1) {
            // SAFETY: inputs of an operation are not written while it runs.
            let token = unsafe { self.tokens.value(row) };
            let token = usize::try_from(token).unwrap_or(0).min(table.rows - 1);
            // SAFETY: each row belongs to one worker.
            let out = unsafe { self.out.write(row * table.cols..(row + 1) * table.cols) };
            let bytes = table.bytes.get(token * table.row_bytes..(token + 1) * table.row_bytes);
            let decoded = bytes.map(|bytes| decode_scaled(table.dtype, bytes, table.scale, out));
            if !matches!(decoded, Some(Ok(()))) {
                worker.refuse("a row of the embedding table can not be decoded");
            }
        }
    }

    fn key(&self) -> KernelKey {
        KernelKey { op: "embed", dtype: self.table.dtype, regime: None, variant: "gather" }
    }
}
