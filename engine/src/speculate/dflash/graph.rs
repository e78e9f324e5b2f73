//! A draft as two lists of operations: taking in context, and drafting a block.

use super::buffers::{BlockBuffers, ContextBuffers};
use super::weights::{DflashLayer, DflashModel};
use crate::device::{DeviceFault, Weight};
use crate::error::Result;
use crate::kernel::{
    AttentionMask, Control, Cursor, DraftBlock, DraftContext, FeatureLoad, KvPair, Op, Regime,
    RowSet, TopK,
};
use crate::model::RowOps;
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
        let ops = self.ops(&b.control);
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
        let ops = self.ops(&b.control);
        let mut out: Vec<Op> = vec![
            DraftBlock {
                cursor: self.cursor.clone(),
                mask_token: model.config.mask_token,
                control: b.control.clone(),
                tokens: b.tokens.clone(),
                positions: b.positions.clone(),
            }
            .into(),
            ops.embed(&b.tokens, embedding, &b.x).into(),
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
            out.push(ops.swiglu(&b.gate, &b.up).into());
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

    fn ops<'b>(&'b self, control: &'b Control) -> RowOps<'b> {
        let config = &self.model.config;
        RowOps { control, regime: Regime::Step, attention: &config.attention, eps: config.eps }
    }

    fn layers(&self) -> Result<impl Iterator<Item = (&DflashLayer, &KvPair)>> {
        if self.caches.len() != self.model.layers.len() {
            let detail = "a layer has no cache";
            return Err(DeviceFault::BadOperands { op: "dflash", detail }.into());
        }
        Ok(self.model.layers.iter().zip(self.caches))
    }
}
