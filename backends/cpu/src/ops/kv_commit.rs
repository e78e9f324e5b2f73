//! Bringing the keys and values of an accepted path together.

use foretoken::device::DeviceFault;
use foretoken::kernel::{KernelKey, KvCommit};
use foretoken::tensor::DType;

use super::kv_append::Cache;
use super::path::{Columns, PathWords};
use super::{Bind, Controls};
use crate::math::LANES;
use crate::memory::{Plain, Span};
use crate::pool::{CpuKernel, Worker};

pub(super) struct Kernel {
    control: Controls,
    path: PathWords,
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
            path: PathWords::new(bind, &op.path)?,
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
        path: &[i32],
        committed: usize,
    ) {
        // Columns rather than rows are shared: each row has to move before another
        // takes its place.
        let mine = worker.share(self.width, 2 * LANES);
        let columns =
            Columns { memory: cache, width: self.width, first: mine.start, count: mine.len() };
        // SAFETY: the columns of a worker are its own; slots of rows are different.
        unsafe { columns.compact(path, |row| committed + row) };
    }
}

impl CpuKernel for Kernel {
    fn run(&self, worker: &Worker<'_>) {
        let rows = self.control.rows(worker, self.path.capacity);
        let committed = self.control.committed(worker);
        if committed.checked_add(rows).is_none_or(|end| end > self.context) {
            worker.refuse("the call reaches past the end of the cache");
        }
        let path = self.path.read(worker, rows);
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
