//! Random data in every block format, made as codes and scales: nothing is quantised.
//!
//! Codes are even over their range. Each format is centred so that no row, and no block
//! for long, leans to one side: Q4_K and Q5_K take the minimum that lies in the middle of
//! the codes, Q6_K and Q4_0, whose codes reach one further down than up, take scales of
//! either sign. Scales vary from block to block by up to a quarter.

use foretoken::tensor::DType;
use half::{bf16, f16};

use super::random::Words;

/// What the values of a tensor are like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rule {
    /// Even around zero with this standard deviation.
    Matrix {
        /// It.
        deviation: f32,
    },
    /// Factors of a norm: 0.95 to 1.05.
    Norm,
    /// Taps of a short convolution: -0.8 to 0.8.
    Taps,
    /// Rates of decay, `-exp(A_log)`: -8 to -0.5.
    Decay,
    /// What is added to a time step before its softplus: steps of about 0.001 to 0.1.
    StepBias,
}

impl Rule {
    /// The least and the largest value.
    fn range(self) -> (f32, f32) {
        match self {
            Self::Matrix { deviation } => {
                let most = deviation * 3f32.sqrt();
                (-most, most)
            }
            Self::Norm => (0.95, 1.05),
            Self::Taps => (-0.8, 0.8),
            Self::Decay => (-8.0, -0.5),
            Self::StepBias => (-6.9, -2.25),
        }
    }
}

/// Scales or values of a tensor to choose from, so that none is computed on the way.
const CHOICES: usize = 256;
/// Values of plain types to choose from.
const VALUES: usize = 4096;
/// Mean square of the factor by which scales vary, even from 0.75 to 1.25.
const VARIED: f64 = 1.0 + 1.0 / 48.0;
/// Root mean square of a whole number from 32 to 63, as the scales of sub-blocks are.
const SUB_SCALE: f64 = 48.388;

/// Makes the blocks of one tensor.
pub(crate) struct Filler {
    words: Words,
    dtype: DType,
    /// Scales and minimums of blocks, as stored: F16.
    scales: Vec<[u16; 2]>,
    /// Values of plain types, as stored, in the leading bytes.
    values: Vec<[u8; 4]>,
}

impl Filler {
    /// For a tensor of this name. `None` for a type that nothing here makes.
    pub(crate) fn new(seed: u64, name: &str, dtype: DType, rule: Rule) -> Option<Self> {
        let words = Words::new(seed, name);
        let mut filler = Self { words, dtype, scales: Vec::new(), values: Vec::new() };
        // Deviation of the codes, times that of the scales of sub-blocks; the middle code.
        let (codes, middle) = match dtype {
            DType::F32 | DType::F16 | DType::BF16 => {
                filler.values = values(dtype, rule);
                return Some(filler);
            }
            DType::Q8_0 => (even(256.0), 0.0),
            DType::Q4_0 => (even(16.0), 0.0),
            DType::Q4_K => (even(16.0) * SUB_SCALE, 7.5),
            DType::Q5_K => (even(32.0) * SUB_SCALE, 15.5),
            DType::Q6_K => (even(64.0) * SUB_SCALE, 0.0),
            _ => return None,
        };
        let (_, most) = rule.range();
        let scale = f64::from(most) / 3f64.sqrt() / (codes * VARIED.sqrt());
        let choice = |i: usize| {
            let varied = scale * (0.75 + 0.5 * (i as f64 + 0.5) / CHOICES as f64);
            [varied, varied * middle].map(|x| f16::from_f64(x).to_bits())
        };
        filler.scales = (0..CHOICES).map(choice).collect();
        Some(filler)
    }

    /// Elements that [`fill`](Self::fill) makes at a time, and their bytes.
    pub(crate) fn block(&self) -> (usize, usize) {
        match self.dtype.block_len() {
            // Four values from each random word.
            1 => (4, 4 * self.dtype.block_bytes()),
            elements => (elements, self.dtype.block_bytes()),
        }
    }

    /// Makes blocks from number `first` on; a last one may be cut short.
    pub(crate) fn fill(&self, first: u64, out: &mut [u8]) {
        let blocks = (first..).zip(out.chunks_mut(self.block().1));
        match self.dtype {
            DType::F32 => blocks.for_each(|(n, out)| self.plain::<4>(n, out)),
            DType::F16 | DType::BF16 => blocks.for_each(|(n, out)| self.plain::<2>(n, out)),
            DType::Q8_0 => blocks.for_each(|(n, out)| self.legacy::<5>(n, out, 0)),
            DType::Q4_0 => blocks.for_each(|(n, out)| self.legacy::<3>(n, out, 0x8000)),
            DType::Q4_K => blocks.for_each(|(n, out)| self.with_minimums::<18>(n, out)),
            DType::Q5_K => blocks.for_each(|(n, out)| self.with_minimums::<22>(n, out)),
            DType::Q6_K => blocks.for_each(|(n, out)| self.q6_k(n, out)),
            _ => {}
        }
    }

    fn scale(&self, choice: u64) -> [u16; 2] {
        self.scales.get(choice as usize % CHOICES).copied().unwrap_or_default()
    }

    #[inline]
    fn plain<const BYTES: usize>(&self, block: u64, out: &mut [u8]) {
        let word = self.words.at(block);
        for (i, out) in out.chunks_exact_mut(BYTES).enumerate() {
            let value = self.values.get((word >> (16 * i)) as usize % VALUES);
            out.copy_from_slice(value.and_then(|v| v.get(..BYTES)).unwrap_or(&[0; BYTES]));
        }
    }

    /// Q8_0 and Q4_0: a scale, then codes. `WORDS` are taken for each block; `sign` is the
    /// bit of the scale that may be set.
    #[inline]
    fn legacy<const WORDS: u64>(&self, block: u64, out: &mut [u8], sign: u16) {
        let first = block.wrapping_mul(WORDS);
        let word = self.words.at(first);
        let Some((scale, codes)) = out.split_at_mut_checked(2) else { return };
        let [d, _] = self.scale(word);
        scale.copy_from_slice(&(d | ((word >> 16) as u16 & sign)).to_le_bytes());
        self.words.fill(first + 1, codes);
    }

    /// Q4_K and Q5_K: scale, minimum, 12 bytes of their 6-bit factors, codes.
    #[inline]
    fn with_minimums<const WORDS: u64>(&self, block: u64, out: &mut [u8]) {
        let first = block.wrapping_mul(WORDS);
        let Some((head, codes)) = out.split_at_mut_checked(16) else { return };
        let [d, dmin] = self.scale(self.words.at(first));
        let factors = self.words.at(first + 1);
        // Eight factors from 32 to 63, one a byte, four in each half; each serves the scale
        // and the minimum, which keeps the middle code at zero.
        let low = (factors as u32 & 0x1f1f_1f1f) | 0x2020_2020;
        let high = ((factors >> 32) as u32 & 0x1f1f_1f1f) | 0x2020_2020;
        let edge = low | ((high & 0x3030_3030) << 2);
        let nibbles = high & 0x0f0f_0f0f;
        let words = [u32::from(d) | (u32::from(dmin) << 16), edge, edge, nibbles | (nibbles << 4)];
        for (out, word) in head.chunks_exact_mut(4).zip(words) {
            out.copy_from_slice(&word.to_le_bytes());
        }
        self.words.fill(first + 2, codes);
    }

    /// Q6_K: 192 bytes of codes, 16 signed factors of sub-blocks, a scale.
    #[inline]
    fn q6_k(&self, block: u64, out: &mut [u8]) {
        const EVERY: u64 = 0x0101_0101_0101_0101;
        let first = block.wrapping_mul(27);
        let Some((codes, tail)) = out.split_at_mut_checked(192) else { return };
        let Some((factors, scale)) = tail.split_at_mut_checked(16) else { return };
        self.words.fill(first + 3, codes);
        for (n, out) in (first..).zip(factors.chunks_exact_mut(8)) {
            let word = self.words.at(n);
            let size = (word & (0x1f * EVERY)) | (0x20 * EVERY);
            let negative = (word >> 7) & EVERY;
            // Two's complement in each byte; none is zero, so nothing is carried.
            let signed = (size ^ (negative * 0xff)).wrapping_add(negative);
            out.copy_from_slice(&signed.to_le_bytes());
        }
        let [d, _] = self.scale(self.words.at(first + 2));
        scale.copy_from_slice(&d.to_le_bytes());
    }
}

/// Deviation of so many whole numbers in a row.
fn even(count: f64) -> f64 {
    ((count * count - 1.0) / 12.0).sqrt()
}

fn values(dtype: DType, rule: Rule) -> Vec<[u8; 4]> {
    let (least, most) = rule.range();
    let value = |i: usize| {
        let x = least + (most - least) * ((i as f32 + 0.5) / VALUES as f32);
        let mut bytes = [0; 4];
        let [a, b, ..] = &mut bytes;
        match dtype {
            DType::F16 => [*a, *b] = f16::from_f32(x).to_le_bytes(),
            DType::BF16 => [*a, *b] = bf16::from_f32(x).to_le_bytes(),
            _ => bytes = x.to_le_bytes(),
        }
        bytes
    };
    (0..VALUES).map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretoken::quant::decode;

    const TYPES: [DType; 8] = [
        DType::F32,
        DType::F16,
        DType::BF16,
        DType::Q8_0,
        DType::Q4_0,
        DType::Q4_K,
        DType::Q5_K,
        DType::Q6_K,
    ];

    fn made(dtype: DType, rule: Rule, elements: usize) -> (Vec<u8>, Vec<f32>) {
        let mut bytes = vec![0; dtype.bytes_for(elements).unwrap()];
        Filler::new(3, "x", dtype, rule).unwrap().fill(0, &mut bytes);
        let mut values = vec![f32::NAN; elements];
        decode(dtype, &bytes, &mut values).unwrap();
        (bytes, values)
    }

    /// 2^18 values: the mean of independent ones lies within 4 / sqrt(2^18) = 0.008 of
    /// their deviation, and that deviation within 1 %; F16 scales as small as these of a
    /// 17,408-wide row are rounded by up to 0.4 %. Q8_0, whose scales have no sign, reaches
    /// one code further down than up: that is 0.007 of the deviation.
    #[test]
    fn values_have_the_deviation_asked_for_and_no_bias() {
        for deviation in [0.0076f32, 0.05, 1.0] {
            for dtype in TYPES {
                let (_, values) = made(dtype, Rule::Matrix { deviation }, 1 << 18);
                let n = values.len() as f64;
                let mean = values.iter().map(|&x| f64::from(x)).sum::<f64>() / n;
                let square = values.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / n;
                let wanted = f64::from(deviation);
                assert!(mean.abs() < 0.015 * wanted, "{dtype}: mean {mean} of {wanted}");
                assert!((square.sqrt() / wanted - 1.0).abs() < 0.02, "{dtype} {}", square.sqrt());
            }
        }
    }

    #[test]
    fn small_tensors_stay_in_their_ranges() {
        for rule in [Rule::Norm, Rule::Taps, Rule::Decay, Rule::StepBias] {
            let (least, most) = rule.range();
            // No multiple of the four that a word makes.
            let (_, values) = made(DType::F32, rule, 1023);
            assert!(values.iter().all(|x| (least..=most).contains(x)), "{rule:?}");
            let distinct: std::collections::HashSet<_> =
                values.iter().map(|x| x.to_bits()).collect();
            assert!(distinct.len() > 800, "{rule:?}");
        }
    }

    #[test]
    fn blocks_do_not_depend_on_where_a_part_begins() {
        for dtype in TYPES {
            let rule = Rule::Matrix { deviation: 0.1 };
            let (whole, _) = made(dtype, rule, 4096);
            let filler = Filler::new(3, "x", dtype, rule).unwrap();
            let (_, size) = filler.block();
            let mut part = vec![0; whole.len() - 3 * size];
            filler.fill(3, &mut part);
            assert_eq!(part, whole[3 * size..], "{dtype}");
            let mut other = vec![0; whole.len()];
            Filler::new(4, "x", dtype, rule).unwrap().fill(0, &mut other);
            assert_ne!(other, whole, "{dtype}");
        }
        assert!(Filler::new(0, "x", DType::Q2_K, Rule::Norm).is_none());
    }
}
