//! Attention on tensor cores: which calls have it, and its launches.

use foretoken::device::DeviceFault;
use foretoken::kernel::{Attention, AttentionMask, KernelKey};
use foretoken::tensor::DType;

use super::{Cache, Mask, Sizes, THREADS};
use crate::device::Target;
use crate::launch::{CudaKernel, Launch};
use crate::ops::Bind;

/// Rows, and threads, of a block of `attention_prefill`.
const PREFILL: (usize, u32) = (64, 128);

/// Keys of its steps.
const STEP_KEYS: usize = 32;

/// Fewest threads along the columns of a block of `attention_join`, which go with up to so
/// many queries.
const JOIN_WIDTH: u32 = 16;
const FEW_QUERIES: usize = 96;

/// Most rows of a block that sees all of itself: with 63 committed keys, those of a split.
const BLOCK_ROWS: usize = 64;

/// Head sizes and types that the kernels are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    head_dim: usize,
    /// Whether keys and values are bfloat16; else they are binary16.
    bfloat: [bool; 2],
    /// Whether the code has asynchronous copies, and so two stages of keys and values.
    modern: bool,
    /// Whether two blocks have room for the high parts of half the largest queries.
    roomy: bool,
}

impl Shape {
    /// The kernels' form of a cache, or none: then the products are those of floats. A
    /// matter of types, sizes and places, never of rows.
    pub(super) fn of(
        target: Target,
        head_dim: usize,
        types: [DType; 2],
        aligned: bool,
    ) -> Option<Self> {
        let modern = target.number >= 80;
        let roomy = (90..120).contains(&target.number);
        let bfloat = types.map(|dtype| dtype == DType::BF16);
        let stored = types.iter().all(|dtype| matches!(dtype, DType::F16 | DType::BF16));
        let products = if bfloat.contains(&true) { modern } else { target.number >= 75 };
        let sized = matches!(head_dim, 64 | 128 | 256);
        (stored && products && sized && aligned).then_some(Self { head_dim, bfloat, modern, roomy })
    }

    /// Queries of a block of a step, in eights: as many as there are, up to what shared
    /// memory holds.
    fn step_tiles(self, queries: usize) -> usize {
        match queries {
            ..=8 => 1,
            9..=24 => 3,
            _ if self.modern => 6,
            _ => 3,
        }
    }

    /// Bytes of shared memory: the larger of the kernel's `SplitRoom` and `TailRoom`.
    fn step_shared(self, tiles: usize) -> usize {
        let split = tiles * (32 * self.head_dim + 5024);
        split.max(32 * self.head_dim + 4352 + 6656)
    }

    fn step(self, tiles: usize) -> &'static str {
        macro_rules! name {
            ($d:literal) => {
                match (tiles, self.bfloat) {
                    (1, [false, false]) => concat!("attention_step_", $d, "_1"),
                    (1, [false, true]) => concat!("attention_step_", $d, "_1_fb_sm80"),
                    (1, [true, false]) => concat!("attention_step_", $d, "_1_bf_sm80"),
                    (1, [true, true]) => concat!("attention_step_", $d, "_1_bb_sm80"),
                    (3, [false, false]) => concat!("attention_step_", $d, "_3"),
                    (3, [false, true]) => concat!("attention_step_", $d, "_3_fb_sm80"),
                    (3, [true, false]) => concat!("attention_step_", $d, "_3_bf_sm80"),
                    (3, [true, true]) => concat!("attention_step_", $d, "_3_bb_sm80"),
                    (_, [false, false]) => concat!("attention_step_", $d, "_6"),
                    (_, [false, true]) => concat!("attention_step_", $d, "_6_fb_sm80"),
                    (_, [true, false]) => concat!("attention_step_", $d, "_6_bf_sm80"),
                    (_, [true, true]) => concat!("attention_step_", $d, "_6_bb_sm80"),
                }
            };
        }
        match self.head_dim {
            64 => name!("64"),
            128 => name!("128"),
            _ => name!("256"),
        }
    }

    fn prefill(self) -> &'static str {
        match (self.head_dim, self.bfloat) {
            (64, [false, false]) => "attention_prefill_64",
            (64, [false, true]) => "attention_prefill_64_fb_sm80",
            (64, [true, false]) => "attention_prefill_64_bf_sm80",
            (64, [true, true]) => "attention_prefill_64_bb_sm80",
            (128, [false, false]) => "attention_prefill_128",
            (128, [false, true]) => "attention_prefill_128_fb_sm80",
            (128, [true, false]) => "attention_prefill_128_bf_sm80",
            (128, [true, true]) => "attention_prefill_128_bb_sm80",
            (_, [false, false]) => "attention_prefill_256",
            (_, [false, true]) => "attention_prefill_256_fb_sm80",
            (_, [true, false]) => "attention_prefill_256_bf_sm80",
            (_, [true, true]) => "attention_prefill_256_bb_sm80",
        }
    }

    /// Bytes of shared memory: low parts of queries, high parts that registers do not hold,
    /// keys and values of each stage, and what the kernel keeps there.
    fn prefill_shared(self) -> usize {
        let stages = if self.modern { 2 } else { 1 };
        let high = if self.roomy && self.head_dim == 256 { PREFILL.0 / 2 } else { 0 };
        // `Kept`, behind the tiles.
        let kept = if self.modern { 320 } else { 0 };
        2 * self.head_dim * (PREFILL.0 + high + stages * 2 * STEP_KEYS) + kept
    }
}

/// Prefill: one kernel.
pub(super) fn prefill(
    bind: &Bind<'_>,
    op: &Attention,
    (sizes, shape): (&Sizes, Shape),
    (k, v): (&Cache, &Cache),
) -> Result<CudaKernel, DeviceFault> {
    let (rows, threads) = PREFILL;
    let q_heads = sizes.kv_heads * sizes.group;
    let blocks = sizes.rows.div_ceil(rows).checked_mul(q_heads);
    let blocks = blocks.ok_or_else(|| bind.bad("a grid is past 32 bits"))?;
    let function = bind.function("attention_prefill", shape.prefill())?;
    let launch = Launch::new(&function, [bind.blocks(blocks, 1)?, 1, 1], [threads, 1, 1])
        .shared(bind.blocks(shape.prefill_shared(), 1)?)
        .arg(&bind.control(&op.control)?)
        .arg(&bind.view::<f32>(&op.q)?)
        .arg(&k.memory)
        .arg(&v.memory)
        .arg(&bind.view::<f32>(&op.out)?)
        .arg(bind.int(sizes.rows)?)
        .arg(bind.int(sizes.context)?)
        .arg(bind.int(sizes.kv_heads)?)
        .arg(bind.int(sizes.group)?)
        .arg(bind.int(sizes.q_stride)?)
        .arg(op.scale);
    let (dtype, regime) = (op.cache.k.dtype(), Some(op.regime));
    let key = KernelKey { op: "attention", dtype, regime, variant: "mma-whole" };
    bind.kernel(key, vec![launch], Vec::new())
}

/// Whether a step's rows and the keys next to them fit a block: always for trees and causal
/// rows; of a block that sees all of itself, 64 rows.
pub(super) fn holds(op: &Attention, rows: usize) -> bool {
    !matches!(op.mask, AttentionMask::Block { causal: false, .. }) || rows <= BLOCK_ROWS
}

/// A step: one kernel for splits and tails, one that folds them.
pub(super) fn step(
    bind: &Bind<'_>,
    op: &Attention,
    (sizes, shape, mask): (&Sizes, Shape, &Mask),
    (k, v): (&Cache, &Cache),
) -> Result<CudaKernel, DeviceFault> {
    let overflow = || bind.bad("the size of the scratch memory overflows");
    let (records, queries) = (sizes.records().ok_or_else(overflow)?, sizes.queries());
    let floats = records.checked_add(queries).and_then(|n| n.checked_mul(sizes.head_dim + 2));
    let scratch = bind.scratch(floats.and_then(|n| n.checked_mul(size_of::<f32>())))?;
    let records = i64::try_from(records).map_err(|_| overflow())?;

    let tiles = shape.step_tiles(sizes.rows * sizes.group);
    let blocks = |queries: usize| (sizes.rows * sizes.group).div_ceil(queries) * sizes.kv_heads;
    let items = blocks(8 * tiles).checked_mul(sizes.splits());
    let items = items.and_then(|n| n.checked_add(blocks(8))).ok_or_else(overflow)?;
    bind.int(items)?;
    let grid = items.min(2 * bind.limits().units as usize).max(1);

    let control = bind.control(&op.control)?;
    let out = bind.view::<f32>(&op.out)?;
    let tree = mask.tree.as_ref();
    let (parents, depths) = (tree.map(|tree| &tree.parents), tree.map(|tree| &tree.depths));
    let (capacity, context) = (bind.int(sizes.rows)?, bind.int(sizes.context)?);
    let function = bind.function("attention_step", shape.step(tiles))?;
    let attend = Launch::new(&function, [bind.blocks(grid, 1)?, 1, 1], [THREADS, 1, 1])
        .shared(bind.blocks(shape.step_shared(tiles), 1)?)
        .arg(&control)
        .arg(parents)
        .arg(depths)
        .arg(&bind.view::<f32>(&op.q)?)
        .arg(&k.memory)
        .arg(&v.memory)
        .arg(&scratch)
        .arg(mask.number)
        .arg(mask.window)
        .arg(capacity)
        .arg(context)
        .arg(bind.int(sizes.kv_heads)?)
        .arg(bind.int(sizes.group)?)
        .arg(bind.int(sizes.q_stride)?)
        .arg(op.scale)
        .arg(records);
    let function = bind.function("attention_step", "attention_join")?;
    // Four columns to a thread, and as many chunks at a time as that leaves threads for. Few
    // queries are spread over more blocks.
    let columns = bind.blocks(sizes.head_dim, 4)?;
    let width = if queries <= FEW_QUERIES { JOIN_WIDTH } else { columns };
    let grid = [bind.blocks(queries, 1)?, columns / width, 1];
    let join = Launch::new(&function, grid, [width, THREADS / width, 1])
        .arg(&control)
        .arg(parents)
        .arg(depths)
        .arg(&scratch)
        .arg(&out)
        .arg(mask.number)
        .arg(mask.window)
        .arg(capacity)
        .arg(context)
        .arg(bind.int(sizes.kv_heads * sizes.group)?)
        .arg(bind.int(sizes.head_dim)?)
        .arg(records);
    let (dtype, regime) = (op.cache.k.dtype(), Some(op.regime));
    let key = KernelKey { op: "attention", dtype, regime, variant: "mma-splits" };
    bind.kernel(key, vec![attend, join], Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_sizes_and_places_choose() {
        let of = |number, dim, types, aligned| {
            Shape::of(Target { number, specific: false }, dim, types, aligned).is_some()
        };
        let (half, bfloat) = ([DType::F16; 2], [DType::BF16; 2]);
        assert!(of(75, 64, half, true) && of(90, 128, bfloat, true) && of(80, 256, half, true));
        assert!(!of(75, 64, bfloat, true) && !of(90, 64, [DType::F32, DType::F16], true));
        assert!(!of(90, 96, half, true) && !of(90, 64, half, false));
    }

    /// What a block of the smallest architectures can have.
    #[test]
    fn shared_memory_fits() {
        for (number, kib) in [(75, 64), (86, 99), (90, 227)] {
            let target = Target { number, specific: false };
            let shape = Shape::of(target, 256, [DType::F16; 2], true).unwrap();
            assert!(shape.prefill_shared() <= kib << 10);
            // With the tree and the plan, below 1 KiB.
            let step = shape.step_shared(shape.step_tiles(usize::MAX));
            assert!(step + (1 << 10) <= kib << 10);
        }
    }
}
