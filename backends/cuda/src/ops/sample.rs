//! Choosing a token of each row among its best candidates.

use foretoken::device::DeviceFault;
use foretoken::kernel::{KernelKey, Sample, SampleParams};
use foretoken::sample::Draw;
use foretoken::tensor::DType;

use super::Bind;
use crate::launch::{CudaKernel, Launch};

/// One warp to a row.
pub(super) fn prepare(bind: &Bind<'_>, op: &Sample) -> Result<CudaKernel, DeviceFault> {
    let [words] = bind.dims(&op.params.0, "the parameters must be [8]")?;
    bind.ensure(words == SampleParams::WORDS, "the parameters must be [8]")?;
    let [capacity] = bind.dims(&op.positions, "positions must be [M]")?;
    let [rows, candidates] = bind.dims(&op.ids, "ids and values must be [L, K]")?;
    let [values, same] = bind.dims(&op.values, "ids and values must be [L, K]")?;
    bind.ensure(same == candidates, "ids and values must be [L, K]")?;
    bind.ensure(candidates <= Draw::CANDIDATES, "K must be at most 64")?;
    bind.ensure(candidates <= op.vocab, "the vocabulary is smaller than K")?;
    let [sums] = bind.dims(&op.log_sum_exp, "log_sum_exp must be [L]")?;
    let [choices, one] = bind.dims(&op.choices, "choices must be [L, 1]")?;
    bind.ensure(one == 1, "choices must be [L, 1]")?;
    let inputs = [&op.control.0, &op.params.0, &op.positions, &op.ids, &op.values];
    bind.apart(&[&op.choices], &[&inputs[..], &[&op.log_sum_exp]].concat())?;
    let rows = rows.min(values).min(sums).min(choices);
    let grid = [bind.blocks(rows, 1)?, 1, 1];
    let launch = Launch::new(&bind.function("sample", "sample")?, grid, [32, 1, 1])
        .arg(&bind.control(&op.control)?)
        .arg(&bind.view::<i32>(&op.params.0)?)
        .arg(&bind.view::<i32>(&op.positions)?)
        .arg(&bind.view::<i32>(&op.ids)?)
        .arg(&bind.view::<f32>(&op.values)?)
        .arg(&bind.view::<f32>(&op.log_sum_exp)?)
        .arg(&bind.view::<i32>(&op.choices)?)
        .arg(bind.int(capacity)?)
        .arg(bind.int(rows)?)
        .arg(bind.int(candidates)?)
        .arg(bind.int(op.vocab)?);
    let key = KernelKey { op: "sample", dtype: DType::F32, regime: None, variant: "warp" };
    bind.kernel(key, vec![launch], Vec::new())
}
