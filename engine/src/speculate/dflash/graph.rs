//! A draft as two lists of operations: taking in context, and drafting a block.

use super::buffers::{BlockBuffers, ContextBuffers};
use super::config::DflashConfig;
use super::weights::{DflashLayer, DflashModel};
use crate::device::{DeviceFault, Weight};
use crate::error::Result;
use crate::kernel::{
    Attention, AttentionMask, Control, Cursor, DraftBlock, DraftContext, Embed, FeatureLoad,
    HeadPart, KvAppend, KvPair, Linear, LinearPart, Op, QkNormRope, Regime, RmsNorm, RopeAngles,
    RowSet, SwiGlu, TopK,
};
use crate::speculate::Proposal;
use crate::tensor::Tensor;

/// What both lists are built from.
pub(super) struct DraftGraph<'a> {
    pub(super) model: &'a DflashModel,
    pub(super) cursor: &'a Cursor,
    /// The layers' caches, bottom up.
    pub(super) caches: &'a [KvPair],
}

impl DraftGraph<'_> {
    /// Keys and values of committed tokens, from the features in the ring. All layers
    /// see the same input, which their own first norm is not applied to.
    pub(super) fn context(&self, ring: &Tensor, b: &ContextBuffers) -> Result<Vec<Op>> {
        let model = self.model;
        let ops = Ops { control: &b.control, config: &model.config };
        let mut out: Vec<Op> = vec![
            DraftContext {
                cursor: self.cursor.clone(),
                control: b.control.clone(),
                positions: b.positions.clone(),
            }
            .into(),
            FeatureLoad { control: b.control.clone(), ring: ring.clone(), out: b.features.clone() }
                .into(),
            ops.linear(&b.features, &[(&model.fc, &b.h)]).into(),
            ops.norm(RowSet::All, &b.h, &model.hidden_norm, &b.h).into(),
            ops.angles(&b.positions, &b.angles).into(),
        ];
        for (layer, cache) in self.layers()? {
            out.push(ops.linear(&b.h, &[(&layer.k, &b.k_rows), (&layer.v, &b.v_rows)]).into());
            out.push(ops.rotate(&b.angles, &[(&b.k, &layer.k_norm)]).into());
            out.push(ops.append(&b.k, &b.v, cache).into());
        }
        Ok(out)
    }

    /// One pass over the pending token and the mask tokens after it. Their keys and
    /// values lie past the committed ones, where the next context overwrites them.
    pub(super) fn proposal(
        &self,
        embedding: &Weight,
        head: &Weight,
        width: usize,
        proposal: &Proposal,
        b: &BlockBuffers,
    ) -> Result<Vec<Op>> {
        let model = self.model;
        let ops = Ops { control: &b.control, config: &model.config };
        let mut out: Vec<Op> = vec![
            DraftBlock {
                cursor: self.cursor.clone(),
                mask_token: model.config.mask_token,
                control: b.control.clone(),
                tokens: b.tokens.clone(),
                positions: b.positions.clone(),
            }
            .into(),
            Embed {
                control: b.control.clone(),
                tokens: b.tokens.clone(),
                table: embedding.clone(),
                out: b.x.clone(),
            }
            .into(),
            ops.angles(&b.positions, &b.angles).into(),
        ];
        for ((layer, cache), mask) in self.layers()?.zip(&model.config.layers) {
            out.push(ops.norm(RowSet::All, &b.x, &layer.attn_norm, &b.h).into());
            let parts = [(&layer.q, &b.q_rows), (&layer.k, &b.k_rows), (&layer.v, &b.v_rows)];
            out.push(ops.linear(&b.h, &parts).into());
            let heads = [(&b.q, &layer.q_norm), (&b.k, &layer.k_norm)];
            out.push(ops.rotate(&b.angles, &heads).into());
            out.push(ops.append(&b.k, &b.v, cache).into());
            let mask = AttentionMask::Block { window: mask.window, causal: mask.causal };
            out.push(ops.attend(mask, &b.q, cache, &b.out).into());
            out.push(ops.project(&b.out_rows, &layer.out, &b.x).into());
            out.push(ops.norm(RowSet::All, &b.x, &layer.ffn_norm, &b.h).into());
            out.push(ops.linear(&b.h, &[(&layer.gate, &b.gate), (&layer.up, &b.up)]).into());
            out.push(ops.gate(&b.gate, &b.up).into());
            out.push(ops.project(&b.gate, &layer.down, &b.x).into());
        }
        out.push(ops.norm(RowSet::Logits, &b.x, &model.output_norm, &b.head_h).into());
        let mut logits = ops.linear(&b.head_h, &[(head, &b.logits)]);
        logits.rows = RowSet::LogitsCompact;
        out.push(logits.into());
        out.push(
            TopK {
                control: b.control.clone(),
                logits: b.logits.clone(),
                k: width,
                ids: proposal.ids.clone(),
                values: proposal.scores.clone(),
                log_sum_exp: Some(proposal.log_sum_exp.clone()),
            }
            .into(),
        );
        Ok(out)
    }

    fn layers(&self) -> Result<impl Iterator<Item = (&DflashLayer, &KvPair)>> {
        if self.caches.len() != self.model.layers.len() {
            let detail = "a layer has no cache";
            return Err(DeviceFault::BadOperands { op: "dflash", detail }.into());
        }
        Ok(self.model.layers.iter().zip(self.caches))
    }
}

/// Makes operations under one control block.
struct Ops<'a> {
    control: &'a Control,
    config: &'a DflashConfig,
}

impl Ops<'_> {
    fn norm(&self, rows: RowSet, x: &Tensor, weight: &Tensor, out: &Tensor) -> RmsNorm {
        RmsNorm {
            control: self.control.clone(),
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
            control: self.control.clone(),
            rows: RowSet::All,
            x: x.clone(),
            parts: parts.iter().map(part).collect(),
        }
    }

    /// Projects back into the residual stream.
    fn project(&self, x: &Tensor, weight: &Weight, residual: &Tensor) -> Linear {
        let mut op = self.linear(x, &[(weight, residual)]);
        op.parts.iter_mut().for_each(|p| p.accumulate = true);
        op
    }

    fn angles(&self, positions: &Tensor, out: &Tensor) -> RopeAngles {
        RopeAngles {
            control: self.control.clone(),
            positions: positions.clone(),
            theta: self.config.attention.theta,
            out: out.clone(),
        }
    }

    fn rotate(&self, angles: &Tensor, heads: &[(&Tensor, &Tensor)]) -> QkNormRope {
        let part = |&(x, norm): &(&Tensor, &Tensor)| HeadPart { x: x.clone(), norm: norm.clone() };
        QkNormRope {
            control: self.control.clone(),
            angles: angles.clone(),
            parts: heads.iter().map(part).collect(),
            eps: self.config.eps,
        }
    }

    fn append(&self, k: &Tensor, v: &Tensor, cache: &KvPair) -> KvAppend {
        let control = self.control.clone();
        KvAppend { control, k: k.clone(), v: v.clone(), cache: cache.clone() }
    }

    fn attend(&self, mask: AttentionMask, q: &Tensor, cache: &KvPair, out: &Tensor) -> Attention {
        Attention {
            control: self.control.clone(),
            regime: Regime::Step,
            mask,
            q: q.clone(),
            cache: cache.clone(),
            scale: (1.0 / (self.config.attention.head_dim as f64).sqrt()) as f32,
            out: out.clone(),
        }
    }

    fn gate(&self, gate: &Tensor, up: &Tensor) -> SwiGlu {
        let control = self.control.clone();
        SwiGlu { control, gate: gate.clone(), up: up.clone(), out: gate.clone() }
    }
}
