//! The largest logits of each row, and the log of the sum of exponentials.
//!
//! A row is cut at multiples of 4096 entries. Each piece yields its own best
//! entries, maximum and sum; a row's pieces are then merged in ascending order.
//! Entries travel as integer keys whose ascending order is the wanted one: larger
//! logit first, then lower id.

use foretoken::device::DeviceFault;
use foretoken::kernel::{KernelKey, RowSet, TopK};
use foretoken::tensor::DType;

use super::top_k_piece::{Summary, best, first_largest, summary};
use super::{Bind, Controls};
use crate::memory::{Span, View};
use crate::pool::{ChunkCounter, CpuKernel, Worker};
use crate::simd::Isa;

/// Entries in a piece.
pub(super) const PIECE: usize = 4096;

/// What a row yields when it holds a NaN or an infinity.
const SENTINEL: i32 = -1;

pub(super) struct Kernel {
    control: Controls,
    logits: View<f32>,
    ids: View<i32>,
    values: View<f32>,
    log_sum_exp: Option<View<f32>>,
    rows: usize,
    vocabulary: usize,
    k: usize,
    isa: Isa,
    pieces: ChunkCounter,
}

impl Kernel {
    pub(super) fn new(bind: &Bind<'_>, op: &TopK) -> Result<Self, DeviceFault> {
        let [mut rows, vocabulary] = bind.dims(&op.logits, "logits must be [M, V]")?;
        bind.ensure((1..=vocabulary).contains(&op.k), "k must be in 1 ..= V")?;
        bind.ensure(i32::try_from(vocabulary).is_ok(), "V must fit in 31 bits")?;
        for tensor in [&op.ids, &op.values] {
            let [outs, k] = bind.dims(tensor, "ids and values must be [M, k]")?;
            bind.ensure(k == op.k, "ids and values must be [M, k]")?;
            rows = rows.min(outs);
        }
        let mut outputs = vec![&op.ids, &op.values];
        if let Some(tensor) = &op.log_sum_exp {
            let [outs] = bind.dims(tensor, "log_sum_exp must be [M]")?;
            rows = rows.min(outs);
            outputs.push(tensor);
        }
        bind.apart(&outputs, &[&op.logits, &op.control.0])?;
        let kernel = Self {
            control: bind.control(&op.control)?,
            logits: bind.view(&op.logits)?,
            ids: bind.view(&op.ids)?,
            values: bind.view(&op.values)?,
            log_sum_exp: op.log_sum_exp.as_ref().map(|t| bind.view(t)).transpose()?,
            rows,
            vocabulary,
            k: op.k,
            isa: bind.isa(),
            pieces: ChunkCounter::new(),
        };
        let words = kernel.row_words().checked_mul(rows);
        let words = words.and_then(|n| n.checked_add(bind.threads() * PIECE));
        bind.scratch(words.and_then(|n| n.checked_mul(size_of::<u64>())))?;
        Ok(kernel)
    }

    fn row_pieces(&self) -> usize {
        self.vocabulary.div_ceil(PIECE)
    }

    /// Most entries a piece hands on.
    fn kept(&self) -> usize {
        self.k.min(PIECE)
    }

    /// Words of scratch per row: keys of all pieces, then two words of summary each.
    fn row_words(&self) -> usize {
        self.row_pieces() * (self.kept() + 2)
    }

    /// Everything about one piece of one row.
    fn piece(&self, worker: &Worker<'_>, row: usize, piece: usize) {
        let all = worker.scratch().cast::<u64>();
        let start = piece * PIECE;
        let end = self.vocabulary.min(start + PIECE);
        let base = row * self.vocabulary;
        // SAFETY: inputs of an operation are not written while it runs.
        let logits = unsafe { self.logits.read(base + start..base + end) };
        let mut found = summary(self.isa, logits, self.log_sum_exp.is_some());
        let kept = self.kept();
        let at = worker.count * PIECE + row * self.row_words();
        let keys_at = at + piece * kept;
        // SAFETY: each piece of a row belongs to one worker.
        let keys = unsafe { all.write(keys_at..keys_at + kept) };
        keys.fill(u64::MAX);
        if !found.finite {
            found.sum = f32::NAN;
        } else if kept == 1 {
            keys[0] = first_largest(logits, start, found.max);
        } else {
            let room = worker.index * PIECE..(worker.index + 1) * PIECE;
            // SAFETY: the worker's own memory.
            best(logits, start, keys, unsafe { all.write(room) });
        }
        let summary_at = at + self.row_pieces() * kept + 2 * piece;
        // SAFETY: each piece of a row belongs to one worker.
        let words = unsafe { all.write(summary_at..summary_at + 2) };
        words[0] = u64::from(found.max.to_bits()) | u64::from(found.finite) << 32;
        words[1] = u64::from(found.sum.to_bits());
    }

    /// Merges the pieces of a row.
    fn merge(&self, scratch: Span<u64>, at: usize, row: usize) {
        let (pieces, kept, k) = (self.row_pieces(), self.kept(), self.k);
        // SAFETY: the barrier has ended all writes; a row belongs to one worker.
        let (keys, words) = unsafe {
            let keys = scratch.write(at..at + pieces * kept);
            (keys, scratch.read(at + pieces * kept..at + pieces * (kept + 2)))
        };
        let summaries = words.as_chunks::<2>().0.iter().map(|w| Summary {
            max: f32::from_bits(w[0] as u32),
            finite: w[0] >> 32 != 0,
            sum: f32::from_bits(w[1] as u32),
        });
        let finite = summaries.clone().all(|s| s.finite);
        // SAFETY: each row of the outputs belongs to one worker.
        let (ids, values) = unsafe {
            (self.ids.write(row * k..(row + 1) * k), self.values.write(row * k..(row + 1) * k))
        };
        if finite {
            if k < keys.len() {
                keys.select_nth_unstable(k - 1);
            }
            keys[..k].sort_unstable();
            for ((id, value), key) in ids.iter_mut().zip(&mut *values).zip(&*keys) {
                *id = (key & 0xffff_ffff) as i32;
                let at = row * self.vocabulary + (key & 0xffff_ffff) as usize;
                // SAFETY: inputs of an operation are not written while it runs.
                *value = unsafe { self.logits.value(at) };
            }
        } else {
            ids.fill(SENTINEL);
            values.fill(f32::NAN);
        }
        if let Some(out) = &self.log_sum_exp {
            let max = summaries.clone().fold(f32::NEG_INFINITY, |m, s| m.max(s.max));
            let terms = summaries.map(|s| f64::from(s.sum) * f64::from(s.max - max).exp());
            let sum: f64 = terms.sum();
            // SAFETY: each row of the outputs belongs to one worker.
            let out = unsafe { out.write(row..row + 1) };
            out[0] = if finite { (f64::from(max) + sum.ln()) as f32 } else { f32::NAN };
        }
    }
}

impl CpuKernel for Kernel {
    fn run(&self, worker: &Worker<'_>) {
        let rows = self.control.row_set(worker, RowSet::LogitsCompact, self.rows, self.rows).count;
        let pieces = self.row_pieces();
        for item in self.pieces.chunks(worker, rows * pieces) {
            self.piece(worker, item / pieces, item % pieces);
        }
        worker.barrier();
        for row in worker.share(rows, 1) {
            let at = worker.count * PIECE + row * self.row_words();
            self.merge(worker.scratch().cast(), at, row);
        }
    }

    fn key(&self) -> KernelKey {
        KernelKey { op: "top_k", dtype: DType::F32, regime: None, variant: self.isa.name() }
    }
}
