//! Rotary position embedding: the angles, and queries and keys made ready.

use foretoken::device::DeviceFault;
use foretoken::kernel::{HeadPart, KernelKey, QkNormRope, RopeAngles};
use foretoken::tensor::DType;

use super::Bind;
use crate::launch::{CudaKernel, Launch};
use crate::memory::View;

/// Rows of a block of `rope_angles`, as in the source.
const ANGLE_ROWS: usize = 8;

/// Heads of a block of `qk_norm_rope`: one to a warp.
const HEADS: usize = 4;

/// [`RopeAngles`]: angles in F64.
pub(super) fn angles(bind: &Bind<'_>, op: &RopeAngles) -> Result<CudaKernel, DeviceFault> {
    let [positions] = bind.dims(&op.positions, "positions must be [M]")?;
    let [rows, dims] = bind.dims(&op.out, "out must be [M, rotary_dims]")?;
    bind.ensure(dims % 2 == 0, "rotary_dims must be even")?;
    bind.ensure(op.theta.is_finite() && op.theta > 0.0, "theta must be positive")?;
    bind.apart(&[&op.out], &[&op.positions, &op.control.0])?;
    let rows = positions.min(rows);
    let function = bind.function("rope", "rope_angles")?;
    let threads = (dims / 2).next_multiple_of(32).min(128);
    let block = [u32::try_from(threads).unwrap_or(128), 1, 1];
    let launch = Launch::new(&function, [bind.blocks(rows, ANGLE_ROWS)?, 1, 1], block)
        .arg(&bind.control(&op.control)?)
        .arg(&bind.view::<i32>(&op.positions)?)
        .arg(op.theta)
        .arg(&bind.view::<f32>(&op.out)?)
        .arg(bind.int(rows)?)
        .arg(bind.int(dims / 2)?);
    let key = KernelKey { op: "rope_angles", dtype: DType::F32, regime: None, variant: "f64" };
    bind.kernel(key, vec![launch], Vec::new())
}

/// Some heads of every row.
struct Part {
    x: View<f32>,
    norm: View<f32>,
    rows: usize,
    heads: usize,
    stride: usize,
}

impl Part {
    fn new(bind: &Bind<'_>, part: &HeadPart, head_dim: usize) -> Result<Self, DeviceFault> {
        let [rows, heads, stride] = bind.dims(&part.x, "a part must be [M, H, stride]")?;
        let [norm] = bind.dims(&part.norm, "a norm must be [head_dim]")?;
        bind.ensure(norm == head_dim, "the norms differ in head_dim")?;
        bind.ensure(stride >= head_dim, "a row of a part must hold a head")?;
        let (x, norm) = (bind.view(&part.x)?, bind.view(&part.norm)?);
        Ok(Self { x, norm, rows, heads, stride })
    }
}

/// [`QkNormRope`]: one warp to a head, two parts to a launch.
pub(super) fn rotate(bind: &Bind<'_>, op: &QkNormRope) -> Result<CudaKernel, DeviceFault> {
    let [mut rows, rotary] = bind.dims(&op.angles, "angles must be [M, rotary_dims]")?;
    let first = op.parts.first().ok_or(bind.bad("there must be at least one part"))?;
    let [head_dim] = bind.dims(&first.norm, "a norm must be [head_dim]")?;
    let fits = rotary % 2 == 0 && rotary <= head_dim;
    bind.ensure(fits, "rotary_dims must be even and at most head_dim")?;
    let parts = op.parts.iter().map(|part| Part::new(bind, part, head_dim));
    let parts = parts.collect::<Result<Vec<_>, _>>()?;
    rows = parts.iter().fold(rows, |rows, part| rows.min(part.rows));
    let outputs: Vec<_> = op.parts.iter().map(|p| &p.x).collect();
    let norms = op.parts.iter().map(|p| &p.norm);
    let inputs: Vec<_> = norms.chain([&op.angles, &op.control.0]).collect();
    bind.apart(&outputs, &inputs)?;
    let control = bind.control(&op.control)?;
    let angles = bind.view::<f32>(&op.angles)?;
    let function = bind.function("rope", "qk_norm_rope")?;
    let launch = |pair: &[Part]| {
        let (one, other) = (&pair[0], pair.get(1));
        let groups = |part: &Part| part.stride.is_multiple_of(4) && bind.wide(&[part.x.address()]);
        let wide = head_dim.is_multiple_of(4) && pair.iter().all(groups);
        let heads = pair.iter().fold(0usize, |sum, part| sum.saturating_add(part.heads));
        bind.int(heads)?;
        let grid = [bind.blocks(rows.saturating_mul(heads), HEADS)?, 1, 1];
        Ok(Launch::new(&function, grid, [128, 1, 1])
            .arg(&control)
            .arg(&angles)
            .arg(bind.int(rows)?)
            .arg(bind.int(head_dim)?)
            .arg(bind.int(rotary / 2)?)
            .arg(op.eps)
            .arg(&one.x)
            .arg(&one.norm)
            .arg(bind.int(one.heads)?)
            .arg(bind.int(one.stride)?)
            .arg(other.map(|part| &part.x))
            .arg(other.map(|part| &part.norm))
            .arg(bind.int(other.map_or(0, |part| part.heads))?)
            .arg(bind.int(other.map_or(0, |part| part.stride))?)
            .arg(u32::from(wide)))
    };
    let launches = parts.chunks(2).map(launch).collect::<Result<_, DeviceFault>>()?;
    let key = KernelKey { op: "qk_norm_rope", dtype: DType::F32, regime: None, variant: "warp" };
    bind.kernel(key, launches, Vec::new())
}
