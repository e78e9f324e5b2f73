//! Building a tree, and following the target's choices through it.

use foretoken::device::DeviceFault;
use foretoken::kernel::{TreeBuild, TreeLimits, TreeWalk};

use super::{capacity, control, cursor, key, room, words};
use crate::launch::{CudaKernel, Launch};
use crate::ops::Bind;

/// [`TreeBuild`]: one warp.
pub(in crate::ops) fn build(bind: &Bind<'_>, op: &TreeBuild) -> Result<CudaKernel, DeviceFault> {
    let [drafted, k] = bind.dims(&op.ids, "ids and scores must be [P, k]")?;
    let scores = bind.dims(&op.scores, "ids and scores must be [P, k]")?;
    bind.ensure(scores == [drafted, k], "ids and scores must be [P, k]")?;
    let mut inputs = vec![&op.cursor.0, &op.limits.0, &op.ids, &op.scores];
    if let Some(tensor) = &op.log_sum_exp {
        let [sums] = bind.dims(tensor, "log_sum_exp must be [P]")?;
        bind.ensure(sums == drafted, "log_sum_exp must be [P]")?;
        inputs.push(tensor);
    }
    let (tree, rows) = (&op.tree, capacity(bind, &op.tokens, &op.tree)?);
    let [positions] = bind.dims(&op.positions, "positions must be [M]")?;
    let outputs = [&op.control.0, &op.tokens, &op.positions];
    let shape = [&tree.parents, &tree.depths, &tree.masks];
    bind.apart(&[outputs, shape].concat(), &inputs)?;
    let log_sum_exp = op.log_sum_exp.as_ref().map(|t| bind.view::<f32>(t)).transpose()?;
    // Ids have 31 bits.
    let vocabulary = u32::try_from(op.vocab).unwrap_or(u32::MAX).min(1 << 31);
    let limits = words(bind, &op.limits.0, TreeLimits::WORDS, "the limits must be [4]")?;
    let function = bind.function("tree", "tree_build")?;
    let launch = Launch::new(&function, [1, 1, 1], [32, 1, 1])
        .publishing()
        .arg(&cursor(bind, &op.cursor)?)
        .arg(&limits)
        .arg(&bind.view::<i32>(&op.ids)?)
        .arg(&bind.view::<f32>(&op.scores)?)
        .arg(log_sum_exp.as_ref())
        .arg(bind.int(drafted)?)
        .arg(bind.int(k)?)
        .arg(vocabulary)
        .arg(&control(bind, &op.control)?)
        .arg(&bind.view::<i32>(&op.tokens)?)
        .arg(&bind.view::<i32>(&op.positions)?)
        .arg(&bind.view::<i32>(&tree.parents)?)
        .arg(&bind.view::<i32>(&tree.depths)?)
        .arg(&bind.view::<i32>(&tree.masks)?)
        .arg(bind.int(rows.min(positions))?);
    bind.kernel(key("tree_build"), vec![launch], Vec::new())
}

/// [`TreeWalk`]: one warp.
pub(in crate::ops) fn walk(bind: &Bind<'_>, op: &TreeWalk) -> Result<CudaKernel, DeviceFault> {
    let tree = &op.tree;
    let [choices, one] = bind.dims(&op.choices, "choices must be [M, 1]")?;
    bind.ensure(one == 1, "choices must be [M, 1]")?;
    let rows = capacity(bind, &op.tokens, tree)?.min(choices);
    let shape = [&tree.parents, &tree.depths, &tree.masks];
    let inputs = [&op.control.0, &op.tokens, &op.choices];
    bind.apart(&[&op.path.0, &op.result], &[shape, inputs].concat())?;
    let rows = rows.min(room(bind, &op.path.0, &op.result)?);
    let function = bind.function("tree", "tree_walk")?;
    let launch = Launch::new(&function, [1, 1, 1], [32, 1, 1])
        .arg(&bind.control(&op.control)?)
        .arg(&bind.view::<i32>(&op.tokens)?)
        .arg(&bind.view::<i32>(&tree.parents)?)
        .arg(&bind.view::<i32>(&tree.depths)?)
        .arg(&bind.view::<i32>(&op.choices)?)
        .arg(&bind.view::<i32>(&op.path.0)?)
        .arg(&bind.view::<i32>(&op.result)?)
        .arg(bind.int(rows)?);
    bind.kernel(key("tree_walk"), vec![launch], Vec::new())
}
