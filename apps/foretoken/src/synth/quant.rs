//! Which type each tensor has in a file of a given quantisation.

use foretoken::tensor::DType;

/// Quantisations, by the names of llama.cpp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(non_camel_case_types)]
pub(crate) enum Quant {
    F32,
    F16,
    BF16,
    Q8_0,
    Q4_0,
    Q4_K_M,
    Q5_K_M,
    Q6_K,
}

/// What a matrix is, as far as its type depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The embedding.
    Embedding {
        /// It is the head, too.
        tied: bool,
    },
    /// The head.
    Head,
    /// Queries, keys and values of a delta layer together.
    Qkv,
    /// Values of an attention layer.
    Values,
    /// Back from the feed-forward part.
    Down,
    /// Any other.
    Other,
}

impl Quant {
    /// All of them.
    pub(crate) const ALL: [Self; 8] = [
        Self::F32,
        Self::F16,
        Self::BF16,
        Self::Q8_0,
        Self::Q4_0,
        Self::Q4_K_M,
        Self::Q5_K_M,
        Self::Q6_K,
    ];

    /// As typed.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::Q8_0 => "q8_0",
            Self::Q4_0 => "q4_0",
            Self::Q4_K_M => "q4_k_m",
            Self::Q5_K_M => "q5_k_m",
            Self::Q6_K => "q6_k",
        }
    }

    /// The one of that name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|quant| quant.name() == name)
    }

    /// Its number in `general.file_type`.
    pub(crate) fn file_type(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::BF16 => 32,
            Self::Q8_0 => 7,
            Self::Q4_0 => 2,
            Self::Q4_K_M => 15,
            Self::Q5_K_M => 17,
            Self::Q6_K => 18,
        }
    }

    /// The type of a matrix in layer `i` of `layers`.
    ///
    /// The mixtures are those of llama.cpp: heads in Q6_K, and where `_M` asks for more
    /// bits values and feed-forward outputs of half the layers, too.
    pub(crate) fn dtype(self, part: Part, i: usize, layers: usize) -> DType {
        let base = match self {
            Self::F32 => return DType::F32,
            Self::F16 => return DType::F16,
            Self::BF16 => return DType::BF16,
            Self::Q8_0 => return DType::Q8_0,
            Self::Q4_0 => DType::Q4_0,
            Self::Q4_K_M => DType::Q4_K,
            Self::Q5_K_M => DType::Q5_K,
            Self::Q6_K => DType::Q6_K,
        };
        let mixed = matches!(self, Self::Q4_K_M | Self::Q5_K_M);
        match part {
            Part::Head | Part::Embedding { tied: true } => DType::Q6_K,
            Part::Qkv if self == Self::Q4_K_M => DType::Q5_K,
            Part::Qkv if self == Self::Q5_K_M => DType::Q6_K,
            Part::Values | Part::Down if mixed && more_bits(i, layers) => DType::Q6_K,
            _ => base,
        }
    }
}

/// The first and last eighth of the layers, and every third between.
fn more_bits(i: usize, layers: usize) -> bool {
    let eighth = layers / 8;
    i < eighth || i >= 7 * layers / 8 || (i - eighth) % 3 == 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_64_layers_have_more_bits() {
        assert_eq!((0..64).filter(|&i| more_bits(i, 64)).count(), 32);
        let of_attention = (0..64).filter(|i| (i + 1) % 4 == 0 && more_bits(*i, 64));
        assert_eq!(of_attention.count(), 8);
        for layers in 1..70 {
            (0..layers).for_each(|i| _ = more_bits(i, layers));
        }
    }

    #[test]
    fn names_lead_back() {
        for quant in Quant::ALL {
            assert_eq!(Quant::named(quant.name()), Some(quant));
        }
        assert_eq!(Quant::named("q9"), None);
    }
}
