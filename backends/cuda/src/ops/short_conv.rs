//! Short causal convolution, over rows in order or over a tree, and its commit.

use foretoken::device::DeviceFault;
use foretoken::kernel::{ConvCommit, KernelKey, ShortConv};
use foretoken::tensor::DType;

use super::Bind;
use super::path::path;
use crate::launch::{CudaKernel, Launch};

/// Threads of a block, one to a channel.
const THREADS: usize = 128;

/// Rows of a block: `kStretch`, and of a tree `kTreeStretch`.
const STRETCH: usize = 8;
const TREE_STRETCH: usize = 2;

/// Most taps a filter may have.
const MAX_WIDTH: usize = 8;

pub(super) fn prepare(bind: &Bind<'_>, op: &ShortConv) -> Result<CudaKernel, DeviceFault> {
    let [xs, channels] = bind.dims(&op.x, "x must be [M, C]")?;
    let [outs, out_channels] = bind.dims(&op.out, "out must be [M, C]")?;
    let [filters, width] = bind.dims(&op.weight, "weight must be [C, width]")?;
    let [past, kept] = bind.dims(&op.state, "state must be [width - 1, C]")?;
    let same = channels == out_channels && channels == filters && channels == kept;
    bind.ensure(same, "x, weight, state and out differ in channels")?;
    bind.ensure(past + 1 == width, "state must be [width - 1, C]")?;
    bind.ensure((2..=MAX_WIDTH).contains(&width), "a filter must have 2 to 8 taps")?;
    bind.apart(&[&op.out, &op.state], &[&op.x, &op.weight, &op.control.0])?;
    let rows = xs.min(outs);
    let tree = op.tree.as_ref().map(|operand| {
        bind.apart(&[&op.out], &[&operand.parents, &operand.depths, &operand.masks])?;
        bind.tree(operand, rows)
    });
    let tree = tree.transpose()?;
    let (name, variant, stretch) = match &tree {
        Some(_) => ("short_conv_tree", "tree", TREE_STRETCH),
        None => ("short_conv", "rows", STRETCH),
    };
    let function = bind.function("short_conv", name)?;
    let grid = [bind.blocks(channels, THREADS)?, bind.blocks(rows, stretch)?, 1];
    let mut launch = Launch::new(&function, grid, [THREADS as u32, 1, 1]);
    launch = launch.arg(&bind.control(&op.control)?);
    if let Some(tree) = &tree {
        launch = launch.arg(&tree.parents).arg(&tree.depths);
    }
    let launch = launch
        .arg(&bind.view::<f32>(&op.x)?)
        .arg(&bind.view::<f32>(&op.weight)?)
        .arg(&bind.view::<f32>(&op.state)?)
        .arg(&bind.view::<f32>(&op.out)?)
        .arg(bind.int(rows)?)
        .arg(bind.int(channels)?)
        .arg(bind.int(width)?);
    let key = KernelKey { op: "short_conv", dtype: DType::F32, regime: None, variant };
    bind.kernel(key, vec![launch], Vec::new())
}

pub(super) fn commit(bind: &Bind<'_>, op: &ConvCommit) -> Result<CudaKernel, DeviceFault> {
    let conv = &op.conv;
    let [rows, channels] = bind.dims(&conv.x, "x must be [M, C]")?;
    let [past, kept] = bind.dims(&conv.state, "state must be [width - 1, C]")?;
    bind.ensure(channels == kept, "x and state differ in channels")?;
    bind.apart(&[&conv.state], &[&conv.x, &conv.control.0, &op.path.0])?;
    let (path, capacity) = path(bind, &op.path)?;
    let function = bind.function("short_conv", "conv_commit")?;
    let grid = [bind.blocks(channels, THREADS)?, 1, 1];
    let launch = Launch::new(&function, grid, [THREADS as u32, 1, 1])
        .arg(&bind.control(&conv.control)?)
        .arg(&path)
        .arg(&bind.view::<f32>(&conv.x)?)
        .arg(&bind.view::<f32>(&conv.state)?)
        .arg(bind.int(capacity)?)
        .arg(bind.int(rows)?)
        .arg(bind.int(channels)?)
        .arg(bind.int(past)?);
    let (dtype, regime) = (DType::F32, None);
    let key = KernelKey { op: "conv_commit", dtype, regime, variant: "channels" };
    bind.kernel(key, vec![launch], Vec::new())
}
