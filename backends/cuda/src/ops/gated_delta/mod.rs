//! The gated delta rule, over rows in order or over a tree, and its commit.
//!
//! Prompts go by chunks of 64 rows (`chunk`) where heads have a size for it; all else row by
//! row.

mod chunk;

use foretoken::device::{Activations, DeviceFault};
use foretoken::kernel::{DeltaCommit, GatedDelta, HeadMap, KernelKey, Regime};
use foretoken::tensor::DType;

use super::Bind;
use super::path::path;
use crate::launch::{CudaKernel, Launch};
use crate::memory::View;

/// Threads of a block: `kThreads`.
const THREADS: u32 = 96;

/// Values of a head that a block works on: `kColumns`.
const COLUMNS: usize = 16;

/// Most keys of a head: 32 in each of 8 lanes.
const MAX_KEYS: usize = 256;

/// Operands that all kernels share, outputs apart.
struct Rule {
    control: View<i32>,
    qkv: View<f32>,
    alpha: View<f32>,
    beta: View<f32>,
    a: View<f32>,
    dt_bias: View<f32>,
    state: View<f32>,
    /// Rows that the inputs hold.
    rows: usize,
    key_heads: usize,
    value_heads: usize,
    dk: usize,
    dv: usize,
    head_map: HeadMap,
    eps: f32,
}

impl Rule {
    fn new(bind: &Bind<'_>, op: &GatedDelta) -> Result<Self, DeviceFault> {
        let [value_heads, dv, dk] = bind.dims(&op.state, "state must be [Hv, dv, dk]")?;
        let [rows, width] = bind.dims(&op.qkv, "qkv must be [M, 2 Hk dk + Hv dv]")?;
        let [alphas, alpha_heads] = bind.dims(&op.alpha, "alpha must be [M, Hv]")?;
        let [betas, beta_heads] = bind.dims(&op.beta, "beta must be [M, Hv]")?;
        let [a] = bind.dims(&op.a, "a must be [Hv]")?;
        let [dt] = bind.dims(&op.dt_bias, "dt_bias must be [Hv]")?;
        let key_heads = op.key_heads;
        let heads = [alpha_heads, beta_heads, a, dt];
        bind.ensure(heads == [value_heads; 4], "the operands differ in value heads")?;
        let grouped = key_heads > 0 && value_heads.is_multiple_of(key_heads);
        bind.ensure(grouped, "Hv must be a multiple of Hk")?;
        bind.ensure(dk <= MAX_KEYS, "a head of more than 256 keys")?;
        // In bounds: the products are part of the sizes of existing tensors, or they do
        // not match.
        let wanted = key_heads.checked_mul(2 * dk).and_then(|n| n.checked_add(value_heads * dv));
        bind.ensure(wanted == Some(width), "qkv must be [M, 2 Hk dk + Hv dv]")?;
        bind.apart(
            &[&op.state],
            &[&op.qkv, &op.alpha, &op.beta, &op.a, &op.dt_bias, &op.control.0],
        )?;
        Ok(Self {
            control: bind.control(&op.control)?,
            qkv: bind.view(&op.qkv)?,
            alpha: bind.view(&op.alpha)?,
            beta: bind.view(&op.beta)?,
            a: bind.view(&op.a)?,
            dt_bias: bind.view(&op.dt_bias)?,
            state: bind.view(&op.state)?,
            rows: rows.min(alphas).min(betas),
            key_heads,
            value_heads,
            dk,
            dv,
            head_map: op.head_map,
            eps: op.eps,
        })
    }

    /// The kernel for this many keys, and the one for trees.
    fn names(&self) -> [&'static str; 2] {
        match self.dk {
            ..=32 => ["gated_delta_4", "gated_delta_tree_4"],
            33..=64 => ["gated_delta_8", "gated_delta_tree_8"],
            65..=128 => ["gated_delta_16", "gated_delta_tree_16"],
            _ => ["gated_delta_32", "gated_delta_tree_32"],
        }
    }

    /// The launch of a kernel with the arguments before the operands.
    fn start(&self, bind: &Bind<'_>, name: &'static str) -> Result<Launch, DeviceFault> {
        let function = bind.function("gated_delta", name)?;
        let heads = bind.blocks(self.value_heads, 1)?;
        let grid = [bind.blocks(self.dv, COLUMNS)?, heads, 1];
        let launch = Launch::new(&function, grid, [THREADS, 1, 1]);
        Ok(launch.with_state(&self.state).arg(&self.control))
    }

    fn operands(&self, launch: Launch, out: Option<&View<f32>>) -> Launch {
        launch
            .arg(&self.qkv)
            .arg(&self.alpha)
            .arg(&self.beta)
            .arg(&self.a)
            .arg(&self.dt_bias)
            .arg(&self.state)
            .arg(out)
    }

    fn sizes(&self, bind: &Bind<'_>, launch: Launch, rows: usize) -> Result<Launch, DeviceFault> {
        let whole = self.dk.is_multiple_of(4);
        let wide = i32::from(whole && bind.wide(&[self.state.address()]));
        Ok(launch
            .arg(bind.int(rows)?)
            .arg(bind.int(self.key_heads)?)
            .arg(bind.int(self.dk)?)
            .arg(bind.int(self.dv)?)
            .arg(i32::from(self.head_map == HeadMap::Tiled))
            .arg(wide)
            .arg(self.eps))
    }
}

pub(super) fn prepare(bind: &Bind<'_>, op: &GatedDelta) -> Result<CudaKernel, DeviceFault> {
    let [outs, heads, dv] = bind.dims(&op.out, "out must be [M, Hv, dv]")?;
    let rule = Rule::new(bind, op)?;
    bind.ensure(heads == rule.value_heads, "the operands differ in value heads")?;
    bind.ensure(dv == rule.dv, "state and out differ in dv")?;
    let inputs = [&op.qkv, &op.alpha, &op.beta, &op.a, &op.dt_bias, &op.control.0];
    bind.apart(&[&op.out, &op.state], &inputs)?;
    let rows = rule.rows.min(outs);
    let out = bind.view::<f32>(&op.out)?;
    let fast = op.regime == Regime::Prefill && op.activations == Activations::Fast;
    if fast && op.tree.is_none() && chunk::is_for(bind, &rule) {
        return chunk::prepare(bind, &rule, &out, rows);
    }
    let [plain, tree] = rule.names();
    let (launch, variant) = match &op.tree {
        Some(operand) => {
            bind.ensure(op.regime == Regime::Step, "a tree is for the step regime")?;
            bind.apart(&[&op.out], &[&operand.parents, &operand.depths, &operand.masks])?;
            let views = bind.tree(operand, rows)?;
            let launch = rule.start(bind, tree)?.arg(&views.parents).arg(&views.depths);
            (rule.operands(launch, Some(&out)), "registers-tree")
        }
        None => {
            let launch = rule.start(bind, plain)?.arg(None::<&View<i32>>);
            (rule.operands(launch, Some(&out)).arg(0), "registers")
        }
    };
    let launch = rule.sizes(bind, launch, rows)?;
    let (dtype, regime) = (DType::F32, Some(op.regime));
    let key = KernelKey { op: "gated_delta", dtype, regime, variant };
    bind.kernel(key, vec![launch], Vec::new())
}

/// The same kernel as for rows in order, on the rows of the path and without outputs.
pub(super) fn commit(bind: &Bind<'_>, op: &DeltaCommit) -> Result<CudaKernel, DeviceFault> {
    let rule = Rule::new(bind, &op.delta)?;
    bind.apart(&[&op.delta.state], &[&op.path.0])?;
    let (path, capacity) = path(bind, &op.path)?;
    let [plain, _] = rule.names();
    let launch = rule.operands(rule.start(bind, plain)?.arg(&path), None);
    let launch = rule.sizes(bind, launch.arg(bind.int(capacity)?), rule.rows)?;
    let (dtype, regime) = (DType::F32, None);
    let key = KernelKey { op: "delta_commit", dtype, regime, variant: "registers" };
    bind.kernel(key, vec![launch], Vec::new())
}
