//! Taking weights in.

use std::sync::Arc;

use foretoken::Result;
use foretoken::device::{DeviceFault, HostTensor, Weight, WeightRole, WeightSpec};
use foretoken::format::SharedBytes;
use foretoken::quant::is_computable;
use foretoken::tensor::DType;

use super::Core;
use crate::linear::PackedWeight;
use crate::memory::Lease;

/// A weight of this driver.
pub(crate) enum CpuWeight {
    /// For linear operations, repacked.
    Linear(PackedWeight, #[expect(dead_code, reason = "held until the weight goes")] Lease),
    /// For gathering rows, as it lies in the file.
    Table(Arc<Table>, #[expect(dead_code, reason = "held until the weight goes")] Lease),
}

/// An embedding table.
pub(crate) struct Table {
    pub(crate) dtype: DType,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) row_bytes: usize,
    pub(crate) bytes: SharedBytes,
    pub(crate) scale: f32,
}

/// Bytes a weight takes.
pub(crate) fn bytes(core: &Core, spec: &WeightSpec) -> Result<u64> {
    match spec.role {
        WeightRole::Linear => PackedWeight::bytes_for(spec),
        WeightRole::Embedding => {
            if !is_computable(spec.dtype) {
                let (op, dtype, arch) = ("embed", spec.dtype, core.info.arch.clone());
                return Err(DeviceFault::Unsupported { op, dtype, arch }.into());
            }
            Ok(file_bytes(spec)? as u64)
        }
    }
}

/// Takes a weight in.
pub(crate) fn load(core: &Core, host: &HostTensor, spec: &WeightSpec) -> Result<Weight> {
    let bad = |detail| DeviceFault::BadOperands { op: "load_weight", detail };
    if (host.dtype, host.rows, host.cols) != (spec.dtype, spec.rows, spec.cols) {
        return Err(bad("the tensor's type or shape is not the planned one").into());
    }
    if host.bytes.len() != file_bytes(spec)? {
        return Err(bad("the tensor's bytes do not match its type and shape").into());
    }
    let bytes = bytes(core, spec)?;
    let inner = match spec.role {
        WeightRole::Linear => {
            let lease = core.budget.lease(bytes, "a weight")?;
            CpuWeight::Linear(PackedWeight::pack(host, spec, core.isa)?, lease)
        }
        WeightRole::Embedding => {
            let lease = core.budget.lease(bytes, "the embedding table")?;
            let row_bytes = spec.dtype.bytes_for(spec.cols).unwrap_or(0);
            let (bytes, scale) = (host.bytes.clone(), host.scale);
            let (dtype, rows, cols) = (spec.dtype, spec.rows, spec.cols);
            CpuWeight::Table(Arc::new(Table { dtype, rows, cols, row_bytes, bytes, scale }), lease)
        }
    };
    Ok(Weight::new(*spec, host.scale, core.id, bytes, Arc::new(inner)))
}

fn file_bytes(spec: &WeightSpec) -> Result<usize, DeviceFault> {
    let bad = |detail| DeviceFault::BadOperands { op: "load_weight", detail };
    if spec.rows == 0 || spec.cols == 0 {
        return Err(bad("a weight without rows or columns"));
    }
    let row = spec.dtype.bytes_for(spec.cols).ok_or(bad("a row is not whole blocks"))?;
    row.checked_mul(spec.rows).ok_or(bad("the size overflows"))
}
