//! Buffers of a verification pass, and the operations that commit an accepted path.

use super::buffers::{RecurrentInputs, StepBuffers};
use super::carver::Carver;
use super::graph::GraphBuilder;
use super::{LayerKind, Mixer, ModelConfig};
use crate::device::{Device, DeviceFault};
use crate::error::Result;
use crate::kernel::{
    Advance, ConvCommit, Cursor, DeltaCommit, FeatureCommit, KvCommit, Op, Path, Regime, TreeRows,
    TreeWalk,
};
use crate::tensor::{DType, Tensor};

/// Times the operations of a speculative step leave, in the order of `clock`.
pub(super) const STAMPS: usize = 5;

/// Activations of a verification pass of up to `M` rows, all of them with logits.
pub struct VerifyBuffers {
    /// As in any call.
    pub step: StepBuffers,
    /// The tree.
    pub tree: TreeRows,
    /// Inputs of the delta layers' recurrences, kept until the commit.
    pub kept: Vec<RecurrentInputs>,
    /// The accepted path.
    pub path: Path,
    /// `[3 + M]` I32 of the walk. `clock` follows it, so that one copy fetches both.
    pub result: Tensor,
    /// `[5]` I64: before the draft, after it, after verification, before the commit,
    /// after it. The host may choose between the third and the fourth.
    pub clock: Tensor,
}

struct Pieces {
    tree: TreeRows,
    kept: Vec<RecurrentInputs>,
    path: Path,
    result: Tensor,
    clock: Tensor,
}

impl Pieces {
    fn carve(config: &ModelConfig, m: usize, c: &mut Carver) -> Result<Self> {
        let i32 = DType::I32;
        let [result] = c.views(i32, [&[TreeWalk::HEADER + m]])?;
        let [clock] = c.views(DType::I64, [&[STAMPS]])?;
        let [parents] = c.views(i32, [&[m]])?;
        let [depths] = c.views(i32, [&[m]])?;
        let [masks] = c.views(i32, [&[m, 2]])?;
        let [path] = c.views(i32, [&[1 + m]])?;
        let mut kept = Vec::new();
        if let Some(d) = &config.delta {
            for _ in 0..config.count(LayerKind::Delta) {
                kept.push(RecurrentInputs::carve(d, m, c)?);
            }
        }
        let tree = TreeRows { parents, depths, masks };
        Ok(Self { tree, kept, path: Path(path), result, clock })
    }
}

impl VerifyBuffers {
    /// Bytes of the two buffers for trees of up to `rows` rows.
    pub fn bytes(config: &ModelConfig, rows: usize) -> Result<[usize; 2]> {
        let (step, head) = StepBuffers::bytes(config, rows, rows)?;
        let mut carver = Carver::counting();
        Pieces::carve(config, rows, &mut carver)?;
        Ok([step.saturating_add(head), carver.bytes()])
    }

    /// Reserves the buffers.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn reserve(config: &ModelConfig, device: &dyn Device, rows: usize) -> Result<Self> {
        let step = StepBuffers::reserve(config, device, rows, rows)?;
        let mut counter = Carver::counting();
        Pieces::carve(config, rows, &mut counter)?;
        let buffer = device.allocate(counter.bytes(), "verification")?;
        let pieces = Pieces::carve(config, rows, &mut Carver::over(buffer))?;
        let Pieces { tree, kept, path, result, clock } = pieces;
        Ok(Self { step, tree, kept, path, result, clock })
    }
}

impl GraphBuilder<'_> {
    /// The operations that walk the verified tree by the target's own greedy choices.
    ///
    /// # Errors
    /// `BadOperands` when the builder is not one of a verification pass.
    pub fn walk(&self) -> Result<TreeWalk> {
        let verify = self.verifying()?;
        Ok(TreeWalk {
            control: self.buffers.control.clone(),
            tokens: self.buffers.tokens.clone(),
            tree: verify.tree.clone(),
            choices: self.buffers.head.top_ids.clone(),
            path: verify.path.clone(),
            result: verify.result.clone(),
        })
    }

    /// The operations that make the accepted path part of the sequence.
    ///
    /// # Errors
    /// As [`walk`](Self::walk).
    pub fn commit(&self, cursor: &Cursor) -> Result<Vec<Op>> {
        let verify = self.verifying()?;
        let (control, path) = (&self.buffers.control, &verify.path);
        let mut ops: Vec<Op> = Vec::new();
        for cache in self.kv.layers() {
            let (control, path) = (control.clone(), path.clone());
            ops.push(KvCommit { control, path, cache: cache.clone() }.into());
        }
        let delta = self.weights.layers.iter().filter(|l| matches!(l.mixer, Mixer::Delta { .. }));
        for (number, (layer, state)) in delta.zip(self.recurrent.layers()).enumerate() {
            let (conv, delta) = self.recurrence(Regime::Step, layer, number, state)?;
            ops.push(ConvCommit { path: path.clone(), conv }.into());
            ops.push(DeltaCommit { path: path.clone(), delta }.into());
        }
        if let Some(tap) = self.tap {
            let (control, path) = (control.clone(), path.clone());
            ops.push(FeatureCommit { control, path, ring: tap.ring.clone() }.into());
        }
        ops.push(
            Advance {
                control: control.clone(),
                path: path.clone(),
                result: verify.result.clone(),
                cursor: cursor.clone(),
            }
            .into(),
        );
        Ok(ops)
    }

    fn verifying(&self) -> Result<&VerifyBuffers, DeviceFault> {
        let detail = "not a verification pass";
        self.verify.ok_or(DeviceFault::BadOperands { op: "graph", detail })
    }
}
