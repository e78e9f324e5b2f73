//! The decoder as a list of operations.

use super::buffers::StepBuffers;
use super::ops::RowOps;
use super::verify::VerifyBuffers;
use super::{LayerWeights, LoadedWeights, Mixer, ModelConfig};
use crate::cache::{KvCache, RecurrentLayer, RecurrentState};
use crate::device::{DeviceFault, Weight};
use crate::error::Result;
use crate::kernel::{
    AttentionMask, FeatureStore, GatedDelta, GatedNorm, KvPair, Linear, Op, OutputGate, Regime,
    RowSet, Sample, ShortConv, TopK,
};
use crate::tensor::Tensor;

/// An operation, and what a trace may look at after it.
pub struct TracedOp {
    /// The operation.
    pub op: Op,
    /// A hidden state that is final once the operation has run.
    pub hidden: Option<Hidden>,
}

/// A hidden state: number 0 after the embedding, `i + 1` after layer `i`, and one
/// more after the final norm.
pub struct Hidden {
    /// Which one.
    pub index: usize,
    /// `[M, D]`, or `[L, D]` after the final norm.
    pub tensor: Tensor,
    /// The tensor has only the rows with logits.
    pub compact: bool,
}

/// Layers whose output a drafter reads, and where it goes.
#[derive(Clone, Copy)]
pub struct FeatureTap<'a> {
    /// Layers, in the order of their columns.
    pub layers: &'a [usize],
    /// `[R, layers * D]`.
    pub ring: &'a Tensor,
}

/// Builds the operations of one call from weights, buffers and caches.
#[derive(Clone, Copy)]
pub struct GraphBuilder<'a> {
    /// Settings.
    pub config: &'a ModelConfig,
    /// Weights.
    pub weights: &'a LoadedWeights,
    /// Activations.
    pub buffers: &'a StepBuffers,
    /// Attention layers' caches.
    pub kv: &'a KvCache,
    /// Delta layers' states.
    pub recurrent: &'a RecurrentState,
    /// Features to keep.
    pub tap: Option<FeatureTap<'a>>,
    /// The rows are nodes of a tree: state is read, and what a commit needs is kept.
    pub verify: Option<&'a VerifyBuffers>,
    /// The token after each row is sampled, not the best.
    pub sampled: bool,
}

impl GraphBuilder<'_> {
    /// All operations of a call in the given regime, in order.
    pub fn build(&self, regime: Regime) -> Result<Vec<TracedOp>> {
        let b = self.buffers;
        let mut ops = Ops(Vec::new());
        ops.push(self.rows(regime).embed(&b.tokens, &self.weights.embedding, &b.x));
        ops.mark(0, &b.x, false);
        ops.push(self.rows(regime).angles(&b.positions, &b.angles));
        let mut kv = self.kv.layers().iter();
        let mut recurrent = self.recurrent.layers().iter().enumerate();
        let missing = DeviceFault::BadOperands { op: "graph", detail: "a layer has no cache" };
        for (i, layer) in self.weights.layers.iter().enumerate() {
            ops.push(self.rows(regime).norm(RowSet::All, &b.x, &layer.attn_norm, &b.h));
            match &layer.mixer {
                Mixer::Attention { .. } => {
                    let cache = kv.next().ok_or(missing.clone())?;
                    self.attention(&mut ops, regime, layer, cache);
                }
                Mixer::Delta { .. } => {
                    let (number, state) = recurrent.next().ok_or(missing.clone())?;
                    self.delta(&mut ops, regime, layer, number, state)?;
                }
            }
            self.feed_forward(&mut ops, regime, layer);
            ops.mark(i + 1, &b.x, false);
            self.keep_features(&mut ops, i);
        }
        self.head(&mut ops);
        Ok(ops.0)
    }

    fn rows(&self, regime: Regime) -> RowOps<'_> {
        let Self { config, buffers, .. } = self;
        RowOps { control: &buffers.control, regime, attention: &config.attention, eps: config.eps }
    }

    /// Projects back into the residual stream.
    fn project(&self, regime: Regime, x: &Tensor, weight: &Weight) -> Linear {
        self.rows(regime).project(x, weight, &self.buffers.x)
    }

    fn attention(&self, ops: &mut Ops, regime: Regime, layer: &LayerWeights, cache: &KvPair) {
        let Mixer::Attention { q, k, v, q_norm, k_norm, out } = &layer.mixer else { return };
        let (b, rows) = (&self.buffers.attention, self.rows(regime));
        let parts = [(q, &b.q_rows), (k, &b.k_rows), (v, &b.v_rows)];
        ops.push(rows.linear(&self.buffers.h, &parts));
        ops.push(rows.rotate(&self.buffers.angles, &[(&b.q, q_norm), (&b.k, k_norm)]));
        ops.push(rows.append(&b.k, &b.v, cache));
        let mask = match self.verify {
            Some(verify) => AttentionMask::Tree(verify.tree.clone()),
            None => AttentionMask::Causal,
        };
        ops.push(rows.attend(mask, &b.q, cache, &b.out));
        if self.config.attention.gated {
            let control = self.buffers.control.clone();
            ops.push(OutputGate { control, q: b.q.clone(), x: b.out.clone() });
        }
        ops.push(self.project(regime, &b.out_rows, out));
    }

    /// The convolution and the delta rule of delta layer `number`, which together make
    /// up the recurrent part of its mixer.
    pub(super) fn recurrence(
        &self,
        regime: Regime,
        layer: &LayerWeights,
        number: usize,
        state: &RecurrentLayer,
    ) -> Result<(ShortConv, GatedDelta)> {
        let missing = DeviceFault::BadOperands { op: "graph", detail: "no delta buffers" };
        let Mixer::Delta { qkv, conv, a, dt_bias, .. } = &layer.mixer else {
            return Err(missing.into());
        };
        let b = self.buffers.delta.as_ref().ok_or(missing.clone())?;
        let d = self.config.delta.as_ref().ok_or(missing.clone())?;
        let kept = match self.verify {
            Some(verify) => verify.kept.get(number).ok_or(missing)?,
            None => &b.recurrent,
        };
        let tree = self.verify.map(|v| v.tree.clone());
        let control = || self.buffers.control.clone();
        let short_conv = ShortConv {
            control: control(),
            x: kept.qkv.clone(),
            weight: conv.clone(),
            state: state.conv.clone(),
            tree: tree.clone(),
            out: kept.conv.clone(),
        };
        let delta = GatedDelta {
            control: control(),
            regime,
            activations: qkv.spec.activations,
            qkv: kept.conv.clone(),
            alpha: kept.alpha.clone(),
            beta: kept.beta.clone(),
            a: a.clone(),
            dt_bias: dt_bias.clone(),
            state: state.state.clone(),
            tree,
            out: b.out.clone(),
            key_heads: d.key_heads,
            head_map: d.head_map,
            eps: 1e-6,
        };
        Ok((short_conv, delta))
    }

    fn delta(
        &self,
        ops: &mut Ops,
        regime: Regime,
        layer: &LayerWeights,
        number: usize,
        state: &RecurrentLayer,
    ) -> Result<()> {
        let missing = DeviceFault::BadOperands { op: "graph", detail: "no delta buffers" };
        let Mixer::Delta { qkv, z, alpha, beta, norm, out, .. } = &layer.mixer else {
            return Ok(());
        };
        let b = self.buffers.delta.as_ref().ok_or(missing)?;
        let (short_conv, delta) = self.recurrence(regime, layer, number, state)?;
        let parts =
            [(qkv, &short_conv.x), (z, &b.z_rows), (alpha, &delta.alpha), (beta, &delta.beta)];
        ops.push(self.rows(regime).linear(&self.buffers.h, &parts));
        ops.push(short_conv);
        ops.push(delta);
        ops.push(GatedNorm {
            control: self.buffers.control.clone(),
            x: b.out.clone(),
            z: b.z.clone(),
            weight: norm.clone(),
            eps: self.config.eps,
            out: b.out.clone(),
        });
        ops.push(self.project(regime, &b.out_rows, out));
        Ok(())
    }

    fn keep_features(&self, ops: &mut Ops, layer: usize) {
        let Some(tap) = self.tap else { return };
        for (i, _) in tap.layers.iter().enumerate().filter(|&(_, &l)| l == layer) {
            ops.push(FeatureStore {
                control: self.buffers.control.clone(),
                x: self.buffers.x.clone(),
                ring: tap.ring.clone(),
                column: i * self.config.hidden,
            });
        }
    }

    fn feed_forward(&self, ops: &mut Ops, regime: Regime, layer: &LayerWeights) {
        let b = self.buffers;
        ops.push(self.rows(regime).norm(RowSet::All, &b.x, &layer.ffn_norm, &b.h));
        ops.push(self.rows(regime).linear(&b.h, &[(&layer.gate, &b.gate), (&layer.up, &b.up)]));
        ops.push(self.rows(regime).swiglu(&b.gate, &b.up));
        ops.push(self.project(regime, &b.gate, &layer.down));
    }

    fn head(&self, ops: &mut Ops) {
        let b = &self.buffers.head;
        // A prompt's last rows are as few as a step's: its head reads weights as a step's does.
        let few = b.h.shape().dims().first().is_none_or(|&rows| rows <= 64);
        let rows = self.rows(if few { Regime::Step } else { Regime::Prefill });
        let norm = rows.norm(RowSet::Logits, &self.buffers.x, &self.weights.output_norm, &b.h);
        ops.push(norm);
        ops.mark(self.config.layers.len() + 1, &b.h, true);
        let mut linear = rows.linear(&b.h, &[(&self.weights.head, &b.logits)]);
        linear.rows = RowSet::LogitsCompact;
        ops.push(linear);
        if self.sampled {
            return self.sample(ops);
        }
        ops.push(TopK {
            control: self.buffers.control.clone(),
            logits: b.logits.clone(),
            k: 1,
            ids: b.top_ids.clone(),
            values: b.top_values.clone(),
            log_sum_exp: None,
        });
    }

    /// Leaves sampled tokens where the best ones are left otherwise.
    fn sample(&self, ops: &mut Ops) {
        let (control, head) = (&self.buffers.control, &self.buffers.head);
        let best = &head.best;
        ops.push(TopK {
            control: control.clone(),
            logits: head.logits.clone(),
            k: best.ids.shape().row_len(),
            ids: best.ids.clone(),
            values: best.values.clone(),
            log_sum_exp: Some(best.log_sum_exp.clone()),
        });
        ops.push(Sample {
            control: control.clone(),
            params: best.params.clone(),
            positions: self.buffers.positions.clone(),
            ids: best.ids.clone(),
            values: best.values.clone(),
            log_sum_exp: best.log_sum_exp.clone(),
            vocab: self.config.vocab,
            choices: head.top_ids.clone(),
        });
    }
}

struct Ops(Vec<TracedOp>);

impl Ops {
    fn push(&mut self, op: impl Into<Op>) {
        self.0.push(TracedOp { op: op.into(), hidden: None });
    }

    fn mark(&mut self, index: usize, tensor: &Tensor, compact: bool) {
        if let Some(last) = self.0.last_mut() {
            last.hidden = Some(Hidden { index, tensor: tensor.clone(), compact });
        }
    }
}
