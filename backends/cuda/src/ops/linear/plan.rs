//! How a product is cut up: slices of its sums, blocks, shared memory.

use foretoken::tensor::DType;

use super::kernels::{Mma, Order};
use crate::device::Target;

/// Most rows of a step; more go to the prefill kernel.
pub(super) const STEP_ROWS: usize = 64;

/// Blocks that a product should fall into, which all GPUs get: it decides the order of sums.
const BLOCKS: usize = 384;

/// Most slices of a sum: more cost more to add up than they bring.
const SLICES: usize = 16;

/// Rows and features of a block of the prefill kernel.
pub(super) const PREFILL_TILE: usize = 128;

/// How the sums of a matrix are sliced. A function of its shape and type, and of nothing
/// else: this is what makes a row's bits independent of the number of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slices {
    /// Units of each but the last.
    pub(super) units: usize,
    /// How many.
    pub(super) count: usize,
}

impl Slices {
    pub(super) fn of(mma: &Mma, n: usize, k: usize) -> Self {
        let blocks = n.div_ceil(64 * mma.tiles).max(1);
        let all = k.div_ceil(mma.unit).max(1);
        let wanted = BLOCKS.div_ceil(blocks).clamp(1, SLICES).min(all);
        let units = all.div_ceil(wanted);
        Self { units, count: all.div_ceil(units) }
    }
}

/// The order that activations have to be packed in. Before sm_80 there are no bfloat16
/// products: BF16 weights are rounded to f16.
pub(super) fn order(dtype: DType, target: Target) -> Order {
    match dtype {
        DType::BF16 if is_modern(target) => Order::BfloatScalars,
        DType::BF16 | DType::F16 => Order::Scalars,
        _ => Order::Blocks,
    }
}

/// With cp.async (`kModern` of `mma.cuh`).
fn is_modern(target: Target) -> bool {
    target.number >= 80
}

/// Words may be read a little past the last row of a stage.
const SLACK: usize = 16;

/// How a step kernel uses a block (`Shape` in linear.cuh).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StepShape {
    /// Features of a block.
    pub(super) features: usize,
    /// Dynamic shared memory in bytes.
    pub(super) shared: usize,
}

impl StepShape {
    pub(super) fn of(mma: &Mma, columns: usize, target: Target) -> Self {
        const MOST: usize = 99 << 10;
        const THREE: usize = 75 << 10;
        let packed = if columns < STEP_ROWS { mma.pairs * columns * 64 } else { 0 };
        let weights = 4 * 16 * mma.pitch();
        let stage = |tiles: usize| tiles * weights + packed;
        let tiles = if 2 * stage(mma.tiles) + SLACK <= MOST { mma.tiles } else { 1 };
        let stages = match 3 * stage(tiles) + SLACK <= THREE {
            _ if !is_modern(target) => 1,
            true => 3,
            false => 2,
        };
        Self { features: 64 * tiles, shared: stages * stage(tiles) + SLACK }
    }
}

/// Threads of a block of the prefill kernel.
pub(super) const PREFILL_THREADS: u32 = 256;

/// Dynamic shared memory of the prefill kernel, and the stages that stored bytes come
/// through: as many as a block may have, up to what hides the way from memory.
pub(super) fn prefill_shared(mma: &Mma, target: Target, most: usize) -> (usize, usize) {
    // `kChunkPairs`, `kDecoded` and `kColumnStages` of linear_prefill.cuh.
    let pairs = match target.number {
        80 | 90..120 => 2,
        _ => 1,
    };
    let (decoded, columns) = if is_modern(target) { (2, 4) } else { (1, 2) };
    let tile = 8 * pairs * 2 * 32 * 16;
    let bytes = |slots: usize| (decoded + columns) * tile + 8 * slots * 16 * mma.pitch() + SLACK;
    // Chunks that activations are ahead have to pass while stored bytes are under way.
    let wanted = 1 + columns.div_ceil(mma.pairs / pairs);
    let slots = (1..=wanted).rev().find(|&slots| bytes(slots) <= most).unwrap_or(1);
    (bytes(slots), slots)
}

#[cfg(test)]
mod tests {
    use super::super::kernels::mma;
    use super::*;

    fn all() -> impl Iterator<Item = Mma> {
        DType::ALL.iter().filter_map(|&dtype| mma(dtype))
    }

    #[test]
    fn slices_cover_all_units_and_are_few() {
        for mma in all() {
            for n in [1, 16, 96, 1024, 5120, 10240, 34816, 248_320] {
                for k in [32, 256, 300, 5120, 6144, 17408] {
                    let s = Slices::of(&mma, n, k);
                    let units = k.div_ceil(mma.unit);
                    assert!(s.units * s.count >= units && s.units * (s.count - 1) < units);
                    assert!(s.count <= SLICES, "{n} {k}");
                }
            }
        }
    }

    /// The smallest limit of each architecture (CUDA C++ Programming Guide, compute
    /// capabilities: shared memory per block).
    #[test]
    fn every_kernel_fits_every_architecture() {
        let limits = [(75, 64), (80, 163), (86, 99), (89, 99), (90, 227), (100, 227), (120, 99)];
        for mma in all() {
            for (number, kib) in limits {
                let target = Target { number, specific: false };
                for (columns, name) in mma.steps {
                    let shape = StepShape::of(&mma, *columns, target);
                    assert!(shape.shared <= kib << 10, "{name} on {number}: {shape:?}");
                }
                let (bytes, slots) = prefill_shared(&mma, target, kib << 10);
                assert!(bytes <= kib << 10, "{} on {number}: {bytes}", mma.prefill);
                let many = (90..120).contains(&number);
                assert!(slots >= if many { 2 } else { 1 }, "{} on {number}", mma.prefill);
            }
        }
    }

    #[test]
    fn a_unit_is_whole_blocks() {
        for &dtype in DType::ALL {
            let Some(mma) = mma(dtype) else { continue };
            assert_eq!(dtype.bytes_for(mma.unit), Some(mma.unit_bytes), "{dtype}");
            assert!(mma.grain == 16 || mma.pitch() >= mma.unit_bytes + 15, "{dtype}");
            assert_eq!(mma.steps.last().map(|step| step.0), Some(STEP_ROWS));
        }
    }
}
