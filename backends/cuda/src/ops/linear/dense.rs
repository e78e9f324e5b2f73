//! Products of prompts on sm_90a: a weight is decoded to scratch memory, then multiplied
//! as a dense matrix (`linear_image.cuh`, `linear_wgmma.cuh`).

use foretoken::tensor::DType;

use super::kernels::{Mma, Order};
use super::plan::{STEP_ROWS, Slices};
use crate::device::Target;

/// Threads of a block of the product, of the packing, of the decoding.
pub(super) const THREADS: [u32; 3] = [384, 512, 64];

/// Blocks of a cluster.
const CLUSTER: usize = 2;

/// Rows of the tile of a cluster; images of activations have whole ones.
pub(super) const ROWS: usize = 256;

/// Inputs of a line.
const LINE: usize = 64;

/// Bytes that a row has of a line.
const LINE_BYTES: usize = 128;

/// Rows of a weight that a block decodes, and units.
pub(super) const UNPACK: (usize, usize) = (32, 4);

/// Most bytes of a decoded weight: larger ones are taken in several panels, one after the
/// other. All matrices of a 27B model but the head are smaller.
const PANEL: usize = 192 << 20;

/// Features of a tile, of which the plan takes what leaves fewest multiprocessors idle, and
/// the kernels.
const TILES: [(usize, &str, &str); 3] = [
    (192, "linear_wgmma_f16_192_sm90a", "linear_wgmma_bf16_192_sm90a"),
    (160, "linear_wgmma_f16_160_sm90a", "linear_wgmma_bf16_160_sm90a"),
    (128, "linear_wgmma_f16_128_sm90a", "linear_wgmma_bf16_128_sm90a"),
];

/// Whether calls recorded for so many rows are done this way. Bits do not depend on it.
pub(super) fn is_dense(target: Target, rows: usize) -> bool {
    target == Target { number: 90, specific: true } && rows > DENSE_FROM
}

/// Decoding a weight has to be worth it.
const DENSE_FROM: usize = 2 * STEP_ROWS;

/// Bytes of the image of so many whole rows.
pub(super) fn image(rows: usize, lines: usize) -> Option<usize> {
    rows.checked_mul(lines)?.checked_mul(LINE_BYTES)
}

/// Lines of a matrix.
pub(super) fn lines(mma: &Mma, k: usize) -> usize {
    k.div_ceil(mma.unit) * (mma.unit / LINE)
}

/// How one product is cut up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dense {
    /// Lines of all inputs.
    pub(super) lines: usize,
    /// Lines of a slice.
    pub(super) slice_lines: usize,
    /// Features of a tile.
    pub(super) tile: usize,
    /// Features of a panel, whole tiles.
    pub(super) panel: usize,
    /// Blocks of the product: all that run at a time.
    pub(super) blocks: usize,
    /// Dynamic shared memory of the product.
    pub(super) shared: usize,
}

impl Dense {
    /// For a weight of `n` rows of `k`, and calls of up to `rows` rows, on a device of
    /// `units` multiprocessors.
    pub(super) fn of(mma: &Mma, n: usize, k: usize, rows: usize, units: usize) -> Self {
        let lines = lines(mma, k);
        let slices = Slices::of(mma, n, k);
        let clusters = (units / CLUSTER).max(1);
        let tall = rows.div_ceil(ROWS).max(1);
        let turns = |tile: usize| (tall * n.div_ceil(tile)).div_ceil(clusters) * (tile + OVERHEAD);
        let tile = TILES.iter().map(|tile| tile.0).min_by_key(|tile| turns(*tile));
        let tile = tile.unwrap_or(TILES[0].0);
        let most = (PANEL / (lines * LINE_BYTES).max(1) / tile * tile).max(tile);
        Self {
            lines,
            slice_lines: slices.units * (mma.unit / LINE),
            tile,
            panel: n.next_multiple_of(tile).min(most),
            blocks: CLUSTER * clusters.min(tall * n.min(most).div_ceil(tile)),
            shared: shared(tile),
        }
    }

    /// The kernel.
    pub(super) fn kernel(&self, order: Order) -> Option<&'static str> {
        let tile = TILES.iter().find(|tile| tile.0 == self.tile)?;
        Some(if order == Order::BfloatScalars { tile.2 } else { tile.1 })
    }

    /// Bytes of a decoded panel.
    pub(super) fn bytes(&self) -> Option<usize> {
        image(self.panel, self.lines)
    }
}

/// What a tile costs beside its products, in features.
const OVERHEAD: usize = 16;

/// Dynamic shared memory (`DenseShape` in linear_wgmma.cuh).
fn shared(tile: usize) -> usize {
    const MOST: usize = 226 << 10;
    let stage = (128 + tile) * LINE_BYTES;
    MOST / stage * stage + 1024
}

/// The kernel that decodes a type.
pub(super) fn unpack(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::Q4_K => "linear_unpack_q4_k_sm90a",
        DType::Q5_K => "linear_unpack_q5_k_sm90a",
        DType::Q6_K => "linear_unpack_q6_k_sm90a",
        DType::Q8_0 => "linear_unpack_q8_0_sm90a",
        DType::F16 => "linear_unpack_f16_sm90a",
        DType::BF16 => "linear_unpack_bf16_sm90a",
        DType::Q4_0 => "linear_unpack_q4_0_sm90a",
        DType::Q4_1 => "linear_unpack_q4_1_sm90a",
        DType::Q5_0 => "linear_unpack_q5_0_sm90a",
        DType::Q5_1 => "linear_unpack_q5_1_sm90a",
        DType::Q2_K => "linear_unpack_q2_k_sm90a",
        DType::Q3_K => "linear_unpack_q3_k_sm90a",
        DType::IQ4_NL => "linear_unpack_iq4_nl_sm90a",
        DType::IQ4_XS => "linear_unpack_iq4_xs_sm90a",
        DType::MXFP4 => "linear_unpack_mxfp4_sm90a",
        DType::NVFP4 => "linear_unpack_nvfp4_sm90a",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::kernels::mma;
    use super::*;

    #[test]
    fn everything_fits_and_is_covered() {
        for &dtype in DType::ALL {
            let Some(mma) = mma(dtype) else { continue };
            assert!(unpack(dtype).is_some(), "{dtype}");
            for n in [1, 96, 1024, 5120, 10240, 17408, 34816, 248_320] {
                for k in [32, 256, 300, 5120, 17408] {
                    for rows in [129, 200, 512, 2048, 4096, 8192] {
                        let dense = Dense::of(&mma, n, k, rows, 132);
                        let what = format!("{dtype} {n} {k} {rows}: {dense:?}");
                        assert!(dense.shared + 128 <= 227 << 10, "{what}");
                        assert!(dense.blocks.is_multiple_of(2), "{what}");
                        assert!((2..=132).contains(&dense.blocks), "{what}");
                        assert!(dense.panel.is_multiple_of(dense.tile), "{what}");
                        assert!(dense.panel.is_multiple_of(UNPACK.0), "{what}");
                        assert!(dense.bytes().unwrap() <= PANEL, "{what}");
                        assert!(dense.lines * LINE >= k, "{what}");
                        assert!(dense.slice_lines.is_multiple_of(mma.unit / LINE), "{what}");
                        assert!(dense.kernel(Order::Blocks).is_some(), "{what}");
                    }
                }
            }
        }
    }

    /// The plan decides speed, never the order of sums.
    #[test]
    fn slices_are_those_of_a_step() {
        let mma = mma(DType::Q4_K).unwrap();
        for (n, k) in [(145, 1536), (5120, 17408), (10240, 5120)] {
            let slices = Slices::of(&mma, n, k);
            for (rows, units) in [(129, 132), (2048, 132), (8192, 78)] {
                let dense = Dense::of(&mma, n, k, rows, units);
                assert_eq!(dense.slice_lines, slices.units * 4);
            }
        }
    }

    #[test]
    fn only_hopper_s_own_code_has_it() {
        let target = |name| Target::parse(name).unwrap();
        assert!(is_dense(target("90a"), 512) && !is_dense(target("90a"), 128));
        for other in ["75", "80", "86", "90", "100a", "120a"] {
            assert!(!is_dense(target(other), 4096), "{other}");
        }
    }
}
