//! How a product is cut up: slices of its sums, blocks, shared memory.

use foretoken::tensor::DType;

use super::kernels::{Mma, Order};
use crate::device::{ARRIVALS, Target};

/// Most rows of a step; more go to the prefill kernel.
pub(super) const STEP_ROWS: usize = 64;

/// Blocks that a product should fall into, which all GPUs get: it decides the order of sums.
const BLOCKS: usize = 384;

/// Most slices of a sum: more cost more to add up than they bring.
pub(super) const SLICES: usize = 16;

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
        let blocks = n.div_ceil(64).max(1);
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

/// How the matrices of a launch are divided among blocks, and their sums cut up. A function
/// of their shapes and type and of the device, and of nothing else: this is what makes a
/// row's bits independent of the number of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cut {
    /// Ranges of tiles.
    pub(super) ranges: usize,
    /// Units of inputs of each slice but the last.
    pub(super) units: usize,
    /// Slices.
    pub(super) slices: usize,
    /// Warps side by side that a block's tiles are shared by.
    pub(super) groups: usize,
    /// Runs of units that a slice is cut into, each with warps of its own.
    pub(super) runs: usize,
    /// Warps that take the last units of each tile.
    pub(super) helpers: usize,
    /// How many units.
    pub(super) tail: usize,
}

impl Cut {
    /// Warps of a block (`kStepWarps`).
    const WARPS: usize = 20;
    /// Most slices (`kMostSlices`).
    const SLICES: usize = 8;

    /// For so many tiles of 16 features and units of inputs: a block to a multiprocessor,
    /// the same work for each, enough warps, few slices.
    pub(super) fn of(mma: &Mma, tiles: usize, units: usize, room: &Room) -> Self {
        let sms = room.multiprocessors.max(1);
        let fits = |groups: usize, runs: usize| {
            let cut = Self { groups, runs, ..Self::default() };
            cut.shared(mma, MOST_ROWS) <= room.shared
        };
        let ranges = tiles.min(sms);
        let one = Self { ranges, units, slices: 1, groups: 1, runs: 1, ..Self::default() };
        let mut best = (f64::MIN, one);
        for wanted in 1..=Self::SLICES.min(units).min(sms) {
            let each = units.div_ceil(wanted);
            let slices = units.div_ceil(each);
            if slices != wanted {
                continue;
            }
            let ranges = (sms / slices).min(tiles);
            // A counter for each tile and each block of rows (64 take up to three).
            if slices > 1 && tiles * 3 > ARRIVALS {
                continue;
            }
            let range = tiles.div_ceil(ranges);
            // The fewest passes, then the fewest warps that make them.
            let passes = range.div_ceil(Self::WARPS);
            let groups = range.div_ceil(passes);
            for runs in 1..=(Self::WARPS / groups).min(each) {
                if !fits(groups, runs) {
                    continue;
                }
                let cut = Self { ranges, units: each, slices, groups, runs, ..Self::default() };
                let score = -cut.microseconds(mma, range, room);
                if score > best.0 {
                    best = (score, cut);
                }
            }
        }
        best.1.helped(mma, tiles.div_ceil(best.1.ranges), room)
    }

    /// With helpers, where a block has one pass of tiles for some warps less than there could
    /// be: the 17 tiles of the 27B's gate and up gain 1 % by three.
    fn helped(self, mma: &Mma, range: usize, room: &Room) -> Self {
        let helpers = Self::WARPS.saturating_sub(self.groups);
        let fits = mma.helped && self.runs == 1 && self.slices == 1 && range == self.groups;
        if !fits || helpers == 0 || helpers > self.groups {
            return self;
        }
        // As much for a helper as for the others.
        let tiles = range.div_ceil(helpers);
        let tail = (self.units + tiles.div_ceil(2)) / (tiles + 1);
        let cut = Self { helpers, tail, ..self };
        if tail > 0 && cut.shared(mma, MOST_ROWS) <= room.shared { cut } else { self }
    }

    /// About how long the busiest block takes, but for what every launch takes, if a
    /// multiprocessor draws at most 32 bytes in a nanosecond, and 60 when most are idle.
    fn microseconds(&self, mma: &Mma, range: usize, room: &Room) -> f64 {
        let warps = self.groups * self.runs;
        // Warps cover each other's latencies, the better the more there are.
        let busy = warps as f64 / (warps + 2) as f64;
        // Runs of a slice may differ by a unit.
        let units = self.runs * self.units.div_ceil(self.runs);
        let idle = 2 * self.ranges * self.slices <= room.multiprocessors;
        let rate = if idle { 60e3 } else { 32e3 };
        let stream = (range * units * mma.unit_bytes * 16) as f64 / rate / busy;
        // In each pass: leave, arrive, add up what others left, by way of the second-level
        // cache.
        let passes = range.div_ceil(self.groups);
        let sums = if self.slices > 1 { 1.0 + 0.1 * self.slices as f64 } else { 0.0 };
        let sums = sums * passes as f64;
        let runs = 0.08 * (self.runs - 1) as f64;
        stream + sums + runs
    }

    /// Threads of a block.
    pub(super) fn threads(&self) -> usize {
        32 * (self.groups * self.runs + self.helpers)
    }

    /// Dynamic shared memory of a block with so many rows: two stages of activations, what
    /// runs exchange, and the activations of helpers.
    pub(super) fn shared(&self, mma: &Mma, rows: usize) -> usize {
        let runs = self.runs + usize::from(self.helpers > 0);
        let units = 2 * self.runs + self.tail;
        (units * mma.pairs + (runs - 1) * self.groups) * rows * 64
    }
}

/// Most rows of a block of the step kernels for bricks.
const MOST_ROWS: usize = 32;

/// What blocks have to fit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Of the device.
    pub(super) multiprocessors: usize,
    /// Bytes of shared memory that a block may have.
    pub(super) shared: usize,
}

/// How a step kernel for rows uses a block (`Shape` in linear.cuh).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StepShape {
    /// Features of a block.
    pub(super) features: usize,
    /// Dynamic shared memory in bytes.
    pub(super) shared: usize,
}

impl StepShape {
    pub(super) fn of(mma: &Mma, target: Target) -> Self {
        const THREE: usize = 75 << 10;
        let stage = 4 * mma.stage();
        let stages = match 3 * stage + SLACK <= THREE {
            _ if !is_modern(target) => 1,
            true => 3,
            false => 2,
        };
        Self { features: 64, shared: stages * stage + SLACK }
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
    let bytes = |slots: usize| (decoded + columns) * tile + 8 * slots * mma.stage() + SLACK;
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

    #[test]
    fn cuts_cover_all_units_and_fit() {
        for mma in all().filter(|mma| mma.bricks) {
            for (sms, kib) in [(1, 64), (20, 64), (68, 64), (82, 99), (128, 99), (132, 227)] {
                let room = Room { multiprocessors: sms, shared: kib << 10 };
                for tiles in [1, 3, 40, 320, 384, 640, 2176, 15520] {
                    for units in [1, 2, 7, 20, 24, 68] {
                        let cut = Cut::of(&mma, tiles, units, &room);
                        let Cut { ranges, units: each, slices, groups, runs, helpers, tail } = cut;
                        assert!(each * slices >= units && each * (slices - 1) < units, "{cut:?}");
                        assert!(slices <= Cut::SLICES && runs <= each, "{cut:?}");
                        assert!(groups * runs + helpers <= Cut::WARPS, "{cut:?}");
                        assert_eq!(helpers > 0, tail > 0, "{cut:?}");
                        assert!(helpers == 0 || (runs == 1 && tail < each), "{cut:?}");
                        assert!(ranges <= tiles && ranges * slices <= sms.max(slices), "{cut:?}");
                        assert!(cut.shared(&mma, MOST_ROWS) <= kib << 10, "{cut:?} {kib}");
                    }
                }
            }
        }
    }

    /// Of the 27B on 132 multiprocessors: the work of the busiest is near the mean.
    #[test]
    fn cuts_are_even() {
        let room = Room { multiprocessors: 132, shared: 227 << 10 };
        let q4 = mma(DType::Q4_K).expect("a kernel");
        for (tiles, units) in [(320, 24), (320, 68), (640, 20), (896, 20), (2176, 20), (15520, 20)]
        {
            let cut = Cut::of(&q4, tiles, units, &room);
            let range = tiles.div_ceil(cut.ranges);
            let work = range * cut.runs * cut.units.div_ceil(cut.runs);
            let even = (tiles * units) as f64 / 132.0 / work as f64;
            // Where it is not, slices would cost more.
            assert!(even > 0.8, "{tiles} {units} {cut:?} {even}");
            assert!(cut.groups * cut.runs >= 8, "{tiles} {units} {cut:?}");
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
                if !mma.bricks {
                    let shared = StepShape::of(&mma, target).shared;
                    assert!(shared <= kib << 10, "{mma:?} on {number}: {shared}");
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
            assert!(mma.bricks || mma.grain == 16 || mma.stage() >= 16 * (mma.unit_bytes + 15));
            assert_eq!(mma.steps.last().map(|step| step.columns), Some(STEP_ROWS));
            assert!(mma.steps.iter().all(|s| s.columns % s.block == 0));
            assert!(mma.steps.iter().all(|s| !mma.bricks || s.block <= MOST_ROWS));
        }
    }
}
