//! Which instruction set the kernels run on.

use std::fmt;

/// Instruction sets with kernels of their own. All of them give the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Isa {
    /// Plain Rust: any machine, and what the others are tested against.
    Portable,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
    /// x86-64 with AVX-512 F, BW, DQ, VL and VNNI.
    Avx512,
    /// 64-bit Arm with NEON.
    Neon,
}

impl Isa {
    /// The fastest one this machine has.
    pub fn detect() -> Self {
        Self::available().last().copied().unwrap_or(Self::Portable)
    }

    /// All that this machine has, slowest first; never empty.
    pub fn available() -> &'static [Self] {
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = std::is_x86_feature_detected!("avx2")
                && std::is_x86_feature_detected!("fma")
                && std::is_x86_feature_detected!("f16c");
            let avx512 = avx2
                && std::is_x86_feature_detected!("avx512f")
                && std::is_x86_feature_detected!("avx512bw")
                && std::is_x86_feature_detected!("avx512dq")
                && std::is_x86_feature_detected!("avx512vl")
                && std::is_x86_feature_detected!("avx512vnni");
            match (avx2, avx512) {
                (true, true) => &[Self::Portable, Self::Avx2, Self::Avx512],
                (true, false) => &[Self::Portable, Self::Avx2],
                _ => &[Self::Portable],
            }
        }
        #[cfg(target_arch = "aarch64")]
        {
            // NEON is part of the base architecture.
            &[Self::Portable, Self::Neon]
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        {
            &[Self::Portable]
        }
    }

    /// Whether this machine has it.
    pub fn is_available(self) -> bool {
        Self::available().contains(&self)
    }

    /// Short name for logs and kernel keys.
    pub fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512-vnni",
            Self::Neon => "neon",
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_detected_set_is_available_and_portable_always_is() {
        assert!(Isa::detect().is_available());
        assert!(Isa::Portable.is_available());
        assert_eq!(Isa::available().first(), Some(&Isa::Portable));
        assert_eq!(Isa::detect().to_string(), Isa::detect().name());
    }
}
