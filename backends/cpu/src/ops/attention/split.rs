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
    /// Elements from one slot to the next, and of the head within a slot.
    pub(super) slot: usize,
    pub(super) offset: usize,
    pub(super) head_dim: usize,
}

/// Queries of some rows that share a key-value head.
pub(super) struct Queries<'a> {
    /// As many to each row.
    pub(super) q: &'a [&'a [f32]],
    /// Keys of the split that each row sees, at least one.
    pub(super) visible: &'a [usize],
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

/// Softmax parts of a split, query after query: statistics, and in `sums` the weighted
/// sums of values, not yet divided.
pub(super) fn split(
    isa: Isa,
    keys: &Keys<'_>,
    queries: &Queries<'_>,
    room: &mut Room<'_>,
    stats: &mut [Stats],
    sums: &mut [f32],
) {
    let Queries { q: queries, visible, scale } = *queries;
    const STRIDE: usize = Attention::SPLIT;
    let d = keys.head_dim;
    let group = queries.len() / visible.len();
    let n = visible.iter().copied().max().unwrap_or(0);
    for start in (0..n).step_by(TILE) {
        let tile = keys.fetch(isa, keys.k, start..n.min(start + TILE), room.tile);
        scores(isa, queries, tile, scale, &mut room.scores[start..], STRIDE);
    }
    for (q, stats) in stats.iter_mut().enumerate().take(queries.len()) {
        let row = &mut room.scores[q * STRIDE..(q + 1) * STRIDE];
        softmax(isa, &mut row[..visible[q / group]], stats);
    }
    sums.fill(0.0);
    for start in (0..n).step_by(TILE) {
        let tile = keys.fetch(isa, keys.v, start..n.min(start + TILE), room.tile);
        // Each row stops at its own last key: one more term, even a zero, would be
        // another sum.
        for (row, &seen) in visible.iter().enumerate() {
            let seen = Tile { count: tile.count.min(seen.saturating_sub(start)), ..tile };
            let p = &room.scores[row * group * STRIDE + start..];
            let sums = &mut sums[row * group * d..(row + 1) * group * d];
            weigh(isa, p, STRIDE, seen, sums, d);
        }
    }
}

impl Keys<'_> {
    /// Some slots of the split as floats, decoded to `room` unless they are floats.
    fn fetch<'a>(
        &self,
        isa: Isa,
        cache: &Cache,
        slots: Range<usize>,
        room: &'a mut [f32],
    ) -> Tile<'a> {
        let (d, count) = (self.head_dim, slots.len());
        let at = |slot: usize| (self.first + slot) * self.slot + self.offset;
        if let Cache::F32(cache) = cache {
            let range = at(slots.start)..at(slots.end - 1) + d;
            // SAFETY: inputs of an operation are not written while it runs.
            return Tile { data: unsafe { cache.read(range) }, pitch: self.slot, count };
        }
        for (to, slot) in room.chunks_exact_mut(d).zip(slots) {
            let range = at(slot)..at(slot) + d;
            match cache {
                // SAFETY: as above.
                Cache::F16(cache) => widen_f16(isa, unsafe { cache.read(range) }, to),
                // SAFETY: as above.
                Cache::BF16(cache) => widen_bf16(isa, unsafe { cache.read(range) }, to),
                Cache::F32(_) => {}
            }
        }
        Tile { data: room, pitch: d, count }
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
