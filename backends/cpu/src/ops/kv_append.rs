//! Writing keys and values to the cache.

use foretoken::device::DeviceFault;
use foretoken::kernel::{KernelKey, KvAppend, KvPair};
use foretoken::tensor::{DType, Tensor};
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use half::{bf16, f16};

use super::{Bind, Controls};
use crate::memory::View;
use crate::pool::{CpuKernel, Worker};

/// A cache tensor: `[context, Hkv, head_dim]` of a type the driver stores.
#[derive(Clone)]
pub(super) enum Cache {
    F32(View<f32>),
    F16(View<u16>),
    BF16(View<u16>),
}

impl Cache {
    pub(super) fn new(bind: &Bind<'_>, tensor: &Tensor) -> Result<Self, DeviceFault> {
        match tensor.dtype() {
            DType::F32 => Ok(Self::F32(bind.raw(tensor)?)),
            DType::F16 => Ok(Self::F16(bind.raw(tensor)?)),
            DType::BF16 => Ok(Self::BF16(bind.raw(tensor)?)),
            other => Err(bind.unsupported(other)),
        }
    }

    /// Dimensions of a pair, which must agree; the types need not.
    pub(super) fn dims(bind: &Bind<'_>, cache: &KvPair) -> Result<[usize; 3], DeviceFault> {
        let dims = bind.dims(&cache.k, "the key cache must be [context, Hkv, head_dim]")?;
        let v = bind.dims(&cache.v, "the value cache must be [context, Hkv, head_dim]")?;
        bind.ensure(dims == v, "the key and value caches differ in shape")?;
        Ok(dims)
    }
}

pub(super) struct Kernel {
    control: Controls,
    k: (View<f32>, Cache),
    v: (View<f32>, Cache),
    rows: usize,
    context: usize,
    width: usize,
    dtype: DType,
}

impl Kernel {
    pub(super) fn new(bind: &Bind<'_>, op: &KvAppend) -> Result<Self, DeviceFault> {
        let [k_rows, k_heads, k_dim] = bind.dims(&op.k, "k must be [M, Hkv, head_dim]")?;
        let [v_rows, v_heads, v_dim] = bind.dims(&op.v, "v must be [M, Hkv, head_dim]")?;
        let [context, heads, dim] = Cache::dims(bind, &op.cache)?;
        let same = [(k_heads, k_dim), (v_heads, v_dim)] == [(heads, dim); 2];
        bind.ensure(same, "k, v and the cache differ in heads or head_dim")?;
        bind.apart(&[&op.cache.k, &op.cache.v], &[&op.k, &op.v, &op.control.0])?;
        Ok(Self {
            control: bind.control(&op.control)?,
            k: (bind.view(&op.k)?, Cache::new(bind, &op.cache.k)?),
            v: (bind.view(&op.v)?, Cache::new(bind, &op.cache.v)?),
            rows: k_rows.min(v_rows),
            context,
            width: heads * dim,
            dtype: op.cache.k.dtype(),
        })
    }
}

impl CpuKernel for Kernel {
    fn run(&self, worker: &Worker<'_>) {
        let rows = self.control.rows(worker, self.rows);
        let first = self.control.committed_in(worker, rows, self.context);
        for item in worker.share(2 * rows, 1) {
            let (row, (from, to)) = (item / 2, if item % 2 == 0 { &self.k } else { &self.v });
            // SAFETY: inputs of an operation are not written while it runs.
            let x = unsafe { from.read(row * self.width..(row + 1) * self.width) };
            let slot = (first + row) * self.width..(first + row + 1) * self.width;
            // Both conversions round to nearest, ties to even.
            match to {
                // SAFETY: each row's slot belongs to one worker.
                Cache::F32(to) => unsafe { to.write(slot) }.copy_from_slice(x),
                Cache::F16(to) => {
                    // SAFETY: as above.
                    let to = unsafe { to.write(slot) };
                    to.reinterpret_cast_mut::<f16>().convert_from_f32_slice(x);
                }
                Cache::BF16(to) => {
                    // SAFETY: as above.
                    let to = unsafe { to.write(slot) };
                    to.reinterpret_cast_mut::<bf16>().convert_from_f32_slice(x);
                }
            }
        }
    }

    fn key(&self) -> KernelKey {
        KernelKey { op: "kv_append", dtype: self.dtype, regime: None, variant: "round" }
    }
}
