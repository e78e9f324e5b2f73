//! Keys and values: into the cache, and together after a walk.

use foretoken::device::DeviceFault;
use foretoken::kernel::{KernelKey, KvAppend, KvCommit, KvPair};
use foretoken::tensor::{DType, Tensor};

use super::Bind;
use super::path::{COLUMNS, path, unit};
use crate::launch::{CudaKernel, Launch};
use crate::memory::View;

/// Elements of a row that a block of `kv_append` takes, as in the source.
const TILE: usize = 1024;

/// A cache tensor: `[context, Hkv, head_dim]` of a type the driver stores.
struct Cache {
    data: View<u8>,
    /// As the kernels know the type.
    code: u32,
    element: usize,
}

impl Cache {
    fn new(bind: &Bind<'_>, tensor: &Tensor) -> Result<Self, DeviceFault> {
        let (code, element) = match tensor.dtype() {
            DType::F32 => (0, 4),
            DType::F16 => (1, 2),
            DType::BF16 => (2, 2),
            other => return Err(bind.unsupported(other)),
        };
        let data = bind.raw::<u8>(tensor)?;
        let aligned = data.address().is_multiple_of(element as u64);
        bind.ensure(aligned, "a tensor is not aligned to its element")?;
        Ok(Self { data, code, element })
    }

    /// Dimensions of a pair, which must agree; the types need not.
    fn dims(bind: &Bind<'_>, cache: &KvPair) -> Result<[usize; 3], DeviceFault> {
        let dims = bind.dims(&cache.k, "the key cache must be [context, Hkv, head_dim]")?;
        let v = bind.dims(&cache.v, "the value cache must be [context, Hkv, head_dim]")?;
        bind.ensure(dims == v, "the key and value caches differ in shape")?;
        Ok(dims)
    }
}

/// [`KvAppend`].
pub(super) fn append(bind: &Bind<'_>, op: &KvAppend) -> Result<CudaKernel, DeviceFault> {
    let [k_rows, k_heads, k_dim] = bind.dims(&op.k, "k must be [M, Hkv, head_dim]")?;
    let [v_rows, v_heads, v_dim] = bind.dims(&op.v, "v must be [M, Hkv, head_dim]")?;
    let [context, heads, dim] = Cache::dims(bind, &op.cache)?;
    let same = [(k_heads, k_dim), (v_heads, v_dim)] == [(heads, dim); 2];
    bind.ensure(same, "k, v and the cache differ in heads or head_dim")?;
    bind.apart(&[&op.cache.k, &op.cache.v], &[&op.k, &op.v, &op.control.0])?;
    let (k, v) = (bind.view::<f32>(&op.k)?, bind.view::<f32>(&op.v)?);
    let (k_cache, v_cache) = (Cache::new(bind, &op.cache.k)?, Cache::new(bind, &op.cache.v)?);
    let (rows, width) = (k_rows.min(v_rows), heads.saturating_mul(dim));
    let addresses = [&k_cache.data, &v_cache.data].map(View::address);
    let wide =
        width.is_multiple_of(4) && bind.wide(&[k.address(), v.address()]) && bind.wide(&addresses);
    let tiles = width.div_ceil(TILE);
    let grid = [bind.blocks(rows.saturating_mul(tiles), 1)?, 2, 1];
    let function = bind.function("kv", "kv_append")?;
    let launch = Launch::new(&function, grid, [256, 1, 1])
        .arg(&bind.control(&op.control)?)
        .arg(&k)
        .arg(&v)
        .arg(&k_cache.data)
        .arg(&v_cache.data)
        .arg(bind.int(rows)?)
        .arg(bind.int(width)?)
        .arg(bind.int(context)?)
        .arg(bind.int(tiles)?)
        .arg(k_cache.code)
        .arg(v_cache.code)
        .arg(u32::from(wide));
    let dtype = op.cache.k.dtype();
    let key = KernelKey { op: "kv_append", dtype, regime: None, variant: "round" };
    bind.kernel(key, vec![launch], Vec::new())
}

/// [`KvCommit`].
pub(super) fn commit(bind: &Bind<'_>, op: &KvCommit) -> Result<CudaKernel, DeviceFault> {
    let [context, heads, dim] = Cache::dims(bind, &op.cache)?;
    bind.apart(&[&op.cache.k, &op.cache.v], &[&op.path.0, &op.control.0])?;
    let (words, capacity) = path(bind, &op.path)?;
    let (k, v) = (Cache::new(bind, &op.cache.k)?, Cache::new(bind, &op.cache.v)?);
    let width = heads.saturating_mul(dim);
    let row_bytes = [&k, &v].map(|cache| width.saturating_mul(cache.element));
    let unit = unit(&[2, 4, 16], &row_bytes, &[&k, &v].map(|cache| cache.data.address()));
    let name = match unit {
        16 => "kv_commit_16",
        4 => "kv_commit_4",
        _ => "kv_commit_2",
    };
    let units = row_bytes.map(|bytes| bytes / unit);
    let columns = units[0].max(units[1]);
    let grid = [bind.blocks(columns, COLUMNS as usize)?, 2, 1];
    let launch = Launch::new(&bind.function("kv", name)?, grid, [COLUMNS, 1, 1])
        .arg(&bind.control(&op.control)?)
        .arg(&words)
        .arg(&k.data)
        .arg(&v.data)
        .arg(bind.int(capacity)?)
        .arg(bind.int(context)?)
        .arg(bind.int(units[0])?)
        .arg(bind.int(units[1])?);
    let dtype = op.cache.k.dtype();
    let key = KernelKey { op: "kv_commit", dtype, regime: None, variant: "columns" };
    bind.kernel(key, vec![launch], Vec::new())
}
