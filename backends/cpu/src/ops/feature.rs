//! The ring of features that a drafter reads.

use foretoken::device::DeviceFault;
use foretoken::kernel::{FeatureCommit, FeatureLoad, FeatureStore, KernelKey};
use foretoken::tensor::DType;

use super::ancestry::Accepted;
use super::columns::Columns;
use super::{Bind, Controls};
use crate::math::LANES;
use crate::memory::View;
use crate::pool::{CpuKernel, Worker};

/// `[R, W]`: position `p` has slot `p % R`, which as many rows in sequence do not share.
struct Ring {
    memory: View<f32>,
    slots: usize,
    width: usize,
}

fn key(op: &'static str) -> KernelKey {
    KernelKey { op, dtype: DType::F32, regime: None, variant: "columns" }
}

pub(super) struct Store {
    control: Controls,
    x: View<f32>,
    rows: usize,
    columns: usize,
    ring: Ring,
    column: usize,
}

impl Store {
    pub(super) fn new(bind: &Bind<'_>, op: &FeatureStore) -> Result<Self, DeviceFault> {
        let [rows, columns] = bind.dims(&op.x, "x must be [M, D]")?;
        let [slots, width] = bind.dims(&op.ring, "ring must be [R, W]")?;
        bind.ensure(slots >= rows, "the ring has fewer slots than x has rows")?;
        let end = op.column.checked_add(columns);
        bind.ensure(end.is_some_and(|end| end <= width), "the columns lie outside the ring")?;
        bind.apart(&[&op.ring], &[&op.x, &op.control.0])?;
        Ok(Self {
            control: bind.control(&op.control)?,
            x: bind.view(&op.x)?,
            rows,
            columns,
            ring: Ring { memory: bind.view(&op.ring)?, slots, width },
            column: op.column,
        })
    }
}

impl CpuKernel for Store {
    fn run(&self, worker: &Worker<'_>) {
        let Ring { memory, slots, width } = &self.ring;
        let rows = self.control.rows(worker, self.rows);
        let first = self.control.committed(worker);
        let mine = worker.share(self.columns, LANES);
        for row in 0..rows {
            let from = row * self.columns + mine.start..row * self.columns + mine.end;
            let to = (first + row) % slots * width + self.column;
            // SAFETY: inputs of an operation are not written while it runs, and the
            // columns of a worker are its own.
            unsafe {
                let to = memory.write(to + mine.start..to + mine.end);
                to.copy_from_slice(self.x.read(from));
            }
        }
    }

    fn key(&self) -> KernelKey {
        key("feature_store")
    }
}

pub(super) struct Commit {
    control: Controls,
    path: Accepted,
    ring: Ring,
}

impl Commit {
    pub(super) fn new(bind: &Bind<'_>, op: &FeatureCommit) -> Result<Self, DeviceFault> {
        let [slots, width] = bind.dims(&op.ring, "ring must be [R, W]")?;
        let path = Accepted::new(bind, &op.path)?;
        bind.ensure(slots >= path.capacity(), "the ring has fewer slots than the path has rows")?;
        bind.apart(&[&op.ring], &[&op.path.0, &op.control.0])?;
        Ok(Self {
            control: bind.control(&op.control)?,
            path,
            ring: Ring { memory: bind.view(&op.ring)?, slots, width },
        })
    }
}

impl CpuKernel for Commit {
    fn run(&self, worker: &Worker<'_>) {
        let Ring { memory, slots, width } = &self.ring;
        let rows = self.control.rows(worker, self.path.capacity());
        let first = self.control.committed(worker);
        let path = self.path.read(worker, rows);
        let mine = worker.share(*width, LANES);
        let columns = Columns { memory: **memory, width: *width, mine };
        // SAFETY: the columns of a worker are its own; the ring has at least as many
        // slots as there are rows, so theirs are different.
        unsafe { columns.compact(&path, |row| (first + row) % slots) };
    }

    fn key(&self) -> KernelKey {
        key("feature_commit")
    }
}

pub(super) struct Load {
    control: Controls,
    ring: Ring,
    out: View<f32>,
    rows: usize,
}

impl Load {
    pub(super) fn new(bind: &Bind<'_>, op: &FeatureLoad) -> Result<Self, DeviceFault> {
        let [slots, width] = bind.dims(&op.ring, "ring must be [R, W]")?;
        let [rows, out_width] = bind.dims(&op.out, "out must be [M, W]")?;
        bind.ensure(width == out_width, "ring and out differ in width")?;
        bind.apart(&[&op.out], &[&op.ring, &op.control.0])?;
        Ok(Self {
            control: bind.control(&op.control)?,
            ring: Ring { memory: bind.view(&op.ring)?, slots, width },
            out: bind.view(&op.out)?,
            rows,
        })
    }
}

impl CpuKernel for Load {
    fn run(&self, worker: &Worker<'_>) {
        let Ring { memory, slots, width } = &self.ring;
        let rows = self.control.rows(worker, self.rows);
        let first = self.control.committed(worker);
        if rows > *slots {
            worker.refuse("the call has more rows than the ring has slots");
        }
        let mine = worker.share(*width, LANES);
        for row in 0..rows {
            let from = (first + row) % slots * width;
            let to = row * width;
            // SAFETY: inputs of an operation are not written while it runs, and the
            // columns of a worker are its own.
            unsafe {
                let to = self.out.write(to + mine.start..to + mine.end);
                to.copy_from_slice(memory.read(from + mine.start..from + mine.end));
            }
        }
    }

    fn key(&self) -> KernelKey {
        key("feature_load")
    }
}
