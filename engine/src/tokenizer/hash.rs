//! The hash of this module's tables.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Hashes eight bytes with one wide multiplication, under keys drawn when the
/// vocabulary is loaded, so that neither a file nor a text can choose what collides.
#[derive(Clone, Debug)]
pub(super) struct KeyedHash {
    keys: [u64; 2],
}

impl KeyedHash {
    pub(super) fn new() -> Self {
        let draw = || RandomState::new().build_hasher().finish();
        Self { keys: [draw(), draw() | 1] }
    }
}

impl BuildHasher for KeyedHash {
    type Hasher = KeyedHasher;

    fn build_hasher(&self) -> KeyedHasher {
        KeyedHasher { keys: self.keys, hash: 0 }
    }
}

pub(super) struct KeyedHasher {
    keys: [u64; 2],
    hash: u64,
}

impl Hasher for KeyedHasher {
    fn write_u64(&mut self, value: u64) {
        let wide = u128::from(value ^ self.hash ^ self.keys[0]) * u128::from(self.keys[1]);
        self.hash = (wide >> 64) as u64 ^ wide as u64;
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(u64::from(value));
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        for &word in words {
            self.write_u64(u64::from_le_bytes(word));
        }
        // The length comes with the last bytes, so that zeros at the end count.
        let mut last = [0; 8];
        last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        self.write_u64(u64::from_le_bytes(last) ^ (bytes.len() as u64) << 56);
    }

    fn finish(&self) -> u64 {
        self.hash
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn texts_that_differ_a_little_have_other_hashes() {
        let hash = KeyedHash::new();
        let mut texts: HashSet<String> = (0..40).map(|n| "\0".repeat(n)).collect();
        texts.extend((0..40).map(|n| "a".repeat(n) + "b"));
        texts.extend(('a'..='z').map(String::from));
        let hashes: HashSet<u64> = texts.iter().map(|text| hash.hash_one(text)).collect();
        assert_eq!(hashes.len(), texts.len());
    }
}
