//! Byte-pair encoding of one word (Sennrich et al. 2016): starting from single
//! bytes, the adjacent pair with the lowest merge rank is joined, the leftmost of
//! equals first, until no pair is in the list.
//!
//! Here is the way of short words, which looks for the lowest pair anew each time;
//! `long` cuts long words into `block`s, which use a queue.

mod block;
mod long;

use std::collections::HashMap;

use super::fault::TokenizerFault;
use super::hash::KeyedHash;

/// Words up to this many bytes are encoded by looking through them again and again;
/// longer ones with a queue.
const SHORT: usize = 48;

/// Bytes of a long word that are encoded at a time.
const BLOCK: usize = 4096;

/// "No pair" where a rank is expected.
const NONE: u32 = u32::MAX;

/// What two adjacent tokens become, and how early.
#[derive(Clone, Copy, Debug)]
struct Merge {
    rank: u32,
    id: u32,
}

impl Merge {
    /// They stay apart.
    const NONE: Self = Self { rank: NONE, id: 0 };
}

/// The merges of a vocabulary.
#[derive(Clone, Debug)]
pub(super) struct Merges {
    bytes: [u32; 256],
    pairs: HashMap<u64, Merge, KeyedHash>,
}

impl Merges {
    /// No merges yet; `bytes` has the token of each byte.
    pub(super) fn new(bytes: [u32; 256], expected: usize) -> Self {
        Self { bytes, pairs: HashMap::with_capacity_and_hasher(expected, KeyedHash::new()) }
    }

    /// Adds the merge of that rank.
    ///
    /// # Errors
    /// [`TokenizerFault::DuplicateMerge`] when the pair has a merge already.
    pub(super) fn add(
        &mut self,
        rank: u32,
        (left, right): (u32, u32),
        id: u32,
    ) -> Result<(), TokenizerFault> {
        match self.pairs.insert(pair(left, right), Merge { rank, id }) {
            None => Ok(()),
            Some(old) => Err(TokenizerFault::DuplicateMerge {
                first: old.rank as usize,
                rank: rank as usize,
            }),
        }
    }

    #[inline]
    fn get(&self, left: u32, right: u32) -> Merge {
        self.pairs.get(&pair(left, right)).copied().unwrap_or(Merge::NONE)
    }

    /// The hash of the table, for tables beside it.
    pub(super) fn hasher(&self) -> KeyedHash {
        self.pairs.hasher().clone()
    }

    /// Appends the tokens of a word to `out`.
    pub(super) fn encode(&self, word: &[u8], scratch: &mut Scratch, out: &mut Vec<u32>) {
        if word.len() <= SHORT {
            self.encode_short(word, scratch, out);
        } else {
            self.encode_long(word, BLOCK, out);
        }
    }

    fn byte(&self, byte: u8) -> u32 {
        self.bytes[usize::from(byte)]
    }

    fn encode_short(&self, word: &[u8], scratch: &mut Scratch, out: &mut Vec<u32>) {
        let parts = &mut scratch.parts;
        parts.clear();
        let mut bytes = word.iter().copied().peekable();
        while let Some(byte) = bytes.next() {
            let id = self.byte(byte);
            let merge = match bytes.peek() {
                Some(&next) => self.get(id, self.byte(next)),
                None => Merge::NONE,
            };
            parts.push((id, merge));
        }
        loop {
            let best = parts.iter().enumerate().min_by_key(|(_, (_, merge))| merge.rank);
            let Some((at, &(_, merge))) = best else { break };
            if merge.rank == NONE {
                break;
            }
            // The pair's right half goes; what follows it decides the new pair.
            parts.remove(at + 1);
            let next = parts.get(at + 1).map(|part| part.0);
            let new = next.map_or(Merge::NONE, |next| self.get(merge.id, next));
            if let Some(part) = parts.get_mut(at) {
                *part = (merge.id, new);
            }
            if let Some(before) = at.checked_sub(1).and_then(|before| parts.get_mut(before)) {
                before.1 = self.get(before.0, merge.id);
            }
        }
        out.extend(parts.iter().map(|part| part.0));
    }
}

fn pair(left: u32, right: u32) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}

/// Memory used again from word to word.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    parts: Vec<(u32, Merge)>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Merges over the letters a to d, with later merges built on earlier ones.
    fn merges(pairs: &[(u8, u8)]) -> Merges {
        let mut bytes = [0; 256];
        for (id, slot) in (0u32..).zip(bytes.iter_mut()) {
            *slot = id;
        }
        let mut known: Vec<u32> = (b'a'..=b'd').map(u32::from).collect();
        let mut out = Merges::new(bytes, 0);
        for (rank, &(left, right)) in (0u32..).zip(pairs) {
            let pick = |n: u8| known[usize::from(n) % known.len()];
            let id = 256 + rank;
            if out.add(rank, (pick(left), pick(right)), id).is_ok() {
                known.push(id);
            }
        }
        out
    }

    /// The definition, word for word.
    fn plain(merges: &Merges, word: &[u8]) -> Vec<u32> {
        let mut ids: Vec<u32> = word.iter().map(|&b| u32::from(b)).collect();
        loop {
            let pairs = ids.windows(2).map(|w| merges.get(w[0], w[1]));
            let best = pairs.enumerate().min_by_key(|(_, m)| m.rank);
            match best {
                Some((at, m)) if m.rank != NONE => {
                    ids.splice(at..at + 2, [m.id]);
                }
                _ => return ids,
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]

        #[test]
        fn short_and_long_ways_follow_the_definition(
            pairs in prop::collection::vec(any::<(u8, u8)>(), 0..40),
            word in prop::collection::vec(b'a'..=b'd', 0..160),
            size in 2usize..64,
        ) {
            let merges = merges(&pairs);
            let want = plain(&merges, &word);
            let (mut short, mut long) = (Vec::new(), Vec::new());
            merges.encode_short(&word, &mut Scratch::default(), &mut short);
            merges.encode_long(&word, size, &mut long);
            prop_assert_eq!(&short, &want);
            prop_assert_eq!(&long, &want);
        }

        /// Merges in an order that no training gives: later ones may outrank those
        /// that they build on.
        #[test]
        fn merges_in_any_order_follow_the_definition(
            pairs in prop::collection::vec(any::<(u8, u8)>(), 0..40),
            seed in any::<u32>(),
            word in prop::collection::vec(b'a'..=b'c', 0..160),
            size in 2usize..64,
        ) {
            let mut merges = merges(&pairs);
            for merge in merges.pairs.values_mut() {
                // An odd factor keeps the ranks apart.
                merge.rank = (merge.rank ^ seed).wrapping_mul(0x9e37_79b1) & 0x7fff_ffff;
            }
            let mut long = Vec::new();
            merges.encode_long(&word, size, &mut long);
            prop_assert_eq!(long, plain(&merges, &word));
        }
    }

    #[test]
    fn a_later_merge_may_outrank_an_earlier_one() {
        // "bc" (rank 1) is the only pair at first; with it comes "a"+"bc" of rank 0.
        let mut m = merges(&[]);
        m.add(1, (u32::from(b'b'), u32::from(b'c')), 300).unwrap();
        m.add(0, (u32::from(b'a'), 300), 301).unwrap();
        m.add(2, (u32::from(b'd'), u32::from(b'd')), 302).unwrap();
        let mut out = Vec::new();
        m.encode_long(b"ddabcddd", BLOCK, &mut out);
        assert_eq!(out, [302, 301, 302, u32::from(b'd')]);
    }
}
