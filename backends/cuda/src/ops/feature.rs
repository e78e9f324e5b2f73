//! The ring of features that a drafter reads.

use foretoken::device::DeviceFault;
use foretoken::kernel::{FeatureCommit, FeatureLoad, FeatureStore, KernelKey};
use foretoken::tensor::DType;

use super::Bind;
use super::path::{COLUMNS, path, unit};
use crate::launch::{CudaKernel, Launch};

/// Columns that a block copies, as in the source.
const TILE: usize = 1024;

fn key(op: &'static str, variant: &'static str) -> KernelKey {
    KernelKey { op, dtype: DType::F32, regime: None, variant }
}

/// Blocks to a row, and the grid for all rows.
fn tiles(bind: &Bind<'_>, rows: usize, width: usize) -> Result<(i32, [u32; 3]), DeviceFault> {
    let tiles = width.div_ceil(TILE);
    Ok((bind.int(tiles)?, [bind.blocks(rows.saturating_mul(tiles), 1)?, 1, 1]))
}

/// [`FeatureStore`].
pub(super) fn store(bind: &Bind<'_>, op: &FeatureStore) -> Result<CudaKernel, DeviceFault> {
    let [rows, columns] = bind.dims(&op.x, "x must be [M, D]")?;
    let [slots, width] = bind.dims(&op.ring, "ring must be [R, W]")?;
    bind.ensure(slots >= rows, "the ring has fewer slots than x has rows")?;
    let end = op.column.checked_add(columns);
    bind.ensure(end.is_some_and(|end| end <= width), "the columns lie outside the ring")?;
    bind.apart(&[&op.ring], &[&op.x, &op.control.0])?;
    let (x, ring) = (bind.view::<f32>(&op.x)?, bind.view::<f32>(&op.ring)?);
    let groups = [columns, width, op.column].iter().all(|n| n.is_multiple_of(4));
    let wide = groups && bind.wide(&[x.address(), ring.address()]);
    let (tiles, grid) = tiles(bind, rows, columns)?;
    let launch = Launch::new(&bind.function("feature", "feature_store")?, grid, [256, 1, 1])
        .arg(&bind.control(&op.control)?)
        .arg(&x)
        .arg(&ring)
        .arg(bind.int(rows)?)
        .arg(bind.int(columns)?)
        .arg(bind.int(slots)?)
        .arg(bind.int(width)?)
        .arg(bind.int(op.column)?)
        .arg(tiles)
        .arg(u32::from(wide));
    bind.kernel(key("feature_store", "tiles"), vec![launch], Vec::new())
}

/// [`FeatureLoad`].
pub(super) fn load(bind: &Bind<'_>, op: &FeatureLoad) -> Result<CudaKernel, DeviceFault> {
    let [slots, width] = bind.dims(&op.ring, "ring must be [R, W]")?;
    let [rows, out_width] = bind.dims(&op.out, "out must be [M, W]")?;
    bind.ensure(width == out_width, "ring and out differ in width")?;
    bind.apart(&[&op.out], &[&op.ring, &op.control.0])?;
    let (ring, out) = (bind.view::<f32>(&op.ring)?, bind.view::<f32>(&op.out)?);
    let wide = width.is_multiple_of(4) && bind.wide(&[ring.address(), out.address()]);
    let (tiles, grid) = tiles(bind, rows, width)?;
    let launch = Launch::new(&bind.function("feature", "feature_load")?, grid, [256, 1, 1])
        .arg(&bind.control(&op.control)?)
        .arg(&ring)
        .arg(&out)
        .arg(bind.int(rows)?)
        .arg(bind.int(slots)?)
        .arg(bind.int(width)?)
        .arg(tiles)
        .arg(u32::from(wide));
    bind.kernel(key("feature_load", "tiles"), vec![launch], Vec::new())
}

/// [`FeatureCommit`].
pub(super) fn commit(bind: &Bind<'_>, op: &FeatureCommit) -> Result<CudaKernel, DeviceFault> {
    let [slots, width] = bind.dims(&op.ring, "ring must be [R, W]")?;
    let (words, capacity) = path(bind, &op.path)?;
    bind.ensure(slots >= capacity, "the ring has fewer slots than the path has rows")?;
    bind.apart(&[&op.ring], &[&op.path.0, &op.control.0])?;
    let (ring, row_bytes) = (bind.view::<f32>(&op.ring)?, width.saturating_mul(4));
    let unit = unit(&[4, 16], &[row_bytes], &[ring.address()]);
    let name = if unit == 16 { "feature_commit_16" } else { "feature_commit_4" };
    let units = row_bytes / unit;
    let grid = [bind.blocks(units, COLUMNS as usize)?, 1, 1];
    let launch = Launch::new(&bind.function("feature", name)?, grid, [COLUMNS, 1, 1])
        .arg(&bind.control(&op.control)?)
        .arg(&words)
        .arg(&ring)
        .arg(bind.int(capacity)?)
        .arg(bind.int(slots)?)
        .arg(bind.int(units)?);
    bind.kernel(key("feature_commit", "columns"), vec![launch], Vec::new())
}
