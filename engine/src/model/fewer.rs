//! The same buffers for calls of fewer rows.
//!
//! A GPU driver sizes a recorded graph by the rows its tensors hold, so a graph for one
//! row should not be recorded on the buffers of a prefill chunk.

use super::buffers::{
    AttentionBuffers, BestBuffers, DeltaBuffers, HeadBuffers, RecurrentInputs, StepBuffers,
};
use crate::device::DeviceFault;
use crate::tensor::Tensor;

type Cut<T> = Result<T, DeviceFault>;

impl StepBuffers {
    /// Views of the first `rows` rows, `rows` of them at most with logits. Nothing is
    /// reserved.
    ///
    /// # Errors
    /// `BadOperands` when the buffers hold fewer rows.
    pub fn first_rows(&self, rows: usize) -> Cut<Self> {
        let cut = |t: &Tensor| t.first_rows(rows);
        let logit_rows = self.logit_rows.min(rows);
        let with_logits = |t: &Tensor| t.first_rows(logit_rows);
        let head = &self.head;
        Ok(Self {
            control: self.control.clone(),
            tokens: cut(&self.tokens)?,
            positions: cut(&self.positions)?,
            angles: cut(&self.angles)?,
            x: cut(&self.x)?,
            h: cut(&self.h)?,
            attention: self.attention.first_rows(rows)?,
            delta: self.delta.as_ref().map(|d| d.first_rows(rows)).transpose()?,
            gate: cut(&self.gate)?,
            up: cut(&self.up)?,
            head: HeadBuffers {
                h: with_logits(&head.h)?,
                logits: with_logits(&head.logits)?,
                top_ids: with_logits(&head.top_ids)?,
                top_values: with_logits(&head.top_values)?,
                best: BestBuffers {
                    params: head.best.params.clone(),
                    ids: with_logits(&head.best.ids)?,
                    values: with_logits(&head.best.values)?,
                    log_sum_exp: with_logits(&head.best.log_sum_exp)?,
                },
            },
            rows,
            logit_rows,
        })
    }
}

impl AttentionBuffers {
    fn first_rows(&self, rows: usize) -> Cut<Self> {
        let cut = |t: &Tensor| t.first_rows(rows);
        Ok(Self {
            q: cut(&self.q)?,
            q_rows: cut(&self.q_rows)?,
            k: cut(&self.k)?,
            k_rows: cut(&self.k_rows)?,
            v: cut(&self.v)?,
            v_rows: cut(&self.v_rows)?,
            out: cut(&self.out)?,
            out_rows: cut(&self.out_rows)?,
        })
    }
}

impl DeltaBuffers {
    fn first_rows(&self, rows: usize) -> Cut<Self> {
        let cut = |t: &Tensor| t.first_rows(rows);
        let r = &self.recurrent;
        Ok(Self {
            recurrent: RecurrentInputs {
                qkv: cut(&r.qkv)?,
                conv: cut(&r.conv)?,
                alpha: cut(&r.alpha)?,
                beta: cut(&r.beta)?,
            },
            z: cut(&self.z)?,
            z_rows: cut(&self.z_rows)?,
            out: cut(&self.out)?,
            out_rows: cut(&self.out_rows)?,
        })
    }
}
