//! Root-mean-square norms of rows and of heads.

use foretoken::device::DeviceFault;
use foretoken::kernel::{GatedNorm, KernelKey, RmsNorm, RowSet};
use foretoken::tensor::DType;

use super::{Bind, pack_threads, row_set};
use crate::launch::{CudaKernel, Launch};
use crate::launch_fused::Producer;

/// Heads of a block of `gated_norm`: one to a warp.
const HEADS: usize = 4;

/// Threads for a row: whole warps, a group of four values to each thread if they are
/// enough, else as many groups to each. By the width alone, since the order of the sum
/// hangs on it.
fn threads(width: usize) -> u32 {
    let groups = width.div_ceil(4);
    let threads = groups.div_ceil(groups.div_ceil(1024)).next_multiple_of(32);
    u32::try_from(threads).unwrap_or(1024).min(1024)
}

/// One block to a row.
pub(super) fn rms(bind: &Bind<'_>, op: &RmsNorm) -> Result<CudaKernel, DeviceFault> {
    let [rows, width] = bind.dims(&op.x, "x must be [M, D]")?;
    let [out_rows, out_width] = bind.dims(&op.out, "out must be [M, D]")?;
    let [weights] = bind.dims(&op.weight, "weight must be [D]")?;
    bind.ensure(width == out_width && width == weights, "x, out and weight differ in width")?;
    bind.apart(&[&op.out], &[&op.weight, &op.control.0])?;
    let in_place = bind.same(&op.out, &op.x)?;
    let moves = op.rows == RowSet::Logits;
    bind.ensure(!(in_place && moves), "rows that move can not be normed in place")?;
    let (x, weight) = (bind.view::<f32>(&op.x)?, bind.view::<f32>(&op.weight)?);
    let out = bind.view::<f32>(&op.out)?;
    let wide =
        width.is_multiple_of(4) && bind.wide(&[x.address(), weight.address(), out.address()]);
    let function = bind.function("norms", "rms_norm")?;
    let grid = [bind.blocks(rows.min(out_rows), 1)?, 1, 1];
    let control = bind.control(&op.control)?;
    let launch = Launch::new(&function, grid, [threads(width), 1, 1])
        .arg(&control)
        .arg(row_set(op.rows))
        .arg(&x)
        .arg(&weight)
        .arg(&out)
        .arg(bind.int(rows)?)
        .arg(bind.int(out_rows)?)
        .arg(bind.int(width)?)
        .arg(op.eps)
        .arg(u32::from(wide));
    let packing = bind.function("norms", "rms_norm_pack")?;
    let packing = launch.of(&packing, threads(width));
    let producer = Producer::new(packing, &out, &control, op.rows);
    let key = KernelKey { op: "rms_norm", dtype: DType::F32, regime: None, variant: "block" };
    Ok(bind.kernel(key, vec![launch], Vec::new())?.producing(producer))
}

/// One warp to a head.
pub(super) fn gated(bind: &Bind<'_>, op: &GatedNorm) -> Result<CudaKernel, DeviceFault> {
    let [xs, heads, width] = bind.dims(&op.x, "x must be [M, H, dv]")?;
    let [zs, z_heads, z_width] = bind.dims(&op.z, "z must be [M, H, dv]")?;
    let [outs, out_heads, out_width] = bind.dims(&op.out, "out must be [M, H, dv]")?;
    let [weights] = bind.dims(&op.weight, "weight must be [dv]")?;
    let same = heads == z_heads && heads == out_heads && width == z_width;
    bind.ensure(same && width == out_width, "x, z and out differ in heads or width")?;
    bind.ensure(weights == width, "weight must be as wide as a head")?;
    bind.apart(&[&op.out], &[&op.z, &op.weight, &op.control.0])?;
    bind.same(&op.out, &op.x)?;
    let (x, z) = (bind.view::<f32>(&op.x)?, bind.view::<f32>(&op.z)?);
    let (weight, out) = (bind.view::<f32>(&op.weight)?, bind.view::<f32>(&op.out)?);
    let addresses = [x.address(), z.address(), weight.address(), out.address()];
    let wide = width.is_multiple_of(4) && bind.wide(&addresses);
    let rows = xs.min(zs).min(outs);
    let function = bind.function("norms", "gated_norm")?;
    let grid = [bind.blocks(rows.saturating_mul(heads), HEADS)?, 1, 1];
    let control = bind.control(&op.control)?;
    let launch = Launch::new(&function, grid, [128, 1, 1])
        .arg(&control)
        .arg(&x)
        .arg(&z)
        .arg(&weight)
        .arg(&out)
        .arg(bind.int(rows)?)
        .arg(bind.int(heads)?)
        .arg(bind.int(width)?)
        .arg(op.eps)
        .arg(u32::from(wide));
    let packing = bind.function("norms", "gated_norm_pack")?;
    let packing = launch.of(&packing, pack_threads(heads * width));
    let producer = Producer::new(packing, &out, &control, RowSet::All);
    let key = KernelKey { op: "gated_norm", dtype: DType::F32, regime: None, variant: "warp" };
    Ok(bind.kernel(key, vec![launch], Vec::new())?.producing(producer))
}

#[cfg(test)]
mod tests {
    use super::threads;

    #[test]
    fn threads_share_a_row_evenly() {
        let cases = [(1, 32), (128, 32), (129, 64), (1000, 256), (4096, 1024), (5120, 640)];
        for (width, want) in cases {
            assert_eq!(threads(width), want, "{width}");
        }
        assert_eq!((threads(8192), threads(usize::MAX)), (1024, 1024));
    }
}
