//! How a block type is laid out once packed.
//!
//! A weight becomes *panels* of 16 output rows. A panel is a sequence of *chunks*
//! of up to eight sub-blocks of 32 inputs; a chunk is a head with the scales, padded
//! to 64 bytes, then the codes of its sub-blocks. Within a sub-block the 32 inputs
//! are eight *groups* of four; a *code vector* of 64 bytes holds, for one group, 16
//! dwords (one per output row) of four unsigned codes (one per input), which is the
//! operand shape of the 4-way byte dot products (VNNI, NEON). Codes narrower than
//! a byte are stored as bit planes of such vectors.

use foretoken::tensor::DType;

/// Output rows in a panel.
pub(super) const PANEL: usize = 16;
/// Inputs in a sub-block, and values in an activation record.
pub(super) const SUB: usize = 32;
/// Sub-blocks in a full chunk.
pub(super) const CHUNK_SUBS: usize = 8;
/// Bytes in a code vector.
pub(super) const VECTOR: usize = 64;

/// How codes are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Codes {
    /// Two vectors; the field at bit `2j` of vector `v` is group `4v + j`.
    Bits2,
    /// `Bits2` and one vector whose bit `g` is bit 2 of group `g`.
    Bits3,
    /// Four vectors; the low nibble of vector `v` is group `2v`, the high one `2v + 1`.
    Bits4,
    /// `Bits4` whose nibbles index a table of codes, of which this is the largest.
    Table(&'static [u8; 16], u8),
    /// `Bits4` and one vector whose bit `g` is bit 4 of group `g`.
    Bits5,
    /// `Bits4` and two vectors; the field at bit `2j` of vector `v` is bits 4 and 5
    /// of group `4v + j`.
    Bits6,
    /// Eight vectors of whole bytes.
    Bits8,
}

impl Codes {
    /// Code vectors in a sub-block.
    pub(super) const fn vectors(self) -> usize {
        match self {
            Self::Bits2 => 2,
            Self::Bits3 => 3,
            Self::Bits4 | Self::Table(..) => 4,
            Self::Bits5 => 5,
            Self::Bits6 => 6,
            Self::Bits8 => 8,
        }
    }

    /// An upper bound of the codes.
    pub(super) const fn max(self) -> u32 {
        match self {
            Self::Bits2 => 3,
            Self::Bits3 => 7,
            Self::Bits4 => 15,
            Self::Bits5 => 31,
            Self::Bits6 => 63,
            Self::Table(_, max) => max as u32,
            Self::Bits8 => 255,
        }
    }
}

/// How scales (and offsets) are stored in the head of a chunk; all ways are exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scales {
    /// One `f16` each.
    F16,
    /// One `bf16` each (powers of two, subnormal ones too).
    Bf16,
    /// `f16` factors per row and chunk first (for scales, then for offsets), then
    /// one byte each: the scale is factor times byte.
    Super {
        /// Whether the byte is signed.
        signed: bool,
        /// Where the factor of the scales lies in the file's block.
        factor_at: usize,
        /// Where the factor of the offsets lies, when there are offsets.
        offset_factor_at: usize,
    },
}

/// The packed form of one block type: `value = scale * (code - zero)`, or
/// `scale * code - offset` when there is no common zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) codes: Codes,
    pub(super) scales: Scales,
    /// Scales per sub-block: 1, or 2 when the type has sub-blocks of 16.
    pub(super) sets: usize,
    pub(super) zero: Option<u8>,
}

/// The 16 levels of IQ4 types, plus 128.
pub(super) static IQ4_CODES: [u8; 16] =
    [1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241];
/// Twice the 16 values of E2M1, plus 16.
pub(super) static E2M1_CODES: [u8; 16] =
    [16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4];

impl Layout {
    /// The layout of a block type; `None` for types that are not packed this way.
    pub(super) const fn of(dtype: DType) -> Option<Self> {
        const fn k(signed: bool, factor_at: usize, offset_factor_at: usize) -> Scales {
            Scales::Super { signed, factor_at, offset_factor_at }
        }
        const IQ4: Codes = Codes::Table(&IQ4_CODES, 241);
        const E2M1: Codes = Codes::Table(&E2M1_CODES, 28);
        let (codes, scales, sets, zero) = match dtype {
            DType::Q4_0 => (Codes::Bits4, Scales::F16, 1, Some(8)),
            DType::Q4_1 => (Codes::Bits4, Scales::F16, 1, None),
            DType::Q5_0 => (Codes::Bits5, Scales::F16, 1, Some(16)),
            DType::Q5_1 => (Codes::Bits5, Scales::F16, 1, None),
            DType::Q8_0 => (Codes::Bits8, Scales::F16, 1, Some(128)),
            DType::Q2_K => (Codes::Bits2, k(false, 80, 82), 2, None),
            DType::Q3_K => (Codes::Bits3, k(true, 108, 108), 2, Some(4)),
            DType::Q4_K => (Codes::Bits4, k(false, 0, 2), 1, None),
            DType::Q5_K => (Codes::Bits5, k(false, 0, 2), 1, None),
            DType::Q6_K => (Codes::Bits6, k(true, 208, 208), 2, Some(32)),
            DType::IQ4_NL => (IQ4, Scales::F16, 1, Some(128)),
            DType::IQ4_XS => (IQ4, k(true, 0, 0), 1, Some(128)),
            DType::MXFP4 => (E2M1, Scales::Bf16, 1, Some(16)),
            DType::NVFP4 => (E2M1, Scales::F16, 2, Some(16)),
            _ => return None,
        };
        Some(Self { codes, scales, sets, zero })
    }

    /// Bytes of codes in a sub-block.
    pub(super) const fn code_bytes(&self) -> usize {
        self.codes.vectors() * VECTOR
    }

    /// 1, or 2 when there are offsets beside the scales.
    const fn kinds(&self) -> usize {
        if self.zero.is_some() { 1 } else { 2 }
    }

    /// Bytes at the start of a chunk's head that belong to the chunk as a whole.
    pub(super) const fn factor_bytes(&self) -> usize {
        match self.scales {
            Scales::F16 | Scales::Bf16 => 0,
            Scales::Super { .. } => self.kinds() * PANEL * 2,
        }
    }

    /// Bytes of one set of scales.
    pub(super) const fn set_bytes(&self) -> usize {
        match self.scales {
            Scales::F16 | Scales::Bf16 => PANEL * 2,
            Scales::Super { .. } => PANEL,
        }
    }

    /// Bytes of a sub-block's scales: the sets of scales, then those of offsets.
    pub(super) const fn scale_bytes(&self) -> usize {
        self.sets * self.kinds() * self.set_bytes()
    }

    /// Bytes of the head of a chunk of `subs` sub-blocks.
    pub(super) const fn head_bytes(&self, subs: usize) -> usize {
        (self.factor_bytes() + subs * self.scale_bytes()).next_multiple_of(VECTOR)
    }

    /// Bytes of a chunk of `subs` sub-blocks.
    pub(super) const fn chunk_bytes(&self, subs: usize) -> usize {
        self.head_bytes(subs) + subs * self.code_bytes()
    }

    /// Bytes of a panel of `subs` sub-blocks; `None` when that overflows.
    pub(super) fn panel_bytes(&self, subs: usize) -> Option<usize> {
        let full = (subs / CHUNK_SUBS).checked_mul(self.chunk_bytes(CHUNK_SUBS))?;
        full.checked_add(match subs % CHUNK_SUBS {
            0 => 0,
            rest => self.chunk_bytes(rest),
        })
    }
}
