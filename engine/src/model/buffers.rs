//! Activations of a call, carved from one reserved buffer.

use super::carver::Carver;
use super::{DeltaConfig, ModelConfig};
use crate::device::Device;
use crate::error::Result;
use crate::kernel::{Control, SampleParams};
use crate::sample::Draw;
use crate::tensor::{DType, Tensor};

/// Attention's activations. The `_rows` views are the same memory as two
/// dimensions.
pub struct AttentionBuffers {
    /// `[M, Hq, q_stride]`.
    pub q: Tensor,
    /// `[M, Hq * q_stride]`.
    pub q_rows: Tensor,
    /// `[M, Hkv, head_dim]`.
    pub k: Tensor,
    /// `[M, Hkv * head_dim]`.
    pub k_rows: Tensor,
    /// `[M, Hkv, head_dim]`.
    pub v: Tensor,
    /// `[M, Hkv * head_dim]`.
    pub v_rows: Tensor,
    /// `[M, Hq, head_dim]`.
    pub out: Tensor,
    /// `[M, Hq * head_dim]`.
    pub out_rows: Tensor,
}

/// What goes into the recurrent part of a delta layer: enough to run accepted rows again.
pub struct RecurrentInputs {
    /// `[M, channels]` before the convolution.
    pub qkv: Tensor,
    /// `[M, channels]` after it.
    pub conv: Tensor,
    /// `[M, Hv]`.
    pub alpha: Tensor,
    /// `[M, Hv]`.
    pub beta: Tensor,
}

/// The delta rule's activations.
pub struct DeltaBuffers {
    /// Its inputs.
    pub recurrent: RecurrentInputs,
    /// `[M, Hv, dv]`.
    pub z: Tensor,
    /// `[M, Hv * dv]`.
    pub z_rows: Tensor,
    /// `[M, Hv, dv]`.
    pub out: Tensor,
    /// `[M, Hv * dv]`.
    pub out_rows: Tensor,
}

/// What the head leaves.
pub struct HeadBuffers {
    /// `[L, D]`.
    pub h: Tensor,
    /// `[L, V]`.
    pub logits: Tensor,
    /// `[L, 1]` I32: the best token, or the one that was sampled.
    pub top_ids: Tensor,
    /// `[L, 1]`.
    pub top_values: Tensor,
    /// What is sampled from.
    pub best: BestBuffers,
}

/// The candidates of a sampled row, at most [`Draw::CANDIDATES`].
pub struct BestBuffers {
    /// How to sample.
    pub params: SampleParams,
    /// `[L, K]` I32.
    pub ids: Tensor,
    /// `[L, K]`.
    pub values: Tensor,
    /// `[L]`.
    pub log_sum_exp: Tensor,
}

impl BestBuffers {
    fn carve(vocab: usize, l: usize, c: &mut Carver) -> Result<Self> {
        let k = vocab.min(Draw::CANDIDATES);
        let [params] = c.views(DType::I32, [&[SampleParams::WORDS]])?;
        let [ids] = c.views(DType::I32, [&[l, k]])?;
        let [values] = c.views(DType::F32, [&[l, k]])?;
        let [log_sum_exp] = c.views(DType::F32, [&[l]])?;
        Ok(Self { params: SampleParams(params), ids, values, log_sum_exp })
    }
}

/// All activations of a call of up to `M` rows, `L` of them with logits.
pub struct StepBuffers {
    /// Control block.
    pub control: Control,
    /// `[M]` I32.
    pub tokens: Tensor,
    /// `[M]` I32.
    pub positions: Tensor,
    /// `[M, rotary_dims]`.
    pub angles: Tensor,
    /// `[M, D]` residual stream.
    pub x: Tensor,
    /// `[M, D]` normed.
    pub h: Tensor,
    /// Attention layers.
    pub attention: AttentionBuffers,
    /// Delta layers.
    pub delta: Option<DeltaBuffers>,
    /// `[M, F]`.
    pub gate: Tensor,
    /// `[M, F]`.
    pub up: Tensor,
    /// The head.
    pub head: HeadBuffers,
    /// Rows the buffers hold.
    pub rows: usize,
    /// Rows with logits they hold.
    pub logit_rows: usize,
}

impl RecurrentInputs {
    pub(super) fn carve(d: &DeltaConfig, m: usize, c: &mut Carver) -> Result<Self> {
        let f32 = DType::F32;
        let [qkv] = c.views(f32, [&[m, d.channels()]])?;
        let [conv] = c.views(f32, [&[m, d.channels()]])?;
        let [alpha] = c.views(f32, [&[m, d.value_heads]])?;
        let [beta] = c.views(f32, [&[m, d.value_heads]])?;
        Ok(Self { qkv, conv, alpha, beta })
    }
}

impl StepBuffers {
    /// Bytes for `rows` rows, `logit_rows` of them with logits: everything else, and
    /// the head's part.
    pub fn bytes(config: &ModelConfig, rows: usize, logit_rows: usize) -> Result<(usize, usize)> {
        let mut carver = Carver::counting();
        Self::carve(config, rows, logit_rows, &mut carver)?;
        let head = logit_rows.saturating_mul(config.vocab + config.hidden + 2).saturating_mul(4);
        Ok((carver.bytes().saturating_sub(head), head))
    }

    /// Reserves the buffers.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn reserve(
        config: &ModelConfig,
        device: &dyn Device,
        rows: usize,
        logit_rows: usize,
    ) -> Result<Self> {
        let (rest, head) = Self::bytes(config, rows, logit_rows)?;
        let buffer = device.allocate(rest.saturating_add(head), "activations")?;
        Self::carve(config, rows, logit_rows, &mut Carver::over(buffer))
    }

    fn carve(config: &ModelConfig, m: usize, l: usize, c: &mut Carver) -> Result<Self> {
        let f32 = DType::F32;
        let [control] = c.views(DType::I32, [&[Control::WORDS]])?;
        let [tokens] = c.views(DType::I32, [&[m]])?;
        let [positions] = c.views(DType::I32, [&[m]])?;
        let [angles] = c.views(f32, [&[m, config.attention.rotary_dims]])?;
        let [x] = c.views(f32, [&[m, config.hidden]])?;
        let [h] = c.views(f32, [&[m, config.hidden]])?;
        let [head_h] = c.views(f32, [&[l, config.hidden]])?;
        let [logits] = c.views(f32, [&[l, config.vocab]])?;
        let [top_ids] = c.views(DType::I32, [&[l, 1]])?;
        let [top_values] = c.views(f32, [&[l, 1]])?;
        let best = BestBuffers::carve(config.vocab, l, c)?;

        // Only one of the three parts of a layer is alive at a time: they share memory.
        let shared = c.mark();
        let a = &config.attention;
        let stride = if a.gated { 2 * a.head_dim } else { a.head_dim };
        let kv = [&[m, a.kv_heads, a.head_dim][..], &[m, a.kv_heads * a.head_dim]];
        let [q, q_rows] = c.views(f32, [&[m, a.heads, stride], &[m, a.heads * stride]])?;
        let [k, k_rows] = c.views(f32, kv)?;
        let [v, v_rows] = c.views(f32, kv)?;
        let out_dims = [&[m, a.heads, a.head_dim][..], &[m, a.heads * a.head_dim]];
        let [out, out_rows] = c.views(f32, out_dims)?;
        let attention = AttentionBuffers { q, q_rows, k, k_rows, v, v_rows, out, out_rows };

        c.rewind(shared);
        let delta = match &config.delta {
            None => None,
            Some(d) => {
                let value = [&[m, d.value_heads, d.value_dim][..], &[m, d.value_width()]];
                let recurrent = RecurrentInputs::carve(d, m, c)?;
                let [z, z_rows] = c.views(f32, value)?;
                let [out, out_rows] = c.views(f32, value)?;
                Some(DeltaBuffers { recurrent, z, z_rows, out, out_rows })
            }
        };

        c.rewind(shared);
        let [gate] = c.views(f32, [&[m, config.ffn]])?;
        let [up] = c.views(f32, [&[m, config.ffn]])?;
        Ok(Self {
            control: Control(control),
            tokens,
            positions,
            angles,
            x,
            h,
            attention,
            delta,
            gate,
            up,
            head: HeadBuffers { h: head_h, logits, top_ids, top_values, best },
            rows: m,
            logit_rows: l,
        })
    }
}
