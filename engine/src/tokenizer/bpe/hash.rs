//! The hash of the merge table.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Hashes a pair of ids with one wide multiplication, under keys drawn when the
/// vocabulary is loaded: a file cannot choose pairs that collide.
#[derive(Clone, Debug)]
pub(super) struct PairHash {
    keys: [u64; 2],
}

impl PairHash {
    pub(super) fn new() -> Self {
        let draw = || RandomState::new().build_hasher().finish();
        Self { keys: [draw(), draw() | 1] }
    }
}

impl BuildHasher for PairHash {
    type Hasher = PairHasher;

    fn build_hasher(&self) -> PairHasher {
        PairHasher { keys: self.keys, hash: 0 }
    }
}

pub(super) struct PairHasher {
    keys: [u64; 2],
    hash: u64,
}

impl Hasher for PairHasher {
    fn write_u64(&mut self, value: u64) {
        let wide = u128::from(value ^ self.hash ^ self.keys[0]) * u128::from(self.keys[1]);
        self.hash = (wide >> 64) as u64 ^ wide as u64;
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn finish(&self) -> u64 {
        self.hash
    }
}
