//! Operations that targets and drafts share, made from the tensors they run on.

use super::AttentionConfig;
use crate::device::Weight;
use crate::kernel::{
    Attention, AttentionMask, Control, Embed, HeadPart, KvAppend, KvPair, Linear, LinearPart,
    QkNormRope, Regime, RmsNorm, RopeAngles, RowSet, SwiGlu,
};
use crate::tensor::Tensor;

/// Makes operations on the rows of one control block.
#[derive(Clone, Copy)]
pub(crate) struct RowOps<'a> {
    pub(crate) control: &'a Control,
    /// Of operations that have two.
    pub(crate) regime: Regime,
    pub(crate) attention: &'a AttentionConfig,
    /// Of all norms.
    pub(crate) eps: f32,
}

impl RowOps<'_> {
    pub(crate) fn embed(&self, tokens: &Tensor, table: &Weight, out: &Tensor) -> Embed {
        let control = self.control.clone();
        Embed { control, tokens: tokens.clone(), table: table.clone(), out: out.clone() }
    }

    pub(crate) fn norm(&self, rows: RowSet, x: &Tensor, weight: &Tensor, out: &Tensor) -> RmsNorm {
        RmsNorm {
            control: self.control.clone(),
            rows,
            x: x.clone(),
            weight: weight.clone(),
            eps: self.eps,
            out: out.clone(),
        }
    }

    pub(crate) fn linear(&self, x: &Tensor, parts: &[(&Weight, &Tensor)]) -> Linear {
        let part = |&(weight, out): &(&Weight, &Tensor)| LinearPart {
            weight: weight.clone(),
            out: out.clone(),
            accumulate: false,
        };
        Linear {
            control: self.control.clone(),
            regime: self.regime,
            rows: RowSet::All,
            x: x.clone(),
            parts: parts.iter().map(part).collect(),
        }
    }

    /// Projects back into the residual stream.
    pub(crate) fn project(&self, x: &Tensor, weight: &Weight, residual: &Tensor) -> Linear {
        let mut op = self.linear(x, &[(weight, residual)]);
        op.parts.iter_mut().for_each(|p| p.accumulate = true);
        op
    }

    pub(crate) fn angles(&self, positions: &Tensor, out: &Tensor) -> RopeAngles {
        RopeAngles {
            control: self.control.clone(),
            positions: positions.clone(),
            theta: self.attention.theta,
            out: out.clone(),
        }
    }

    /// Norms and rotates heads in place; each comes with its norm's weight.
    pub(crate) fn rotate(&self, angles: &Tensor, heads: &[(&Tensor, &Tensor)]) -> QkNormRope {
        let part = |&(x, norm): &(&Tensor, &Tensor)| HeadPart { x: x.clone(), norm: norm.clone() };
        QkNormRope {
            control: self.control.clone(),
            angles: angles.clone(),
            parts: heads.iter().map(part).collect(),
            eps: self.eps,
        }
    }

    pub(crate) fn append(&self, k: &Tensor, v: &Tensor, cache: &KvPair) -> KvAppend {
        let control = self.control.clone();
        KvAppend { control, k: k.clone(), v: v.clone(), cache: cache.clone() }
    }

    pub(crate) fn attend(
        &self,
        mask: AttentionMask,
        q: &Tensor,
        cache: &KvPair,
        out: &Tensor,
    ) -> Attention {
        Attention {
            control: self.control.clone(),
            regime: self.regime,
            mask,
            q: q.clone(),
            cache: cache.clone(),
            scale: (1.0 / (self.attention.head_dim as f64).sqrt()) as f32,
            out: out.clone(),
        }
    }

    /// The gated activation, in place of the gate.
    pub(crate) fn swiglu(&self, gate: &Tensor, up: &Tensor) -> SwiGlu {
        let control = self.control.clone();
        SwiGlu { control, gate: gate.clone(), up: up.clone(), out: gate.clone() }
    }
}
