//! Gathering rows of the embedding table.

use foretoken::device::{DeviceFault, WeightRole};
use foretoken::kernel::{Embed, KernelKey};
use foretoken::tensor::DType;

use super::Bind;
use crate::device::Layout;
use crate::launch::{CudaKernel, Launch};

/// The kernel for a table of this type.
fn name(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::F32 => "embed_f32",
        DType::F16 => "embed_f16",
        DType::BF16 => "embed_bf16",
        DType::Q4_0 => "embed_q4_0",
        DType::Q4_1 => "embed_q4_1",
        DType::Q5_0 => "embed_q5_0",
        DType::Q5_1 => "embed_q5_1",
        DType::Q8_0 => "embed_q8_0",
        DType::Q2_K => "embed_q2_k",
        DType::Q3_K => "embed_q3_k",
        DType::Q4_K => "embed_q4_k",
        DType::Q5_K => "embed_q5_k",
        DType::Q6_K => "embed_q6_k",
        DType::IQ4_NL => "embed_iq4_nl",
        DType::IQ4_XS => "embed_iq4_xs",
        DType::MXFP4 => "embed_mxfp4",
        DType::NVFP4 => "embed_nvfp4",
        _ => return None,
    })
}

/// One block to a row.
pub(super) fn prepare(bind: &Bind<'_>, op: &Embed) -> Result<CudaKernel, DeviceFault> {
    let [tokens] = bind.dims(&op.tokens, "tokens must be [M]")?;
    let [rows, cols] = bind.dims(&op.out, "out must be [M, D]")?;
    let table = bind.weight(&op.table)?;
    let stored = table.layout == Layout::Stored && table.spec.role == WeightRole::Embedding;
    bind.ensure(stored, "the table was loaded for linear operations")?;
    bind.ensure(table.spec.cols == cols, "out and the table must have the same width")?;
    bind.apart(&[&op.out], &[&op.tokens, &op.control.0])?;
    let dtype = table.spec.dtype;
    let function = bind.function("embed", name(dtype).ok_or(bind.unsupported(dtype))?)?;
    let rows = tokens.min(rows);
    let row_bytes = i64::try_from(table.row_bytes).map_err(|_| bind.bad("a row is too long"))?;
    let launch = Launch::new(&function, [bind.blocks(rows, 1)?, 1, 1], [256, 1, 1])
        .arg(&bind.control(&op.control)?)
        .arg(&bind.view::<i32>(&op.tokens)?)
        .arg(&table.data)
        .arg(&bind.view::<f32>(&op.out)?)
        .arg(bind.int(rows)?)
        .arg(bind.int(table.spec.rows)?)
        .arg(bind.int(cols)?)
        .arg(row_bytes)
        .arg(table.scale);
    let key = KernelKey { op: "embed", dtype, regime: None, variant: "gather" };
    bind.kernel(key, vec![launch], vec![table])
}
