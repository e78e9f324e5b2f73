//! Which pair comes next.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::NONE;
use super::hash::PairHash;

/// A queue of (rank, place), lowest first. Of the few ranks that occur at a time a
/// heap keeps the order; the many places of one rank lie in a list, so that nothing
/// hops through memory as one large heap would.
pub(super) struct Queue {
    ranks: BinaryHeap<Reverse<u32>>,
    places: HashMap<u64, Places, PairHash>,
}

/// The places of one rank. They are sorted when the first is taken; what comes
/// after that goes to a heap.
#[derive(Default)]
struct Places {
    list: Vec<u32>,
    taken: usize,
    late: BinaryHeap<Reverse<u32>>,
}

impl Queue {
    /// An empty queue.
    pub(super) fn new(hash: PairHash) -> Self {
        Self { ranks: BinaryHeap::new(), places: HashMap::with_hasher(hash) }
    }

    /// Adds a place, unless the rank says that there is no pair.
    pub(super) fn push(&mut self, rank: u32, at: u32) {
        if rank == NONE {
            return;
        }
        let places = self.places.entry(u64::from(rank)).or_insert_with(|| {
            self.ranks.push(Reverse(rank));
            Places::default()
        });
        if places.taken == 0 {
            places.list.push(at);
        } else {
            places.late.push(Reverse(at));
        }
    }

    /// Takes the lowest (rank, place).
    pub(super) fn pop(&mut self) -> Option<(u32, u32)> {
        loop {
            let rank = self.ranks.peek()?.0;
            let at = self.places.get_mut(&u64::from(rank)).and_then(Places::pop);
            if let Some(at) = at {
                return Some((rank, at));
            }
            self.places.remove(&u64::from(rank));
            self.ranks.pop();
        }
    }
}

impl Places {
    fn pop(&mut self) -> Option<u32> {
        if self.taken == 0 {
            self.list.sort_unstable();
        }
        let first = self.list.get(self.taken).copied();
        match self.late.peek() {
            Some(&Reverse(late)) if first.is_none_or(|first| late < first) => {
                self.late.pop();
                Some(late)
            }
            _ => {
                self.taken += 1;
                first
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against one plain heap; a number that is a multiple of 4 takes, others add.
        #[test]
        fn takes_in_order(steps in prop::collection::vec(any::<u16>(), 0..300)) {
            let mut queue = Queue::new(PairHash::new());
            let mut heap = BinaryHeap::new();
            for step in steps {
                let (rank, at) = (u32::from(step >> 2) % 7, u32::from(step >> 5));
                if step % 4 == 0 {
                    prop_assert_eq!(queue.pop(), heap.pop().map(|Reverse(entry)| entry));
                } else {
                    queue.push(rank, at);
                    heap.push(Reverse((rank, at)));
                }
            }
            while let Some(Reverse(entry)) = heap.pop() {
                prop_assert_eq!(queue.pop(), Some(entry));
            }
            prop_assert_eq!(queue.pop(), None);
        }
    }
}
