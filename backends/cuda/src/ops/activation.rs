//! Elementwise gates: of the feed-forward block, and on an attention layer's output.

use foretoken::device::DeviceFault;
use foretoken::kernel::{KernelKey, OutputGate, RowSet, SwiGlu};
use foretoken::tensor::DType;

use super::{Bind, pack_threads};
use crate::launch::{CudaKernel, Launch};
use crate::launch_fused::Producer;

/// Elements of a row that a block takes, as in the source.
const TILE: usize = 1024;

fn key(op: &'static str) -> KernelKey {
    KernelKey { op, dtype: DType::F32, regime: None, variant: "tiles" }
}

/// Blocks to a row, and the grid for all rows.
fn tiles(bind: &Bind<'_>, rows: usize, width: usize) -> Result<(i32, [u32; 3]), DeviceFault> {
    let tiles = width.div_ceil(TILE);
    Ok((bind.int(tiles)?, [bind.blocks(rows.saturating_mul(tiles), 1)?, 1, 1]))
}

/// `out = silu(gate) * up`.
pub(super) fn swiglu(bind: &Bind<'_>, op: &SwiGlu) -> Result<CudaKernel, DeviceFault> {
    let [gates, width] = bind.dims(&op.gate, "gate must be [M, F]")?;
    let [ups, up_width] = bind.dims(&op.up, "up must be [M, F]")?;
    let [outs, out_width] = bind.dims(&op.out, "out must be [M, F]")?;
    bind.ensure(width == up_width && width == out_width, "gate, up and out differ in width")?;
    bind.apart(&[&op.out], &[&op.control.0])?;
    bind.same(&op.out, &op.gate)?;
    bind.same(&op.out, &op.up)?;
    let (gate, up) = (bind.view::<f32>(&op.gate)?, bind.view::<f32>(&op.up)?);
    let out = bind.view::<f32>(&op.out)?;
    let wide = width.is_multiple_of(4) && bind.wide(&[gate.address(), up.address(), out.address()]);
    let rows = gates.min(ups).min(outs);
    let (tiles, grid) = tiles(bind, rows, width)?;
    let function = bind.function("activation", "swiglu")?;
    let control = bind.control(&op.control)?;
    let launch = Launch::new(&function, grid, [256, 1, 1])
        .arg(&control)
        .arg(&gate)
        .arg(&up)
        .arg(&out)
        .arg(bind.int(rows)?)
        .arg(bind.int(width)?);
    let packing = bind.function("activation", "swiglu_pack")?;
    // `kSpread` of pack.cuh: blocks of a cluster, where there are clusters.
    let spread = if bind.target().number >= 90 { 4 } else { 1 };
    let threads = pack_threads(width.div_ceil(spread as usize));
    let packing = launch.of(&packing, threads).arg(u32::from(wide));
    let producer = Producer::new(packing, &out, &control, RowSet::All);
    let producer = Producer { spread, ..producer };
    let launch = launch.arg(tiles).arg(u32::from(wide));
    Ok(bind.kernel(key("swiglu"), vec![launch], Vec::new())?.producing(producer))
}

/// `x *= sigmoid(gate)`.
pub(super) fn output_gate(bind: &Bind<'_>, op: &OutputGate) -> Result<CudaKernel, DeviceFault> {
    let [q_rows, q_heads, stride] = bind.dims(&op.q, "q must be [M, Hq, 2 * head_dim]")?;
    let [rows, heads, head_dim] = bind.dims(&op.x, "x must be [M, Hq, head_dim]")?;
    bind.ensure(q_heads == heads, "q and x must have the same heads")?;
    bind.ensure(stride / 2 == head_dim && stride % 2 == 0, "a row of q must be two of x")?;
    bind.apart(&[&op.x], &[&op.q, &op.control.0])?;
    let (q, x) = (bind.view::<f32>(&op.q)?, bind.view::<f32>(&op.x)?);
    let wide = head_dim.is_multiple_of(4) && bind.wide(&[q.address(), x.address()]);
    let rows = q_rows.min(rows);
    // Twice the width has to fit in an int of the kernel.
    bind.int(heads.saturating_mul(stride))?;
    let (tiles, grid) = tiles(bind, rows, heads * head_dim)?;
    let function = bind.function("activation", "output_gate")?;
    let control = bind.control(&op.control)?;
    let launch = Launch::new(&function, grid, [256, 1, 1])
        .arg(&control)
        .arg(&q)
        .arg(&x)
        .arg(bind.int(rows)?)
        .arg(bind.int(heads)?)
        .arg(bind.int(head_dim)?);
    let packing = bind.function("activation", "output_gate_pack")?;
    let packing = launch.of(&packing, pack_threads(heads * head_dim)).arg(u32::from(wide));
    let producer = Producer::new(packing, &x, &control, RowSet::All);
    let launch = launch.arg(tiles).arg(u32::from(wide));
    Ok(bind.kernel(key("output_gate"), vec![launch], Vec::new())?.producing(producer))
}
