//! Seeded numbers, the same on every machine.

/// SplitMix64 (Steele, Lea, Flood, 2014).
#[derive(Clone, Debug)]
pub(super) struct Rng(u64);

impl Rng {
    /// A generator for a named purpose.
    pub(super) fn new(seed: u64, name: &str) -> Self {
        // FNV-1a, to spread names over seeds.
        let hash = |h: u64, b: u8| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3);
        Self(name.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, hash))
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `0..n`.
    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    /// Uniform in `-1..1`, 24 bits.
    pub(super) fn float(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u32 << 23) as f32 - 1.0
    }

    /// Uniform in `low..high`.
    pub(super) fn between(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * 0.5 * (self.float() + 1.0)
    }

    /// `n` activations: mostly in `-1..1`, one in fifty eight times larger, as
    /// outliers are.
    pub(super) fn floats(&mut self, n: usize) -> Vec<f32> {
        let one = |_| {
            let x = self.float();
            if self.below(50) == 0 { 8.0 * x } else { x }
        };
        (0..n).map(one).collect()
    }

    /// `n` values in `low..high`.
    pub(super) fn floats_between(&mut self, n: usize, low: f32, high: f32) -> Vec<f32> {
        (0..n).map(|_| self.between(low, high)).collect()
    }
}
