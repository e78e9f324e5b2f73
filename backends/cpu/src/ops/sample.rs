//! Choosing a token of each row among its best candidates.
//!
//! The arithmetic is the engine's own ([`Draw::choose`]): scalar F64 on at most 64
//! candidates, so rows are shared out and nothing else is.

use foretoken::device::DeviceFault;
use foretoken::kernel::{KernelKey, RowSet, Sample, SampleParams};
use foretoken::sample::{BestOfRow, Draw};
use foretoken::tensor::DType;

use super::{Bind, Controls};
use crate::memory::View;
use crate::pool::{CpuKernel, Worker};

pub(super) struct Kernel {
    control: Controls,
    params: View<i32>,
    positions: View<i32>,
    ids: View<i32>,
    values: View<f32>,
    log_sum_exp: View<f32>,
    choices: View<i32>,
    capacity: usize,
    rows: usize,
    candidates: usize,
    vocab: usize,
}

impl Kernel {
    pub(super) fn new(bind: &Bind<'_>, op: &Sample) -> Result<Self, DeviceFault> {
        let [words] = bind.dims(&op.params.0, "the parameters must be [8]")?;
        bind.ensure(words == SampleParams::WORDS, "the parameters must be [8]")?;
        let [capacity] = bind.dims(&op.positions, "positions must be [M]")?;
        let [rows, candidates] = bind.dims(&op.ids, "ids and values must be [L, K]")?;
        let [values, same] = bind.dims(&op.values, "ids and values must be [L, K]")?;
        bind.ensure(same == candidates, "ids and values must be [L, K]")?;
        bind.ensure(candidates <= Draw::CANDIDATES, "K must be at most 64")?;
        bind.ensure(candidates <= op.vocab, "the vocabulary is smaller than K")?;
        let [sums] = bind.dims(&op.log_sum_exp, "log_sum_exp must be [L]")?;
        let [choices, one] = bind.dims(&op.choices, "choices must be [L, 1]")?;
        bind.ensure(one == 1, "choices must be [L, 1]")?;
        let inputs = [&op.control.0, &op.params.0, &op.positions, &op.ids, &op.values];
        bind.apart(&[&op.choices], &[&inputs[..], &[&op.log_sum_exp]].concat())?;
        Ok(Self {
            control: bind.control(&op.control)?,
            params: bind.view(&op.params.0)?,
            positions: bind.view(&op.positions)?,
            ids: bind.view(&op.ids)?,
            values: bind.view(&op.values)?,
            log_sum_exp: bind.view(&op.log_sum_exp)?,
            choices: bind.view(&op.choices)?,
            capacity,
            rows: rows.min(values).min(sums).min(choices),
            candidates,
            vocab: op.vocab,
        })
    }
}

impl CpuKernel for Kernel {
    fn run(&self, worker: &Worker<'_>) {
        let rows = self.control.row_set(worker, RowSet::Logits, self.capacity, self.rows);
        for row in worker.share(rows.count, 1) {
            let here = row * self.candidates..(row + 1) * self.candidates;
            // SAFETY: inputs of an operation are not written while it runs.
            let (words, position, best) = unsafe {
                let words = self.params.read(0..SampleParams::WORDS);
                let best = BestOfRow {
                    ids: self.ids.read(here.clone()),
                    logits: self.values.read(here),
                    log_sum_exp: self.log_sum_exp.value(row),
                    vocab: self.vocab,
                };
                (words, self.positions.value(rows.first + row), best)
            };
            let words = words.first_chunk().copied().unwrap_or_default();
            let next = (i64::from(position) + 1) as u64;
            let choice = Draw::from_words(words).choose(&best, next);
            // SAFETY: each row of the output belongs to one worker.
            let place = unsafe { self.choices.write(row..row + 1) };
            place[0] = choice;
        }
    }

    fn key(&self) -> KernelKey {
        KernelKey { op: "sample", dtype: DType::F32, regime: None, variant: "scalar" }
    }
}
