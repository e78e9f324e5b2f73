//! The two ways through the splits: one block by one worker, or waves.

use std::ops::Range;

use foretoken::kernel::Attention;

use super::fold::{Stats, finish, fold};
use super::kernel::Kernel;
use super::shape::{Block, Call, Shape};
use super::split::{Keys, MAX_QUERIES, Queries, Room, Seen, split};
use crate::memory::Span;
use crate::pool::Worker;

impl Kernel {
    /// A block from its first split to its last.
    pub(super) fn whole(&self, worker: &Worker<'_>, call: &Call<'_>, number: usize) {
        let block = call.block(number);
        let (queries, d) = (block.rows.len() * self.shape.group, self.shape.head_dim);
        let mut stats = [Stats::EMPTY; MAX_QUERIES];
        let (first, own) = (Room::floats(d), self.private(worker));
        // SAFETY: the worker's own memory, past its room.
        let sums = unsafe { own.write(first..own.len()) };
        for number in call.splits_of(block.rows.clone()) {
            let mut later = [Stats::EMPTY; MAX_QUERIES];
            self.part(worker, call, &block, number, &mut later, sums);
            for q in 0..queries {
                let row = block.rows.start + q / self.shape.group;
                if !call.splits(row).contains(&number) {
                    continue;
                }
                // SAFETY: the outputs of a block belong to one worker.
                let out = unsafe { self.result(&block, q).write(0..d) };
                fold(self.isa, &mut stats[q], out, &later[q], &sums[q * d..(q + 1) * d]);
            }
        }
        for (q, stats) in stats.iter().enumerate().take(queries) {
            // SAFETY: as above.
            finish(self.isa, stats, unsafe { self.result(&block, q).write(0..d) });
        }
    }

    /// Splits side by side, a wave of them at a time, each wave then folded.
    pub(super) fn waves(&self, worker: &Worker<'_>, call: &Call<'_>, blocks: usize) {
        let splits = call.splits_of(0..call.rows);
        let width = (self.shape.wave_items / blocks).max(1);
        for first in splits.clone().step_by(width) {
            let last = splits.end.min(first + width);
            let (starts, ends) = (first == splits.start, last == splits.end);
            let wave = Wave { splits: first..last, blocks, starts, ends };
            for item in self.items.chunks(worker, wave.items()) {
                self.record(worker, call, &wave, item);
            }
            worker.barrier();
            for query in worker.share(blocks * self.shape.block_queries(), 1) {
                self.gather(worker, call, &wave, query);
            }
            worker.barrier();
        }
    }

    /// One split of one block, left in the wave's records.
    fn record(&self, worker: &Worker<'_>, call: &Call<'_>, wave: &Wave, item: usize) {
        let shape = &self.shape;
        let (block, number) =
            (call.block(item % wave.blocks), wave.splits.start + item / wave.blocks);
        let at = shape.records_at(worker.count) + item * shape.record();
        let all = worker.scratch().cast::<f32>();
        // SAFETY: each item of a wave belongs to one worker.
        let record = unsafe { all.write(at..at + shape.record()) };
        let (sums, kept) = record.split_at_mut(shape.block_queries() * shape.head_dim);
        let mut stats = [Stats::EMPTY; MAX_QUERIES];
        self.part(worker, call, &block, number, &mut stats, sums);
        for (kept, stats) in kept.as_chunks_mut().0.iter_mut().zip(stats) {
            *kept = [stats.max, stats.sum];
        }
    }

    /// Folds a wave's records of one query.
    fn gather(&self, worker: &Worker<'_>, call: &Call<'_>, wave: &Wave, query: usize) {
        let shape = &self.shape;
        let (queries, d) = (shape.block_queries(), shape.head_dim);
        let (number, q) = (query / queries, query % queries);
        let block = call.block(number);
        if q >= block.rows.len() * shape.group {
            return;
        }
        let all = worker.scratch().cast::<f32>();
        let at = shape.stats_at(worker.count) + 2 * query;
        // SAFETY: each query belongs to one worker, the same in each wave.
        let (kept, out) = unsafe { (all.write(at..at + 2), self.result(&block, q).write(0..d)) };
        let mut stats = match wave.starts {
            true => Stats::EMPTY,
            false => Stats { max: kept[0], sum: kept[1] },
        };
        let seen = call.splits(block.rows.start + q / shape.group);
        for split in wave.splits.start.max(seen.start)..wave.splits.end.min(seen.end) {
            let item = (split - wave.splits.start) * wave.blocks + number;
            let at = shape.records_at(worker.count) + item * shape.record();
            // SAFETY: the barrier has ended the writes to the records.
            let (sums, later) = unsafe { all.read(at..at + shape.record()) }.split_at(queries * d);
            let later = Stats { max: later[2 * q], sum: later[2 * q + 1] };
            fold(self.isa, &mut stats, out, &later, &sums[q * d..(q + 1) * d]);
        }
        (kept[0], kept[1]) = (stats.max, stats.sum);
        if wave.ends {
            finish(self.isa, &stats, out);
        }
    }

    /// One split for those rows of a block that see any of it; `stats` and `sums` have
    /// room for all its queries.
    fn part(
        &self,
        worker: &Worker<'_>,
        call: &Call<'_>,
        block: &Block,
        number: usize,
        stats: &mut [Stats; MAX_QUERIES],
        sums: &mut [f32],
    ) {
        let Shape { group, q_stride, head_dim: d, kv_heads, .. } = self.shape;
        let mut queries: [&[f32]; MAX_QUERIES] = [&[]; MAX_QUERIES];
        let mut seen = [const { Seen::NONE }; MAX_QUERIES];
        let mut n = 0;
        for (place, row) in block.rows.clone().enumerate() {
            let keys = call.seen(row, number);
            if keys.is_empty() {
                continue;
            }
            seen[n] = Seen { place, keys, own: call.own(row, number) };
            for j in 0..group {
                let at = ((row * kv_heads + block.head) * group + j) * q_stride;
                // SAFETY: inputs of an operation are not written while it runs.
                queries[n * group + j] = unsafe { self.q.read(at..at + d) };
            }
            n += 1;
        }
        if n == 0 {
            return;
        }
        let keys = Keys {
            k: &self.k,
            v: &self.v,
            first: number * Attention::SPLIT,
            shared: call.shared(number),
            committed: call.committed,
            slot: kv_heads * d,
            offset: block.head * d,
            head_dim: d,
        };
        let queries = Queries { q: &queries[..n * group], seen: &seen[..n], scale: self.scale };
        let scores = MAX_QUERIES * Attention::SPLIT;
        let own = self.private(worker);
        // SAFETY: the worker's own memory; nothing else of this worker borrows the room.
        let (scores, tile) = unsafe { (own.write(0..scores), own.write(scores..Room::floats(d))) };
        split(self.isa, &keys, &queries, &mut Room { tile, scores }, stats, sums);
    }

    /// The worker's own part of the scratch memory.
    fn private(&self, worker: &Worker<'_>) -> Span<f32> {
        let n = self.shape.private();
        worker.scratch().cast::<f32>().part(worker.index * n..(worker.index + 1) * n)
    }

    /// Where the output of a block's query goes.
    fn result(&self, block: &Block, q: usize) -> Span<f32> {
        let Shape { group, head_dim: d, kv_heads, .. } = self.shape;
        let row = block.rows.start + q / group;
        let at = ((row * kv_heads + block.head) * group + q % group) * d;
        self.out.part(at..at + d)
    }
}

/// Splits that are computed side by side.
struct Wave {
    splits: Range<usize>,
    blocks: usize,
    /// Whether they are the first of the call, or the last.
    starts: bool,
    ends: bool,
}

impl Wave {
    /// One for each split of each block.
    fn items(&self) -> usize {
        self.splits.len() * self.blocks
    }
}
