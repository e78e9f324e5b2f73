//! Attention on tensor cores: which calls have it, and its launches.

use foretoken::device::DeviceFault;
use foretoken::kernel::{Attention, KernelKey};
use foretoken::tensor::DType;

use super::{Cache, Sizes};
use crate::device::Target;
use crate::launch::{CudaKernel, Launch};
use crate::ops::Bind;

/// Rows, and threads, of a block of `attention_prefill`.
const PREFILL: (usize, u32) = (64, 128);

/// Keys of its steps.
const STEP_KEYS: usize = 32;

/// Head sizes and types that the kernels are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    head_dim: usize,
    /// Whether keys and values are bfloat16; else they are binary16.
    bfloat: [bool; 2],
    /// Whether the code has asynchronous copies, and so two stages of keys and values.
    modern: bool,
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
        let bfloat = types.map(|dtype| dtype == DType::BF16);
        let stored = types.iter().all(|dtype| matches!(dtype, DType::F16 | DType::BF16));
        let products = if bfloat.contains(&true) { modern } else { target.number >= 75 };
        let sized = matches!(head_dim, 64 | 128 | 256);
        (stored && products && sized && aligned).then_some(Self { head_dim, bfloat, modern })
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

    /// Bytes of shared memory: low parts of queries, keys and values of each stage.
    fn prefill_shared(self) -> usize {
        let stages = if self.modern { 2 } else { 1 };
        2 * self.head_dim * (PREFILL.0 + stages * 2 * STEP_KEYS)
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
        }
    }
}
