//! The largest logits of each row, and the log of the sum of exponentials.

use foretoken::device::DeviceFault;
use foretoken::kernel::{KernelKey, TopK};
use foretoken::tensor::DType;

use super::Bind;
use crate::launch::{CudaKernel, Launch};

/// Logits in a piece, as in the source.
const PIECE: usize = 2048;

/// Most keys of a row, in bytes, that a merge copies to shared memory.
const COPIED: usize = 96 << 10;

/// Each piece of each row, then each row.
pub(super) fn prepare(bind: &Bind<'_>, op: &TopK) -> Result<CudaKernel, DeviceFault> {
    let [mut rows, vocabulary] = bind.dims(&op.logits, "logits must be [M, V]")?;
    bind.ensure((1..=vocabulary).contains(&op.k), "k must be in 1 ..= V")?;
    for tensor in [&op.ids, &op.values] {
        let [outs, k] = bind.dims(tensor, "ids and values must be [M, k]")?;
        bind.ensure(k == op.k, "ids and values must be [M, k]")?;
        rows = rows.min(outs);
    }
    let mut outputs = vec![&op.ids, &op.values];
    if let Some(tensor) = &op.log_sum_exp {
        let [outs] = bind.dims(tensor, "log_sum_exp must be [M]")?;
        rows = rows.min(outs);
        outputs.push(tensor);
    }
    bind.apart(&outputs, &[&op.logits, &op.control.0])?;
    let (control, logits) = (bind.control(&op.control)?, bind.view::<f32>(&op.logits)?);
    let (ids, values) = (bind.view::<i32>(&op.ids)?, bind.view::<f32>(&op.values)?);
    let log_sum_exp = op.log_sum_exp.as_ref().map(|t| bind.view::<f32>(t)).transpose()?;

    let (pieces, kept) = (vocabulary.div_ceil(PIECE), op.k.min(PIECE));
    // A key is a word, and so is the summary of a piece.
    let words = rows.checked_mul(pieces).and_then(|n| n.checked_mul(kept + 1));
    let scratch = bind.scratch(words.and_then(|n| n.checked_mul(size_of::<u64>())))?;
    let grid = [bind.blocks(rows.saturating_mul(pieces), 1)?, 1, 1];
    let first = Launch::new(&bind.function("top_k", "top_k_pieces")?, grid, [256, 1, 1])
        .arg(&control)
        .arg(&logits)
        .arg(&scratch)
        .arg(bind.int(rows)?)
        .arg(bind.int(vocabulary)?)
        .arg(bind.int(pieces)?)
        .arg(bind.int(kept)?)
        .arg(u32::from(log_sum_exp.is_some()));

    let cursors = pieces.saturating_mul(size_of::<i32>());
    let keys = pieces.saturating_mul(kept).saturating_mul(size_of::<u64>());
    let room = bind.limits().shared_per_block as usize;
    let copied = keys <= COPIED && keys.saturating_add(cursors) <= room;
    let shared = cursors + if copied { keys } else { 0 };
    let shared = u32::try_from(shared).map_err(|_| bind.bad("V is too large"))?;
    let grid = [bind.blocks(rows, 1)?, 1, 1];
    let second = Launch::new(&bind.function("top_k", "top_k_merge")?, grid, [128, 1, 1])
        .shared(shared)
        .arg(&control)
        .arg(&logits)
        .arg(&scratch)
        .arg(&ids)
        .arg(&values)
        .arg(log_sum_exp.as_ref())
        .arg(bind.int(rows)?)
        .arg(bind.int(vocabulary)?)
        .arg(bind.int(pieces)?)
        .arg(bind.int(kept)?)
        .arg(bind.int(op.k)?)
        .arg(u32::from(copied));
    let key = KernelKey { op: "top_k", dtype: DType::F32, regime: None, variant: "pieces" };
    bind.kernel(key, vec![first, second], Vec::new())
}
