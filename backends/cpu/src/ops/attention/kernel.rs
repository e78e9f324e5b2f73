//! Sharing attention among the workers.

use std::ops::Range;

use foretoken::device::DeviceFault;
use foretoken::kernel::{Attention, KernelKey, Regime};
use foretoken::tensor::DType;

use super::fold::{Stats, finish, fold};
use super::split::{Keys, MAX_QUERIES, Room, split};
use crate::memory::{Span, View};
use crate::ops::kv_append::Cache;
use crate::ops::{Bind, Controls};
use crate::pool::{ChunkCounter, CpuKernel, Worker};
use crate::simd::Isa;

const SPLIT: usize = Attention::SPLIT;

pub(in crate::ops) struct Kernel {
    control: Controls,
    q: View<f32>,
    k: Cache,
    v: Cache,
    out: View<f32>,
    scale: f32,
    shape: Shape,
    regime: Regime,
    dtype: DType,
    isa: Isa,
    items: ChunkCounter,
}

/// Sizes fixed when the kernel is prepared.
#[derive(Clone, Copy)]
struct Shape {
    rows: usize,
    context: usize,
    kv_heads: usize,
    /// Query heads per key-value head.
    group: usize,
    q_stride: usize,
    head_dim: usize,
    /// Rows in a block.
    block_rows: usize,
    /// Most work items in a wave of splits.
    wave_items: usize,
}

impl Shape {
    fn block_queries(&self) -> usize {
        self.block_rows * self.group
    }

    /// Floats of what a split leaves: sums, then a maximum and a sum for each query.
    fn record(&self) -> usize {
        self.block_queries() * (self.head_dim + 2)
    }

    /// Floats a worker has to itself: room for a split, and one record.
    fn private(&self) -> usize {
        Room::floats(self.head_dim) + self.record()
    }

    /// Floats of scratch for all: workers, then running statistics of the blocks of
    /// a wave, then the wave's records.
    fn scratch(&self, workers: usize) -> Option<usize> {
        let stats = self.wave_items.checked_mul(2 * self.block_queries())?;
        let records = self.wave_items.checked_mul(self.record())?;
        workers.checked_mul(self.private())?.checked_add(stats)?.checked_add(records)
    }
}

impl Kernel {
    pub(in crate::ops) fn new(bind: &Bind<'_>, op: &Attention) -> Result<Self, DeviceFault> {
        let [rows, q_heads, q_stride] = bind.dims(&op.q, "q must be [M, Hq, q_stride]")?;
        let [outs, out_heads, head_dim] = bind.dims(&op.out, "out must be [M, Hq, head_dim]")?;
        let [context, kv_heads, dim] = Cache::dims(bind, &op.cache)?;
        bind.ensure(q_heads == out_heads, "q and out differ in heads")?;
        bind.ensure(dim == head_dim, "the cache and out differ in head_dim")?;
        bind.ensure(q_stride >= head_dim, "a row of q must hold a head")?;
        bind.ensure(q_heads % kv_heads == 0, "Hq must be a multiple of Hkv")?;
        let group = q_heads / kv_heads;
        bind.ensure(group <= MAX_QUERIES, "more than 32 query heads to a key-value head")?;
        bind.apart(&[&op.out], &[&op.q, &op.cache.k, &op.cache.v, &op.control.0])?;
        let shape = Shape {
            rows: rows.min(outs),
            context,
            kv_heads,
            group,
            q_stride,
            head_dim,
            block_rows: MAX_QUERIES / group,
            wave_items: 4 * bind.threads(),
        };
        let floats = shape.scratch(bind.threads());
        bind.scratch(floats.and_then(|n| n.checked_mul(size_of::<f32>())))?;
        Ok(Self {
            control: bind.control(&op.control)?,
            q: bind.view(&op.q)?,
            k: Cache::new(bind, &op.cache.k)?,
            v: Cache::new(bind, &op.cache.v)?,
            out: bind.view(&op.out)?,
            scale: op.scale,
            shape,
            regime: op.regime,
            dtype: op.cache.k.dtype(),
            isa: bind.isa(),
            items: ChunkCounter::new(),
        })
    }
}

/// One launch: what all workers agree on.
#[derive(Clone, Copy)]
struct Call {
    rows: usize,
    committed: usize,
    /// Blocks of rows.
    row_blocks: usize,
}

impl Call {
    /// Splits that the keys of a row reach into.
    fn splits(&self, row: usize) -> usize {
        (self.committed + row + 1).div_ceil(SPLIT)
    }

    /// Keys of a split that a row sees.
    fn visible(&self, row: usize, split: usize) -> usize {
        (self.committed + row + 1).saturating_sub(split * SPLIT).min(SPLIT)
    }
}

impl CpuKernel for Kernel {
    fn run(&self, worker: &Worker<'_>) {
        let shape = &self.shape;
        let rows = self.control.rows(worker, shape.rows);
        let committed = self.control.committed(worker);
        if committed.checked_add(rows).is_none_or(|end| end > shape.context) {
            worker.refuse("the call reaches past the end of the cache");
        }
        if rows == 0 {
            return;
        }
        let call = Call { rows, committed, row_blocks: rows.div_ceil(shape.block_rows) };
        let blocks = call.row_blocks * shape.kv_heads;
        if blocks >= worker.count || call.splits(rows - 1) == 1 {
            for block in self.items.chunks(worker, blocks) {
                self.whole(worker, &call, block);
            }
        } else {
            self.waves(worker, &call, blocks);
        }
    }

    fn key(&self) -> KernelKey {
        let (dtype, regime) = (self.dtype, Some(self.regime));
        KernelKey { op: "attention", dtype, regime, variant: self.isa.name() }
    }
}

impl Kernel {
    /// A block from its first split to its last.
    fn whole(&self, worker: &Worker<'_>, call: &Call, block: usize) {
        let (rows, head) = self.block(call, block);
        let (queries, d) = (rows.len() * self.shape.group, self.shape.head_dim);
        let mut stats = [Stats::EMPTY; MAX_QUERIES];
        let mut sums = self.sums(worker);
        for number in 0..call.splits(rows.end - 1) {
            let mut later = [Stats::EMPTY; MAX_QUERIES];
            let skipped = self.part(worker, call, &rows, head, number, &mut later, &mut sums);
            for q in skipped..queries {
                let values = &sums[(q - skipped) * d..(q - skipped + 1) * d];
                let out = self.result(&rows, head, q);
                fold(self.isa, &mut stats[q], out, &later[q - skipped], values);
            }
        }
        for (q, stats) in stats.iter().enumerate().take(queries) {
            finish(self.isa, stats, self.result(&rows, head, q));
        }
    }

    /// Splits side by side, a wave of them at a time.
    fn waves(&self, worker: &Worker<'_>, call: &Call, blocks: usize) {
        let shape = &self.shape;
        let (all, d) = (worker.scratch().cast::<f32>(), shape.head_dim);
        let stats_at = worker.count * shape.private();
        let records_at = stats_at + shape.wave_items * 2 * shape.block_queries();
        let width = (shape.wave_items / blocks).max(1);
        let splits = call.splits(call.rows - 1);
        for first in (0..splits).step_by(width) {
            let last = splits.min(first + width);
            let items = (last - first) * blocks;
            for item in self.items.chunks(worker, items) {
                let (rows, head) = self.block(call, item % blocks);
                let number = first + item / blocks;
                if call.visible(rows.end - 1, number) == 0 {
                    continue;
                }
                let at = records_at + item * shape.record();
                // SAFETY: each item of a wave belongs to one worker.
                let record = unsafe { all.write(at..at + shape.record()) };
                let (sums, kept) = record.split_at_mut(shape.block_queries() * d);
                let mut stats = [Stats::EMPTY; MAX_QUERIES];
                let skipped = self.part(worker, call, &rows, head, number, &mut stats, sums);
                for (q, kept) in kept.chunks_exact_mut(2).enumerate().skip(skipped) {
                    (kept[0], kept[1]) = (stats[q - skipped].max, stats[q - skipped].sum);
                }
            }
            worker.barrier();
            for query in worker.share(blocks * shape.block_queries(), 1) {
                let (block, q) = (query / shape.block_queries(), query % shape.block_queries());
                let (rows, head) = self.block(call, block);
                if q >= rows.len() * shape.group {
                    continue;
                }
                let at = stats_at + 2 * query;
                // SAFETY: each query belongs to one worker, the same in each wave.
                let kept = unsafe { all.write(at..at + 2) };
                let mut stats = match first {
                    0 => Stats::EMPTY,
                    _ => Stats { max: kept[0], sum: kept[1] },
                };
                let out = self.result(&rows, head, q);
                let row = rows.start + q / shape.group;
                for number in first..last.min(call.splits(row)) {
                    let item = (number - first) * blocks + block;
                    let at = records_at + item * shape.record();
                    // SAFETY: the barrier has ended the writes to the records.
                    let record = unsafe { all.read(at..at + shape.record()) };
                    let (sums, later) = record.split_at(shape.block_queries() * d);
                    let later = Stats { max: later[2 * q], sum: later[2 * q + 1] };
                    let skipped = self.skipped(call, &rows, number);
                    let values = &sums[(q - skipped) * d..(q - skipped + 1) * d];
                    fold(self.isa, &mut stats, out, &later, values);
                }
                (kept[0], kept[1]) = (stats.max, stats.sum);
                if last == splits {
                    finish(self.isa, &stats, out);
                }
            }
            worker.barrier();
        }
    }

    /// Rows and key-value head of a block.
    fn block(&self, call: &Call, block: usize) -> (Range<usize>, usize) {
        let start = block % call.row_blocks * self.shape.block_rows;
        (start..call.rows.min(start + self.shape.block_rows), block / call.row_blocks)
    }

    /// Queries of the first rows of a block that do not reach into a split.
    fn skipped(&self, call: &Call, rows: &Range<usize>, number: usize) -> usize {
        let blind = rows.clone().take_while(|&row| call.visible(row, number) == 0).count();
        blind * self.shape.group
    }

    /// One split for those queries of a block that reach into it; `stats` and `sums`
    /// start with the first of them. Returns how many queries do not.
    #[allow(clippy::too_many_arguments)]
    fn part(
        &self,
        worker: &Worker<'_>,
        call: &Call,
        rows: &Range<usize>,
        head: usize,
        number: usize,
        stats: &mut [Stats; MAX_QUERIES],
        sums: &mut [f32],
    ) -> usize {
        let Shape { group, q_stride, head_dim: d, kv_heads, .. } = self.shape;
        let skipped = self.skipped(call, rows, number);
        let rows = rows.start + skipped / group..rows.end;
        let mut queries: [&[f32]; MAX_QUERIES] = [&[]; MAX_QUERIES];
        let mut visible = [0; MAX_QUERIES];
        for (i, row) in rows.clone().enumerate() {
            visible[i] = call.visible(row, number);
            for j in 0..group {
                let at = ((row * kv_heads + head) * group + j) * q_stride;
                // SAFETY: inputs of an operation are not written while it runs.
                queries[i * group + j] = unsafe { self.q.read(at..at + d) };
            }
        }
        let keys = Keys {
            k: &self.k,
            v: &self.v,
            first: number * SPLIT,
            slot: kv_heads * d,
            offset: head * d,
            head_dim: d,
        };
        let n = rows.len() * group;
        let mut room = self.room(worker);
        let (sums, visible) = (&mut sums[..n * d], &visible[..rows.len()]);
        split(self.isa, &keys, &queries[..n], visible, self.scale, &mut room, stats, sums);
        skipped
    }

    fn private(&self, worker: &Worker<'_>) -> Span<f32> {
        let n = self.shape.private();
        worker.scratch().cast::<f32>().part(worker.index * n..(worker.index + 1) * n)
    }

    fn room(&self, worker: &Worker<'_>) -> Room<'_> {
        let all = self.private(worker);
        let scores = MAX_QUERIES * SPLIT;
        let n = Room::floats(self.shape.head_dim);
        // SAFETY: the worker's own memory; a room lives within one call of `part`.
        unsafe { Room { tile: all.write(scores..n), scores: all.write(0..scores) } }
    }

    fn sums(&self, worker: &Worker<'_>) -> &mut [f32] {
        let n = Room::floats(self.shape.head_dim);
        // SAFETY: the worker's own memory, past its room; taken once per block.
        unsafe {
            self.private(worker).write(n..n + self.shape.block_queries() * self.shape.head_dim)
        }
    }

    /// The output of a block's query.
    fn result(&self, rows: &Range<usize>, head: usize, q: usize) -> &mut [f32] {
        let Shape { group, head_dim: d, kv_heads, .. } = self.shape;
        let row = rows.start + q / group;
        let at = ((row * kv_heads + head) * group + q % group) * d;
        // SAFETY: each output belongs to one worker; borrows end with their statement.
        unsafe { self.out.write(at..at + d) }
    }
}
