//! One split of the keys for one block of queries.

use std::ops::Range;

use foretoken::kernel::Attention;

use super::fold::Stats;
use super::tiles::{TILE, Tile, scores, weigh, widen_bf16, widen_f16};
use crate::math::{exp1, largest, per_isa, sum};
use crate::ops::kv_append::Cache;
use crate::simd::Isa;

/// Most queries in a block.
pub(super) const MAX_QUERIES: usize = 32;

/// One split of one key-value head's cache.
pub(super) struct Keys<'a> {
    pub(super) k: &'a Cache,
    pub(super) v: &'a Cache,
    /// First slot of the split.
    pub(super) first: usize,
    /// Keys that lie in the slots from `first` on, for all rows; those of a row that
    /// come after are listed by the row.
    pub(super) shared: usize,
    /// The slot that the rows' lists count from.
    pub(super) committed: usize,
    /// Elements from one slot to the next, and of the head within a slot.
    pub(super) slot: usize,
    pub(super) offset: usize,
    pub(super) head_dim: usize,
}

/// What a row of the block sees of the split.
pub(super) struct Seen<'a> {
    /// The row's place in the block, and in what the split leaves.
    pub(super) place: usize,
    /// Its keys, at least one, counted from the start of the split.
    pub(super) keys: Range<usize>,
    /// Slots of the keys after the shared ones.
    pub(super) own: &'a [u8],
}

impl Seen<'_> {
    /// Of nothing.
    pub(super) const NONE: Self = Self { place: 0, keys: 0..0, own: &[] };
}

/// Queries of some rows that share a key-value head.
pub(super) struct Queries<'a> {
    /// As many to each row.
    pub(super) q: &'a [&'a [f32]],
    /// The rows.
    pub(super) seen: &'a [Seen<'a>],
    /// Factor on the scores.
    pub(super) scale: f32,
}

/// Memory of one worker, in floats.
pub(super) struct Room<'a> {
    /// [`TILE`] keys or values.
    pub(super) tile: &'a mut [f32],
    /// [`MAX_QUERIES`] rows of [`Attention::SPLIT`] scores.
    pub(super) scores: &'a mut [f32],
}

impl Room<'_> {
    /// Floats for a head of this size.
    pub(super) fn floats(head_dim: usize) -> usize {
        TILE * head_dim + MAX_QUERIES * Attention::SPLIT
    }
}

/// Softmax parts of a split, each row's queries at its place: statistics, and in
/// `sums` the weighted sums of values, not yet divided. Other places are left alone.
pub(super) fn split(
    isa: Isa,
    keys: &Keys<'_>,
    queries: &Queries<'_>,
    room: &mut Room<'_>,
    stats: &mut [Stats],
    sums: &mut [f32],
) {
    let Queries { q: queries, seen, scale } = *queries;
    const STRIDE: usize = Attention::SPLIT;
    let d = keys.head_dim;
    let group = queries.len() / seen.len();
    let low = seen.iter().map(|s| s.keys.start).min().unwrap_or(0);
    let high = seen.iter().map(|s| s.keys.end).max().unwrap_or(0).min(keys.shared);
    for start in (low..high).step_by(TILE) {
        let tile = keys.fetch(isa, keys.k, start..high.min(start + TILE), room.tile);
        scores(isa, queries, tile, scale, &mut room.scores[start..], STRIDE);
    }
    for (i, seen) in seen.iter().enumerate() {
        let first = i * group;
        for part in keys.own(seen) {
            let tile = keys.gather(isa, keys.k, seen, part.clone(), room.tile);
            let out = &mut room.scores[first * STRIDE + part.start..];
            scores(isa, &queries[first..first + group], tile, scale, out, STRIDE);
        }
        let stats = &mut stats[seen.place * group..][..group];
        for (q, stats) in stats.iter_mut().enumerate() {
            let row = &mut room.scores[(first + q) * STRIDE..][..STRIDE];
            softmax(isa, &mut row[seen.keys.clone()], stats);
        }
        sums[seen.place * group * d..][..group * d].fill(0.0);
    }
    for start in (low..high).step_by(TILE) {
        let tile = keys.fetch(isa, keys.v, start..high.min(start + TILE), room.tile);
        // Each row has its own first and last key: one more term, even a zero, would
        // be another sum.
        for (i, seen) in seen.iter().enumerate() {
            let from = seen.keys.start.max(start);
            let to = seen.keys.end.min(start + tile.count);
            if from < to {
                let p = &room.scores[i * group * STRIDE + from..];
                let sums = &mut sums[seen.place * group * d..][..group * d];
                weigh(isa, p, STRIDE, tile.part(from - start..to - start), sums, d);
            }
        }
    }
    for (i, seen) in seen.iter().enumerate() {
        for part in keys.own(seen) {
            let tile = keys.gather(isa, keys.v, seen, part.clone(), room.tile);
            let p = &room.scores[i * group * STRIDE + part.start..];
            weigh(isa, p, STRIDE, tile, &mut sums[seen.place * group * d..][..group * d], d);
        }
    }
}

impl Keys<'_> {
    /// Where a slot of the head begins.
    fn at(&self, slot: usize) -> usize {
        slot * self.slot + self.offset
    }

    /// A row's keys after the shared ones, a tile at a time.
    fn own(&self, seen: &Seen<'_>) -> impl Iterator<Item = Range<usize>> {
        let end = seen.keys.end;
        (self.shared..end).step_by(TILE).map(move |start| start..end.min(start + TILE))
    }

    /// Some shared keys or values as floats, decoded to `room` unless they are floats.
    fn fetch<'a>(
        &self,
        isa: Isa,
        cache: &Cache,
        keys: Range<usize>,
        room: &'a mut [f32],
    ) -> Tile<'a> {
        let (d, count) = (self.head_dim, keys.len());
        let slots = self.first + keys.start..self.first + keys.end;
        if let Cache::F32(cache) = cache {
            let range = self.at(slots.start)..self.at(slots.end - 1) + d;
            // SAFETY: inputs of an operation are not written while it runs.
            return Tile { data: unsafe { cache.read(range) }, pitch: self.slot, count };
        }
        for (to, slot) in room.chunks_exact_mut(d).zip(slots) {
            self.decode(isa, cache, slot, to);
        }
        Tile { data: room, pitch: d, count }
    }

    /// Some of a row's own keys or values as floats, brought together in `room`.
    fn gather<'a>(
        &self,
        isa: Isa,
        cache: &Cache,
        seen: &Seen<'_>,
        keys: Range<usize>,
        room: &'a mut [f32],
    ) -> Tile<'a> {
        let own = &seen.own[keys.start - self.shared..keys.end - self.shared];
        for (to, row) in room.chunks_exact_mut(self.head_dim).zip(own) {
            self.decode(isa, cache, self.committed + usize::from(*row), to);
        }
        Tile { data: room, pitch: self.head_dim, count: own.len() }
    }

    /// One key or value as floats.
    fn decode(&self, isa: Isa, cache: &Cache, slot: usize, to: &mut [f32]) {
        let range = self.at(slot)..self.at(slot) + self.head_dim;
        match cache {
            // SAFETY: inputs of an operation are not written while it runs.
            Cache::F32(cache) => to.copy_from_slice(unsafe { cache.read(range) }),
            // SAFETY: as above.
            Cache::F16(cache) => widen_f16(isa, unsafe { cache.read(range) }, to),
            // SAFETY: as above.
            Cache::BF16(cache) => widen_bf16(isa, unsafe { cache.read(range) }, to),
        }
    }
}

per_isa! {
    /// Scores to unnormalised probabilities.
    fn softmax[s](scores: &mut [f32], stats: &mut Stats) {
        let max = largest(s, scores);
        for score in &mut *scores {
            *score = exp1(*score - max);
        }
        *stats = Stats { max, sum: sum(s, scores) };
    }
}
