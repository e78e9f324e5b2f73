//! The delta rule by chunks of 64 rows, on tensor cores: two kernels, the first for all
//! chunks at once, the second from chunk to chunk (`gated_delta_chunk.cu`,
//! `gated_delta_state.cu`, on Hopper `gated_delta_wgmma.cu`).
//!
//! Chunks count from the first row of a call: sessions put that on a multiple of 64 tokens,
//! so bits depend on where those lie and not on the rows of a call.

use foretoken::device::DeviceFault;
use foretoken::kernel::{HeadMap, KernelKey, Regime};
use foretoken::tensor::DType;

use super::Rule;
use crate::device::Target;
use crate::launch::{CudaKernel, Launch, Scratch};
use crate::memory::View;
use crate::ops::Bind;

/// Rows of a chunk: `kChunk`.
const CHUNK: usize = 64;

/// Rows that both kernels go through before the first goes on, so that what it leaves is
/// still in the second-level cache: 42 MB of a 27B model. A multiple of `CHUNK`.
const GROUP: usize = 2048;

/// Most keys and values of a head.
const MOST: usize = 128;

/// Threads of a block of the first kernel.
const THREADS: u32 = 128;

/// Values of a head in a warp of the second.
const COLUMNS: usize = 16;

/// Code with the products of a warpgroup.
const HOPPER: Target = Target { number: 90, specific: true };

/// Bytes of the squares and factors of a chunk and value head: `kHeadBytes`.
const HEAD_BYTES: usize = 2 * (2 * CHUNK * CHUNK) + 3 * CHUNK * size_of::<f32>();

/// Whether heads have sizes that tiles take, at places that wide loads take.
pub(super) fn is_for(bind: &Bind<'_>, rule: &Rule) -> bool {
    let fits = |n: usize| n.is_multiple_of(16) && n <= MOST;
    fits(rule.dk)
        && fits(rule.dv)
        && bind.wide(&[rule.qkv.address(), rule.state.address()])
        && u32::try_from(stage_bytes(rule.dk))
            .is_ok_and(|bytes| bytes <= bind.limits().shared_per_block)
}

/// Keys as tiles have them.
fn padded(dk: usize) -> usize {
    if dk <= 64 { 64 } else { 128 }
}

/// Bytes of keys and queries of a chunk and key head: `kKeyBytes`.
fn key_bytes(dk: usize) -> usize {
    2 * (2 * CHUNK * padded(dk))
}

/// Shared memory of a chunk in the second kernel.
fn stage_bytes(dk: usize) -> usize {
    key_bytes(dk) + HEAD_BYTES
}

/// The second kernel, and its blocks.
struct Walk {
    family: &'static str,
    name: &'static str,
    variant: &'static str,
    warps: usize,
    /// Chunks in shared memory.
    stages: usize,
    /// Bytes of it.
    shared: usize,
}

impl Walk {
    /// For code of `target`, where a block can have so many bytes of shared memory.
    fn new(target: Target, rule: &Rule, shared_per_block: usize) -> Self {
        let (small, stage) = (padded(rule.dk) == 64, stage_bytes(rule.dk));
        if target == HOPPER {
            let name =
                if small { "gated_delta_state_64_sm90a" } else { "gated_delta_state_128_sm90a" };
            // With values of 64 columns; each, and the first, lies on a multiple of 1024.
            let values = CHUNK * (64 + 4) * size_of::<f32>();
            let shared = 2 * (stage + values).next_multiple_of(1024) + 1024;
            let (family, variant) = ("gated_delta_wgmma", "chunks-wgmma");
            return Self { family, name, variant, warps: 4, stages: 2, shared };
        }
        let name = if small { "gated_delta_state_64" } else { "gated_delta_state_128" };
        let stages = if 2 * stage <= shared_per_block { 2 } else { 1 };
        let (family, variant) = ("gated_delta_state", "chunks");
        // With more, multiprocessors are left without any.
        let warps = rule.dv.div_ceil(COLUMNS).min(2);
        Self { family, name, variant, warps, stages, shared: stages * stage }
    }
}

pub(super) fn prepare(
    bind: &Bind<'_>,
    rule: &Rule,
    out: &View<f32>,
    rows: usize,
) -> Result<CudaKernel, DeviceFault> {
    let (key_heads, value_heads) = (rule.key_heads, rule.value_heads);
    let chunks = rows.min(GROUP).div_ceil(CHUNK);
    let keys = key_bytes(rule.dk).checked_mul(key_heads).and_then(|n| n.checked_mul(chunks));
    let heads = HEAD_BYTES.checked_mul(value_heads).and_then(|n| n.checked_mul(chunks));
    let both = keys.zip(heads).and_then(|(keys, heads)| keys.checked_add(heads));
    let scratch = bind.scratch(both)?;
    // In bounds: the sum is the size of the memory.
    let (keys, heads) = (keys.unwrap_or_default(), heads.unwrap_or_default());
    let heads_at = bind.part(scratch.0.buffer(), keys, heads).map(Scratch);
    let heads_at = &heads_at.ok_or(bind.bad("the size of the scratch memory overflows"))?;

    let name = if padded(rule.dk) == 64 { "gated_delta_chunk_64" } else { "gated_delta_chunk_128" };
    let chunk = bind.function("gated_delta_chunk", name)?;
    let chunk_grid = [bind.blocks(key_heads, 1)?, bind.blocks(chunks, 1)?, 1];
    let walk = Walk::new(bind.target(), rule, bind.limits().shared_per_block as usize);
    let state = bind.function(walk.family, walk.name)?;
    let blocks = bind.blocks(rule.dv, COLUMNS * walk.warps)?;
    let state_grid = [blocks, bind.blocks(value_heads, 1)?, 1];
    let threads = bind.blocks(32 * walk.warps, 1)?;
    let shared = bind.blocks(walk.shared, 1)?;
    let tiled = i32::from(rule.head_map == HeadMap::Tiled);

    let mut launches = Vec::new();
    for first in (0..rows).step_by(GROUP) {
        launches.push(
            Launch::new(&chunk, chunk_grid, [THREADS, 1, 1])
                .arg(&rule.control)
                .arg(&rule.qkv)
                .arg(&rule.alpha)
                .arg(&rule.beta)
                .arg(&rule.a)
                .arg(&rule.dt_bias)
                .arg(&scratch)
                .arg(heads_at)
                .arg(bind.int(first)?)
                .arg(bind.int(rows)?)
                .arg(bind.int(value_heads)?)
                .arg(bind.int(rule.dk)?)
                .arg(bind.int(rule.dv)?)
                .arg(tiled)
                .arg(rule.eps),
        );
        launches.push(
            Launch::new(&state, state_grid, [threads, 1, 1])
                .shared(shared)
                .arg(&rule.control)
                .arg(&rule.qkv)
                .arg(&scratch)
                .arg(heads_at)
                .arg(&rule.state)
                .arg(out)
                .arg(bind.int(first)?)
                .arg(bind.int(GROUP)?)
                .arg(bind.int(rows)?)
                .arg(bind.int(key_heads)?)
                .arg(bind.int(rule.dk)?)
                .arg(bind.int(rule.dv)?)
                .arg(tiled)
                .arg(bind.int(walk.stages)?),
        );
    }
    let (dtype, regime) = (DType::F32, Some(Regime::Prefill));
    let key = KernelKey { op: "gated_delta", dtype, regime, variant: walk.variant };
    bind.kernel(key, launches, Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_chunks_fit_where_a_block_can_have_99_kib() {
        assert!(2 * stage_bytes(128) <= 99 << 10);
        assert!(stage_bytes(128) <= 64 << 10);
        assert!(stage_bytes(128).is_multiple_of(256) && stage_bytes(64).is_multiple_of(256));
    }
}
