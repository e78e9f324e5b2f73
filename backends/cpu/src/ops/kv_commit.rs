//! Bringing the keys and values of an accepted path together.

use foretoken::device::DeviceFault;
use foretoken::kernel::{KernelKey, KvCommit};
use foretoken::tensor::DType;

use super::ancestry::{Accepted, PathRows};
use super::columns::Columns;
use super::kv_append::Cache;
use super::{Bind, Controls};
use crate::math::LANES;
use crate::memory::{Plain, Span};
use crate::pool::{CpuKernel, Worker};

pub(super) struct Kernel {
    control: Controls,
    path: Accepted,
    k: Cache,
    v: Cache,
    context: usize,
    width: usize,
    dtype: DType,
}

impl Kernel {
    pub(super) fn new(bind: &Bind<'_>, op: &KvCommit) -> Result<Self, DeviceFault> {
        let [context, heads, dim] = Cache::dims(bind, &op.cache)?;
        bind.apart(&[&op.cache.k, &op.cache.v], &[&op.path.0, &op.control.0])?;
        Ok(Self {
            control: bind.control(&op.control)?,
            path: Accepted::new(bind, &op.path)?,
            k: Cache::new(bind, &op.cache.k)?,
            v: Cache::new(bind, &op.cache.v)?,
            context,
            width: heads * dim,
            dtype: op.cache.k.dtype(),
        })
    }

    fn compact<T: Plain>(
        &self,
        worker: &Worker<'_>,
        cache: Span<T>,
        path: &PathRows,
        committed: usize,
    ) {
        let mine = worker.share(self.width, 2 * LANES);
        let columns = Columns { memory: cache, width: self.width, mine };
        // SAFETY: the columns of a worker are its own; slots of rows are different.
        unsafe { columns.compact(path, |row| committed + row) };
    }
}

impl CpuKernel for Kernel {
    fn run(&self, worker: &Worker<'_>) {
        let rows = self.control.rows(worker, self.path.capacity());
        let committed = self.control.committed_in(worker, rows, self.context);
        let path = &self.path.read(worker, rows);
        for cache in [&self.k, &self.v] {
            match cache {
                Cache::F32(cache) => self.compact(worker, **cache, path, committed),
                Cache::F16(cache) | Cache::BF16(cache) => {
                    self.compact(worker, **cache, path, committed);
                }
            }
        }
    }

    fn key(&self) -> KernelKey {
        KernelKey { op: "kv_commit", dtype: self.dtype, regime: None, variant: "columns" }
    }
}
