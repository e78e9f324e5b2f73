//! Random numbers that are a function of (seed, position) and nothing else.
//!
//! The generator is Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random
//! numbers: as easy as 1, 2, 3" (SC 2011): ten rounds of 32-bit multiplies and xors on a
//! 128-bit counter, as cheap on a GPU as here. There is no state to keep in step, so
//! speculation can draw for any position at any time.

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const KEY_STEPS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// One block of Philox4x32-10: four words for a counter and a key.
pub fn philox4x32_10(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let [mut c0, mut c1, mut c2, mut c3] = counter;
    let [mut k0, mut k1] = key;
    for _ in 0..ROUNDS {
        let even = u64::from(c0) * u64::from(MULTIPLIERS[0]);
        let odd = u64::from(c2) * u64::from(MULTIPLIERS[1]);
        (c0, c1, c2, c3) =
            ((odd >> 32) as u32 ^ c1 ^ k0, odd as u32, (even >> 32) as u32 ^ c3 ^ k1, even as u32);
        k0 = k0.wrapping_add(KEY_STEPS[0]);
        k1 = k1.wrapping_add(KEY_STEPS[1]);
    }
    [c0, c1, c2, c3]
}

/// The uniform number of a position: a multiple of 2^-53 in `[0, 1)`.
///
/// Key words are the low and high halves of `seed`, counter words the low and high halves of
/// `position`, then two zeros. The result's 53 bits are the top ones of output word 0
/// followed by output word 1.
pub fn uniform(seed: u64, position: u64) -> f64 {
    let counter = [position as u32, (position >> 32) as u32, 0, 0];
    let [high, low, ..] = philox4x32_10(counter, [seed as u32, (seed >> 32) as u32]);
    let bits = (u64::from(high) << 32 | u64::from(low)) >> 11;
    bits as f64 * (1.0 / (1u64 << 53) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The three vectors published for philox4x32-10 with the Random123 library.
    #[test]
    fn philox_gives_the_published_answers() {
        let cases = [
            ([0; 4], [0; 2], [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]),
            ([u32::MAX; 4], [u32::MAX; 2], [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]),
            (
                [0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344],
                [0xa4093822, 0x299f31d0],
                [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1],
            ),
        ];
        for (counter, key, expected) in cases {
            assert_eq!(philox4x32_10(counter, key), expected);
        }
    }

    #[test]
    fn uniform_is_made_of_the_first_two_words() {
        let bits = 0x6627e8d5_e169c58d_u64 >> 11;
        assert_eq!(uniform(0, 0), bits as f64 / 9007199254740992.0);
        // The halves of seed and position are not interchangeable.
        let all = [uniform(1, 0), uniform(1 << 32, 0), uniform(0, 1), uniform(0, 1 << 32)];
        for (i, a) in all.iter().enumerate() {
            assert!(all.iter().skip(i + 1).all(|b| a != b));
        }
        assert!((0..100_000).all(|p| (0.0..1.0).contains(&uniform(u64::MAX, u64::MAX - p))));
    }
}
