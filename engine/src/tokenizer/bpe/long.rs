//! Long words: a linked list of parts and a queue of the pairs in it.

use super::queue::Queue;
use super::{Merge, Merges, NONE};

/// A part of a long word: a token, its neighbours, and the pair it begins.
#[derive(Clone, Copy)]
struct Part {
    id: u32,
    prev: u32,
    next: u32,
    merge: Merge,
}

/// A long word as a doubly linked list, and a queue of the pairs in it. Entries of
/// the queue are never taken out when a pair goes; `pop` skips those that no longer
/// say what the list says.
pub(super) struct List {
    parts: Vec<Part>,
    queue: Queue,
}

impl List {
    pub(super) fn new(merges: &Merges, word: &[u8]) -> Self {
        let last = word.len().saturating_sub(1);
        let mut parts = Vec::with_capacity(word.len());
        let mut queue = Queue::new(merges.pairs.hasher().clone());
        for (at, &byte) in word.iter().enumerate() {
            let id = merges.byte(byte);
            let merge = match word.get(at + 1) {
                Some(&next) => merges.get(id, merges.byte(next)),
                None => Merge::NONE,
            };
            let place = at as u32;
            let next = if at == last { NONE } else { place + 1 };
            parts.push(Part { id, prev: place.checked_sub(1).unwrap_or(NONE), next, merge });
            queue.push(merge.rank, place);
        }
        Self { parts, queue }
    }

    fn get(&self, at: u32) -> Option<Part> {
        self.parts.get(at as usize).copied()
    }

    /// Where the pair of lowest rank begins.
    pub(super) fn pop(&mut self) -> Option<u32> {
        while let Some((rank, at)) = self.queue.pop() {
            if self.get(at).is_some_and(|part| part.merge.rank == rank) {
                return Some(at);
            }
        }
        None
    }

    /// Joins the pair that begins at `at`.
    pub(super) fn join(&mut self, merges: &Merges, at: u32) {
        let Some(left) = self.get(at) else { return };
        let Some(right) = self.get(left.next) else { return };
        if let Some(gone) = self.parts.get_mut(left.next as usize) {
            gone.merge.rank = NONE;
        }
        if let Some(after) = self.parts.get_mut(right.next as usize) {
            after.prev = at;
        }
        let id = left.merge.id;
        if let Some(part) = self.parts.get_mut(at as usize) {
            part.id = id;
            part.next = right.next;
        }
        self.set_pair(merges, at);
        self.set_pair(merges, left.prev);
    }

    /// Looks up the pair that begins at `at` (which may be no place) anew.
    fn set_pair(&mut self, merges: &Merges, at: u32) {
        let Some(part) = self.get(at) else { return };
        let merge = match self.get(part.next) {
            Some(next) => merges.get(part.id, next.id),
            None => Merge::NONE,
        };
        if let Some(part) = self.parts.get_mut(at as usize) {
            part.merge = merge;
        }
        self.queue.push(merge.rank, at);
    }

    pub(super) fn read(&self, out: &mut Vec<u32>) {
        let mut at = 0;
        while let Some(part) = self.get(at) {
            out.push(part.id);
            at = part.next;
        }
    }
}
