//! The decoder as a list of operations.

use super::buffers::StepBuffers;
use super::{LayerWeights, LoadedWeights, Mixer, ModelConfig};
use crate::cache::{KvCache, RecurrentState};
use crate::device::{DeviceFault, Weight};
use crate::error::Result;
use crate::kernel::{
    Attention, AttentionMask, Embed, GatedDelta, GatedNorm, HeadPart, KvAppend, Linear, LinearPart,
    Op, OutputGate, QkNormRope, Regime, RmsNorm, RopeAngles, RowSet, ShortConv, SwiGlu, TopK,
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

/// Builds the operations of one call from weights, buffers and caches.
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
}

impl GraphBuilder<'_> {
    /// All operations of a call in the given regime, in order.
    pub fn build(&self, regime: Regime) -> Result<Vec<TracedOp>> {
        let b = self.buffers;
        let mut ops = Ops(Vec::new());
        ops.push(Embed {
            control: b.control.clone(),
            tokens: b.tokens.clone(),
            table: self.weights.embedding.clone(),
            out: b.x.clone(),
        });
        ops.mark(0, &b.x, false);
        ops.push(RopeAngles {
            control: b.control.clone(),
            positions: b.positions.clone(),
            theta: self.config.attention.theta,
            out: b.angles.clone(),
        });
        let mut kv = self.kv.layers().iter();
        let mut recurrent = self.recurrent.layers().iter();
        let missing = DeviceFault::BadOperands { op: "graph", detail: "a layer has no cache" };
        for (i, layer) in self.weights.layers.iter().enumerate() {
            ops.push(self.norm(RowSet::All, &b.x, &layer.attn_norm, &b.h));
            match &layer.mixer {
                Mixer::Attention { .. } => {
                    let cache = kv.next().ok_or(missing.clone())?;
                    self.attention(&mut ops, regime, layer, cache);
                }
                Mixer::Delta { .. } => {
                    let state = recurrent.next().ok_or(missing.clone())?;
                    self.delta(&mut ops, regime, layer, state)?;
                }
            }
            self.feed_forward(&mut ops, layer);
            ops.mark(i + 1, &b.x, false);
        }
        self.head(&mut ops);
        Ok(ops.0)
    }

    fn norm(&self, rows: RowSet, x: &Tensor, weight: &Tensor, out: &Tensor) -> RmsNorm {
        RmsNorm {
            control: self.buffers.control.clone(),
            rows,
            x: x.clone(),
            weight: weight.clone(),
            eps: self.config.eps,
            out: out.clone(),
        }
    }

    fn linear(&self, x: &Tensor, parts: &[(&Weight, &Tensor)]) -> Linear {
        let part = |&(weight, out): &(&Weight, &Tensor)| LinearPart {
            weight: weight.clone(),
            out: out.clone(),
            accumulate: false,
        };
        Linear {
            control: self.buffers.control.clone(),
            rows: RowSet::All,
            x: x.clone(),
            parts: parts.iter().map(part).collect(),
        }
    }

    /// Projects back into the residual stream.
    fn project(&self, x: &Tensor, weight: &Weight) -> Linear {
        let mut op = self.linear(x, &[(weight, &self.buffers.x)]);
        op.parts.iter_mut().for_each(|p| p.accumulate = true);
        op
    }

    fn attention(
        &self,
        ops: &mut Ops,
        regime: Regime,
        layer: &LayerWeights,
        cache: &crate::kernel::KvPair,
    ) {
        let Mixer::Attention { q, k, v, q_norm, k_norm, out } = &layer.mixer else { return };
        let b = &self.buffers.attention;
        let control = || self.buffers.control.clone();
        let a = &self.config.attention;
        ops.push(self.linear(&self.buffers.h, &[(q, &b.q_rows), (k, &b.k_rows), (v, &b.v_rows)]));
        ops.push(QkNormRope {
            control: control(),
            angles: self.buffers.angles.clone(),
            parts: vec![
                HeadPart { x: b.q.clone(), norm: q_norm.clone() },
                HeadPart { x: b.k.clone(), norm: k_norm.clone() },
            ],
            eps: self.config.eps,
        });
        ops.push(KvAppend {
            control: control(),
            k: b.k.clone(),
            v: b.v.clone(),
            cache: cache.clone(),
        });
        ops.push(Attention {
            control: control(),
            regime,
            mask: AttentionMask::Causal,
            q: b.q.clone(),
            cache: cache.clone(),
            scale: (1.0 / (a.head_dim as f64).sqrt()) as f32,
            out: b.out.clone(),
        });
        if a.gated {
            ops.push(OutputGate { control: control(), q: b.q.clone(), x: b.out.clone() });
        }
        ops.push(self.project(&b.out_rows, out));
    }

    fn delta(
        &self,
        ops: &mut Ops,
        regime: Regime,
        layer: &LayerWeights,
        state: &crate::cache::RecurrentLayer,
    ) -> Result<()> {
        let Mixer::Delta { qkv, z, alpha, beta, conv, a, dt_bias, norm, out } = &layer.mixer else {
            return Ok(());
        };
        let missing = DeviceFault::BadOperands { op: "graph", detail: "no delta buffers" };
        let b = self.buffers.delta.as_ref().ok_or(missing.clone())?;
        let d = self.config.delta.as_ref().ok_or(missing)?;
        let control = || self.buffers.control.clone();
        let parts = [(qkv, &b.qkv), (z, &b.z_rows), (alpha, &b.alpha), (beta, &b.beta)];
        ops.push(self.linear(&self.buffers.h, &parts));
        ops.push(ShortConv {
            control: control(),
            x: b.qkv.clone(),
            weight: conv.clone(),
            state: state.conv.clone(),
            tree: None,
            out: b.conv.clone(),
        });
        ops.push(GatedDelta {
            control: control(),
            regime,
            qkv: b.conv.clone(),
            alpha: b.alpha.clone(),
            beta: b.beta.clone(),
            a: a.clone(),
            dt_bias: dt_bias.clone(),
            state: state.state.clone(),
            tree: None,
            out: b.out.clone(),
            key_heads: d.key_heads,
            head_map: d.head_map,
            eps: 1e-6,
        });
        ops.push(GatedNorm {
            control: control(),
            x: b.out.clone(),
            z: b.z.clone(),
            weight: norm.clone(),
            eps: self.config.eps,
            out: b.out.clone(),
        });
        ops.push(self.project(&b.out_rows, out));
        Ok(())
    }

    fn feed_forward(&self, ops: &mut Ops, layer: &LayerWeights) {
        let b = self.buffers;
        ops.push(self.norm(RowSet::All, &b.x, &layer.ffn_norm, &b.h));
        ops.push(self.linear(&b.h, &[(&layer.gate, &b.gate), (&layer.up, &b.up)]));
        ops.push(SwiGlu {
            control: b.control.clone(),
            gate: b.gate.clone(),
            up: b.up.clone(),
            out: b.gate.clone(),
        });
        ops.push(self.project(&b.gate, &layer.down));
    }

    fn head(&self, ops: &mut Ops) {
        let b = &self.buffers.head;
        let norm = self.norm(RowSet::Logits, &self.buffers.x, &self.weights.output_norm, &b.h);
        ops.push(norm);
        ops.mark(self.config.layers.len() + 1, &b.h, true);
        let mut linear = self.linear(&b.h, &[(&self.weights.head, &b.logits)]);
        linear.rows = RowSet::LogitsCompact;
        ops.push(linear);
        ops.push(TopK {
            control: self.buffers.control.clone(),
            logits: b.logits.clone(),
            k: 1,
            ids: b.top_ids.clone(),
            values: b.top_values.clone(),
            log_sum_exp: None,
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
