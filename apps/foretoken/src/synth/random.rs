//! Random words that depend on where they are used and on nothing else, so that any
//! thread can make any part of a file.
//!
//! The generator is SplitMix64 (Steele, Lea and Flood 2014) with the position as its
//! state: a word costs two multiplications, and words of a block are independent of each
//! other, so that the compiler can make several at once.

/// 2^64 over the golden ratio, odd: the generator's step.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// SplitMix64's output function.
const fn mix(state: u64) -> u64 {
    let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The words of one tensor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words(u64);

impl Words {
    /// Words for a seed and a tensor's name (hashed with FNV-1a).
    pub(crate) fn new(seed: u64, name: &str) -> Self {
        let mut hash = 0xcbf2_9ce4_8422_2325u64;
        for byte in name.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Self(mix(mix(seed.wrapping_add(STEP)) ^ hash))
    }

    /// Word `n`.
    #[inline]
    pub(crate) fn at(self, n: u64) -> u64 {
        mix(self.0.wrapping_add(n.wrapping_add(1).wrapping_mul(STEP)))
    }

    /// Fills whole words of `out` with words from `first` on.
    #[inline]
    pub(crate) fn fill(self, first: u64, out: &mut [u8]) {
        for (n, chunk) in (first..).zip(out.chunks_exact_mut(8)) {
            chunk.copy_from_slice(&self.at(n).to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_follow_from_seed_name_and_place() {
        let words = Words::new(1, "a");
        assert_eq!(words.at(7), Words::new(1, "a").at(7));
        let others = [words.at(8), Words::new(2, "a").at(7), Words::new(1, "b").at(7)];
        assert!(others.iter().all(|&other| other != words.at(7)));
        let mut bytes = [0; 24];
        words.fill(5, &mut bytes);
        assert_eq!(bytes[8..16], words.at(6).to_le_bytes());
    }

    /// The published first outputs for the state 0, as in the reference implementation.
    #[test]
    fn the_generator_is_split_mix_64() {
        let words = Words(0);
        assert_eq!(words.at(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(words.at(1), 0x6e78_9e6a_a1b9_65f4);
    }
}
