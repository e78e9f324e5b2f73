//! A stretch of a word, encoded on its own with a record of how it went.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{Merges, NONE};

/// A part: a token at the place of its first byte, and the rank of the pair that it
/// begins. When it has been joined to its left neighbour it keeps that story instead:
/// `prev` is the neighbour's place and `next` the token they became.
#[derive(Clone, Copy)]
struct Part {
    id: u32,
    prev: u32,
    next: u32,
    rank: u32,
    /// The highest rank joined up to when this part was joined to its left neighbour.
    end: u32,
}

/// A token that stood at an edge for a while: the highest rank joined anywhere in the
/// block up to when it was joined to another; [`NONE`] for one that is still there.
pub(super) type Stay = (u32, u32);

/// An encoded stretch: a doubly linked list of parts.
pub(super) struct Block {
    parts: Vec<Part>,
    /// The tokens that began the block, but for the last.
    first: Vec<Stay>,
}

/// Order of joining: the rank, then the place.
type Entry = Reverse<(u32, u32)>;

impl Block {
    /// Encodes `bytes`, of which there must be less than 2^32.
    pub(super) fn new(merges: &Merges, bytes: &[u8]) -> Self {
        let mut parts = Vec::with_capacity(bytes.len());
        let mut entries: Vec<Entry> = Vec::with_capacity(bytes.len());
        let mut ahead = bytes.iter().skip(1);
        for (place, &byte) in (0u32..).zip(bytes) {
            let id = merges.byte(byte);
            let (next, rank) = match ahead.next() {
                Some(&right) => (place + 1, merges.get(id, merges.byte(right)).rank),
                None => (NONE, NONE),
            };
            let prev = place.checked_sub(1).unwrap_or(NONE);
            parts.push(Part { id, prev, next, rank, end: NONE });
            if rank != NONE {
                entries.push(Reverse((rank, place)));
            }
        }
        let mut block = Self { parts, first: Vec::new() };
        let mut queue = BinaryHeap::from(entries);
        let mut highest = 0;
        while let Some(Reverse((rank, at))) = queue.pop() {
            // Entries stay in the queue when their pair goes; such are skipped here.
            if block.get(at).is_some_and(|part| part.rank == rank) {
                highest = highest.max(rank);
                block.join(merges, at, highest, &mut queue);
            }
        }
        block
    }

    fn get(&self, at: u32) -> Option<Part> {
        self.parts.get(at as usize).copied()
    }

    /// Joins the pair that begins at `at`.
    fn join(&mut self, merges: &Merges, at: u32, highest: u32, queue: &mut BinaryHeap<Entry>) {
        let Some(left) = self.get(at) else { return };
        let Some(right) = self.get(left.next) else { return };
        let id = merges.get(left.id, right.id).id;
        if let Some(gone) = self.parts.get_mut(left.next as usize) {
            *gone = Part { prev: at, next: id, rank: NONE, end: highest, ..right };
        }
        if let Some(after) = self.parts.get_mut(right.next as usize) {
            after.prev = at;
        }
        if let Some(part) = self.parts.get_mut(at as usize) {
            part.id = id;
            part.next = right.next;
        }
        if at == 0 {
            self.first.push((left.id, highest));
        }
        self.set_rank(merges, at, queue);
        self.set_rank(merges, left.prev, queue);
    }

    /// Looks up the pair that begins at `at` (which may be no place) anew.
    fn set_rank(&mut self, merges: &Merges, at: u32, queue: &mut BinaryHeap<Entry>) {
        let Some(part) = self.get(at) else { return };
        let rank = match self.get(part.next) {
            Some(next) => merges.get(part.id, next.id).rank,
            None => NONE,
        };
        if let Some(part) = self.parts.get_mut(at as usize) {
            part.rank = rank;
        }
        if rank != NONE {
            queue.push(Reverse((rank, at)));
        }
    }

    /// Places and ids of the tokens.
    pub(super) fn tokens(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
        let mut at = 0;
        std::iter::from_fn(move || {
            let (place, part) = (at, self.get(at)?);
            at = part.next;
            Some((place as usize, part.id))
        })
    }

    /// The tokens that began the block, one after another.
    pub(super) fn first(&self) -> impl Iterator<Item = Stay> + '_ {
        let now = self.get(0).map(|part| (part.id, NONE));
        self.first.iter().copied().chain(now)
    }

    /// The tokens that ended at `edge`, one after another, where `edge` is a place at
    /// which a token begins and `byte` the token of the byte before it.
    pub(super) fn last(&self, edge: usize, byte: u32) -> impl Iterator<Item = Stay> + '_ {
        let mut now = edge.checked_sub(1).map(|place| (place, byte));
        std::iter::from_fn(move || {
            let (place, id) = now?;
            let part = self.parts.get(place)?;
            // Joined to the left, it became `next`, which begins at `prev`.
            now = (part.end != NONE).then_some((part.prev as usize, part.next));
            Some((id, part.end))
        })
    }
}
