//! Taking weights in.

use std::sync::Arc;

use foretoken::Result;
use foretoken::device::{Buffer, DeviceFault, HostTensor, Weight, WeightRole, WeightSpec};
use foretoken::quant::is_computable;
use foretoken::tensor::DType;

use super::bricks::Bricks;
use super::{Core, Queue};
use crate::memory::{View, allocation_bytes};

/// How a weight lies in device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// As in the file: rows of scalars or of GGUF blocks, one after the other.
    Stored,
    /// In bricks.
    Bricks(Bricks),
}

/// A weight of this driver.
pub(crate) struct CudaWeight {
    /// Type, shape and use in the file.
    pub(crate) spec: WeightSpec,
    /// How it lies here.
    pub(crate) layout: Layout,
    /// Factor on the product.
    pub(crate) scale: f32,
    /// Bytes of a row, where rows lie one after the other.
    pub(crate) row_bytes: usize,
    /// All of it.
    pub(crate) data: View<u8>,
}

impl CudaWeight {
    /// A weight without memory, as far as kernels are chosen by it; `None` when the buffer
    /// has memory or is too small.
    pub(crate) fn unbacked(
        core: &Core,
        spec: &WeightSpec,
        buffer: &Buffer,
    ) -> std::result::Result<Option<Self>, DeviceFault> {
        let layout = layout(core, spec)?;
        let row_bytes = spec.dtype.bytes_for(spec.cols).unwrap_or(0);
        let address = buffer.unbacked_address();
        let data = address.and_then(|at| View::at(at, buffer, 0, buffer.bytes()));
        Ok(data.map(|data| Self { spec: *spec, layout, scale: 1.0, row_bytes, data }))
    }
}

/// How a weight will lie in memory: the one place where repacking is decided.
fn layout(core: &Core, spec: &WeightSpec) -> std::result::Result<Layout, DeviceFault> {
    if let Some(bricks) = Bricks::of(spec, core.code().target) {
        return Ok(Layout::Bricks(bricks));
    }
    let stored = match spec.dtype {
        DType::F32 | DType::F16 | DType::BF16 => true,
        dtype => dtype.is_block() && is_computable(dtype),
    };
    if stored {
        return Ok(Layout::Stored);
    }
    let op = match spec.role {
        WeightRole::Linear => "linear",
        WeightRole::Embedding => "embed",
    };
    Err(DeviceFault::Unsupported { op, dtype: spec.dtype, arch: core.info.arch.clone() })
}

/// Bytes of device memory that a weight takes.
pub(super) fn bytes(core: &Core, spec: &WeightSpec) -> Result<u64> {
    Ok(allocation_bytes(size(&layout(core, spec)?, spec)?))
}

/// Bytes of a weight in this layout.
fn size(layout: &Layout, spec: &WeightSpec) -> std::result::Result<usize, DeviceFault> {
    let stored = stored_bytes(spec)?;
    match layout {
        Layout::Stored => Ok(stored),
        Layout::Bricks(bricks) => {
            let detail = "the size overflows";
            let overflow = DeviceFault::BadOperands { op: "load_weight", detail };
            bricks.size(spec).ok_or(overflow)
        }
    }
}

/// Takes a weight in.
pub(super) fn load(core: &Arc<Core>, host: &HostTensor, spec: &WeightSpec) -> Result<Weight> {
    let bad = |detail| DeviceFault::BadOperands { op: "load_weight", detail };
    if (host.dtype, host.rows, host.cols) != (spec.dtype, spec.rows, spec.cols) {
        return Err(bad("the tensor's type or shape is not the planned one").into());
    }
    if host.bytes.len() != stored_bytes(spec)? {
        return Err(bad("the tensor's bytes do not match its type and shape").into());
    }
    let layout = layout(core, spec)?;
    let size = size(&layout, spec)?;
    let what = match spec.role {
        WeightRole::Linear => "a weight",
        WeightRole::Embedding => "the embedding table",
    };
    let data = core.buffer(size, what)?;
    upload(core, &data, &host.bytes)?;
    let mut scale = host.scale;
    if let Layout::Bricks(bricks) = layout {
        scale *= bricks.repack(core, spec, &data)?;
    }
    let foreign = DeviceFault::ForeignBuffer { op: "load_weight" };
    let data = View::part(&data, 0, size).ok_or(foreign)?;
    let row_bytes = spec.dtype.bytes_for(spec.cols).unwrap_or(0);
    let inner = CudaWeight { spec: *spec, layout, scale, row_bytes, data };
    Ok(Weight::new(*spec, host.scale, core.id, allocation_bytes(size), Arc::new(inner)))
}

/// Copies to a buffer and waits.
fn upload(core: &Core, to: &Buffer, bytes: &[u8]) -> Result<()> {
    let bad = DeviceFault::ForeignBuffer { op: "load_weight" };
    let address = crate::memory::address_of(to).ok_or(bad)?;
    let queue = Queue::new(&core.context)?;
    let mut staging = core.staging()?;
    let entered = core.context.enter()?;
    staging.upload(&entered, &queue, address, bytes)?;
    entered.check("cuStreamSynchronize", queue.wait(&entered))?;
    drop(entered);
    staging.reset();
    core.keep(staging);
    Ok(())
}

fn stored_bytes(spec: &WeightSpec) -> std::result::Result<usize, DeviceFault> {
    let bad = |detail| DeviceFault::BadOperands { op: "load_weight", detail };
    if spec.rows == 0 || spec.cols == 0 {
        return Err(bad("a weight without rows or columns"));
    }
    let row = spec.dtype.bytes_for(spec.cols).ok_or(bad("a row is not whole blocks"))?;
    row.checked_mul(spec.rows).ok_or(bad("the size overflows"))
}
