//! Attention with grouped queries: causal, over a token tree, or of a drafter's block.
//!
//! Caches of 16-bit numbers with heads of 64, 128 or 256 values go to tensor cores
//! (`tensor`); all others, and all calls that this says nothing of, have products of floats.

mod tensor;

use foretoken::device::DeviceFault;
use foretoken::kernel::{Attention, AttentionMask, KernelKey, KvPair, Regime};
use foretoken::tensor::{DType, Tensor};

use self::tensor::Shape;
use super::{Bind, TreeViews};
use crate::launch::{CudaKernel, Launch};
use crate::memory::View;

/// Splits that are folded together first: `ft::kChunk`.
const CHUNK: usize = 16;

/// Scratch memory for what splits leave, unless chunks alone need more. Calls that leave
/// more than fits leave it by chunks.
const SCRATCH_BYTES: usize = 64 << 20;

/// Most queries that a block of threads takes at a time.
const MAX_QUERIES: usize = 16;

/// Most values of a head: eight in a lane.
const MAX_HEAD: usize = 256;

/// Most values of a slot for tensor cores: its bytes are counted in 31 bits.
const MAX_SLOT: usize = 1 << 29;

/// Threads of a block of `attention` and `attention_step`.
const THREADS: u32 = 256;

/// Columns and chunks that a block of `attention_combine` takes at a time.
const COMBINE: [u32; 2] = [32, 16];

/// Sizes of a call, as far as they are known beforehand.
struct Sizes {
    rows: usize,
    context: usize,
    kv_heads: usize,
    group: usize,
    q_stride: usize,
    head_dim: usize,
}

impl Sizes {
    fn new(bind: &Bind<'_>, op: &Attention) -> Result<Self, DeviceFault> {
        let [rows, q_heads, q_stride] = bind.dims(&op.q, "q must be [M, Hq, q_stride]")?;
        let [outs, out_heads, head_dim] = bind.dims(&op.out, "out must be [M, Hq, head_dim]")?;
        let [context, kv_heads, dim] = cache_dims(bind, &op.cache)?;
        bind.ensure(q_heads == out_heads, "q and out differ in heads")?;
        bind.ensure(dim == head_dim, "the cache and out differ in head_dim")?;
        bind.ensure(q_stride >= head_dim, "a row of q must hold a head")?;
        bind.ensure(q_heads.is_multiple_of(kv_heads), "Hq must be a multiple of Hkv")?;
        bind.ensure(head_dim <= MAX_HEAD, "a head of more than 256 values")?;
        let (rows, group) = (rows.min(outs), q_heads / kv_heads);
        let short = |n: Option<usize>| n.is_some_and(|n| i32::try_from(n).is_ok());
        bind.ensure(short(rows.checked_mul(q_heads)), "more queries than 31 bits count")?;
        let slot = kv_heads.checked_mul(head_dim);
        bind.ensure(short(slot), "a slot of the cache has more values than 31 bits count")?;
        Ok(Self { rows, context, kv_heads, group, q_stride, head_dim })
    }

    /// Queries of all heads.
    fn queries(&self) -> usize {
        self.rows * self.kv_heads * self.group
    }

    /// Queries that a block of threads takes at a time.
    fn block_queries(&self) -> usize {
        if self.rows * self.group <= 8 { 8 } else { MAX_QUERIES }
    }

    /// Elements of a key in a lane.
    fn lane_values(&self) -> usize {
        match self.head_dim {
            ..=64 => 2,
            65..=128 => 4,
            _ => 8,
        }
    }

    /// Blocks of queries, over all key-value heads.
    fn query_blocks(&self) -> usize {
        (self.rows * self.group).div_ceil(self.block_queries()) * self.kv_heads
    }

    fn splits(&self) -> usize {
        self.context.div_ceil(Attention::SPLIT)
    }

    /// Records of scratch memory for a step: one for each query and split as long as that
    /// is not too much, and at least one for each query and chunk.
    fn records(&self) -> Option<usize> {
        let all = self.queries().checked_mul(self.splits())?;
        let least = self.queries().checked_mul(self.splits().div_ceil(CHUNK))?;
        let record = (self.head_dim + 2) * size_of::<f32>();
        Some(all.min(SCRATCH_BYTES / record).max(least))
    }

    /// The kernel, for caches whose values can be read several at once or not.
    fn kernel(&self, wide: bool) -> &'static str {
        match (self.block_queries(), self.lane_values()) {
            _ if !wide => "attention_any",
            (8, 2) => "attention_8_2",
            (8, 4) => "attention_8_4",
            (8, _) => "attention_8_8",
            (_, 2) => "attention_16_2",
            (_, 4) => "attention_16_4",
            _ => "attention_16_8",
        }
    }
}

/// Dimensions of a pair of caches, which must agree; the types need not.
fn cache_dims(bind: &Bind<'_>, cache: &KvPair) -> Result<[usize; 3], DeviceFault> {
    let dims = bind.dims(&cache.k, "the key cache must be [context, Hkv, head_dim]")?;
    let v = bind.dims(&cache.v, "the value cache must be [context, Hkv, head_dim]")?;
    bind.ensure(dims == v, "the key and value caches differ in shape")?;
    Ok(dims)
}

/// One cache as the kernel takes it.
struct Cache {
    memory: View<u8>,
    /// The kernel's number of the type.
    dtype: i32,
    /// Whether as many values as a lane takes can be read at once.
    wide: bool,
}

impl Cache {
    /// `each` is how many values a lane takes.
    fn new(bind: &Bind<'_>, tensor: &Tensor, each: usize) -> Result<Self, DeviceFault> {
        let dtype = match tensor.dtype() {
            DType::F32 => 0,
            DType::F16 => 1,
            DType::BF16 => 2,
            other => return Err(bind.unsupported(other)),
        };
        // Alignment to the element.
        match dtype {
            0 => drop(bind.raw::<f32>(tensor)?),
            _ => drop(bind.raw::<u16>(tensor)?),
        }
        let memory = bind.raw::<u8>(tensor)?;
        let whole = tensor.shape().dims().last().is_some_and(|d| d.is_multiple_of(each));
        let wide = whole && bind.wide(&[memory.address()]);
        Ok(Self { memory, dtype, wide })
    }
}

/// What a row sees.
struct Mask {
    /// `ft::Mask`.
    number: i32,
    window: i32,
    tree: Option<TreeViews>,
}

impl Mask {
    fn new(bind: &Bind<'_>, op: &Attention, rows: usize) -> Result<Self, DeviceFault> {
        if !matches!(op.mask, AttentionMask::Causal) {
            bind.ensure(op.regime == Regime::Step, "only a causal mask goes with prefill")?;
        }
        match &op.mask {
            AttentionMask::Causal => Ok(Self { number: 0, window: i32::MAX, tree: None }),
            AttentionMask::Tree(tree) => {
                let views = bind.tree(tree, rows)?;
                bind.apart(&[&op.out], &[&tree.parents, &tree.depths, &tree.masks])?;
                Ok(Self { number: 1, window: i32::MAX, tree: Some(views) })
            }
            &AttentionMask::Block { window, causal } => {
                bind.ensure(window != Some(0), "a window must hold a position")?;
                // Slots are counted in 31 bits.
                let window = window.and_then(|w| i32::try_from(w).ok()).unwrap_or(i32::MAX);
                Ok(Self { number: if causal { 3 } else { 2 }, window, tree: None })
            }
        }
    }
}

/// In a step, one kernel for the splits and one that folds them; in prefill, one that
/// does both.
pub(super) fn prepare(bind: &Bind<'_>, op: &Attention) -> Result<CudaKernel, DeviceFault> {
    let sizes = Sizes::new(bind, op)?;
    let mask = Mask::new(bind, op, sizes.rows)?;
    bind.apart(&[&op.out], &[&op.q, &op.cache.k, &op.cache.v, &op.control.0])?;
    let control = bind.control(&op.control)?;
    let (q, out) = (bind.view::<f32>(&op.q)?, bind.view::<f32>(&op.out)?);
    let k = Cache::new(bind, &op.cache.k, sizes.lane_values())?;
    let v = Cache::new(bind, &op.cache.v, 2)?;
    let types = [op.cache.k.dtype(), op.cache.v.dtype()];
    let addresses = [q.address(), k.memory.address(), v.memory.address(), out.address()];
    let aligned = bind.wide(&addresses)
        && sizes.q_stride.is_multiple_of(4)
        && sizes.kv_heads * sizes.head_dim <= MAX_SLOT;
    let shape = Shape::of(bind.target(), sizes.head_dim, types, aligned);
    match (shape, op.regime) {
        (Some(shape), Regime::Prefill) => {
            return tensor::prefill(bind, op, (&sizes, shape), (&k, &v));
        }
        (Some(shape), Regime::Step) if tensor::holds(op, sizes.rows) => {
            return tensor::step(bind, op, (&sizes, shape, &mask), (&k, &v));
        }
        _ => {}
    }
    let (parents, depths) = match &mask.tree {
        Some(tree) => (Some(&tree.parents), Some(&tree.depths)),
        None => (None, None),
    };

    let whole = op.regime == Regime::Prefill;
    let overflow = || bind.bad("the size of the scratch memory overflows");
    let items = match whole {
        true => sizes.query_blocks(),
        // With blocks of as few queries as there may be.
        false => sizes.queries().checked_mul(sizes.splits()).ok_or_else(overflow)?,
    };
    bind.int(items)?;
    // Two blocks to a multiprocessor, as many as fit.
    let grid = items.min(2 * bind.limits().units as usize).max(1);
    let records = match whole {
        true => grid.checked_mul(MAX_QUERIES),
        false => sizes.records(),
    };
    let records = records.ok_or_else(overflow)?;
    // Values, statistics, and one float that keeps them on a multiple of 8 bytes.
    let floats = records.checked_mul(sizes.head_dim + 2).and_then(|n| n.checked_add(1));
    let scratch = bind.scratch(floats.and_then(|n| n.checked_mul(size_of::<f32>())))?;
    let records = i64::try_from(records).map_err(|_| overflow())?;

    let (kv_heads, group) = (bind.int(sizes.kv_heads)?, bind.int(sizes.group)?);
    let (capacity, context) = (bind.int(sizes.rows)?, bind.int(sizes.context)?);
    let head_dim = bind.int(sizes.head_dim)?;
    let function = bind.function("attention", sizes.kernel(k.wide && v.wide))?;
    let attend = Launch::new(&function, [bind.blocks(grid, 1)?, 1, 1], [THREADS, 1, 1])
        .arg(&control)
        .arg(parents)
        .arg(depths)
        .arg(&q)
        .arg(&k.memory)
        .arg(&v.memory)
        .arg(&out)
        .arg(&scratch)
        .arg(k.dtype)
        .arg(v.dtype)
        .arg(mask.number)
        .arg(mask.window)
        .arg(capacity)
        .arg(context)
        .arg(kv_heads)
        .arg(group)
        .arg(bind.int(sizes.q_stride)?)
        .arg(head_dim)
        .arg(op.scale)
        .arg(i32::from(whole))
        .arg(records);
    let mut launches = vec![attend];
    if !whole {
        let function = bind.function("attention", "attention_combine")?;
        let [lanes, chunks] = COMBINE;
        let columns = bind.blocks(sizes.head_dim, lanes as usize)?;
        let grid = [bind.blocks(sizes.queries(), 1)?, columns, 1];
        let combine = Launch::new(&function, grid, [lanes, chunks, 1])
            .arg(&control)
            .arg(parents)
            .arg(depths)
            .arg(&scratch)
            .arg(&out)
            .arg(mask.number)
            .arg(mask.window)
            .arg(capacity)
            .arg(context)
            .arg(kv_heads * group)
            .arg(head_dim)
            .arg(records);
        launches.push(combine);
    }
    let variant = if whole { "f32-whole" } else { "f32-splits" };
    let (dtype, regime) = (op.cache.k.dtype(), Some(op.regime));
    bind.kernel(KernelKey { op: "attention", dtype, regime, variant }, launches, Vec::new())
}
