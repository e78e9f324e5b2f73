//! Activations of a draft, carved from one reserved buffer.

use super::config::DflashConfig;
use crate::device::Device;
use crate::error::Result;
use crate::kernel::Control;
use crate::model::Carver;
use crate::tensor::{DType, Tensor};

/// Taking in context, up to `C` rows at a time. The `_rows` views are the same memory as
/// two dimensions.
pub(super) struct ContextBuffers {
    pub(super) control: Control,
    /// `[C]` I32.
    pub(super) positions: Tensor,
    /// `[C, rotary_dims]`.
    pub(super) angles: Tensor,
    /// `[C, K * D]`.
    pub(super) features: Tensor,
    /// `[C, D]`: after `fc`, then normed in place.
    pub(super) h: Tensor,
    /// `[C, Hkv, head_dim]`.
    pub(super) k: Tensor,
    /// `[C, Hkv * head_dim]`.
    pub(super) k_rows: Tensor,
    /// `[C, Hkv, head_dim]`.
    pub(super) v: Tensor,
    /// `[C, Hkv * head_dim]`.
    pub(super) v_rows: Tensor,
}

/// A block of `B` rows, `B - 1` of them with logits.
pub(super) struct BlockBuffers {
    pub(super) control: Control,
    /// `[B]` I32.
    pub(super) tokens: Tensor,
    /// `[B]` I32.
    pub(super) positions: Tensor,
    /// `[B, rotary_dims]`.
    pub(super) angles: Tensor,
    /// `[B, D]` residual stream.
    pub(super) x: Tensor,
    /// `[B, D]` normed.
    pub(super) h: Tensor,
    /// `[B, Hq, head_dim]`.
    pub(super) q: Tensor,
    /// `[B, Hq * head_dim]`.
    pub(super) q_rows: Tensor,
    /// `[B, Hkv, head_dim]`.
    pub(super) k: Tensor,
    /// `[B, Hkv * head_dim]`.
    pub(super) k_rows: Tensor,
    /// `[B, Hkv, head_dim]`.
    pub(super) v: Tensor,
    /// `[B, Hkv * head_dim]`.
    pub(super) v_rows: Tensor,
    /// `[B, Hq, head_dim]`.
    pub(super) out: Tensor,
    /// `[B, Hq * head_dim]`.
    pub(super) out_rows: Tensor,
    /// `[B, F]`.
    pub(super) gate: Tensor,
    /// `[B, F]`.
    pub(super) up: Tensor,
    /// `[B - 1, D]`.
    pub(super) head_h: Tensor,
    /// `[B - 1, V]`.
    pub(super) logits: Tensor,
}

/// All activations of a draft.
pub(super) struct DflashBuffers {
    pub(super) context: ContextBuffers,
    pub(super) block: BlockBuffers,
}

impl DflashBuffers {
    /// Bytes for context of up to `rows` rows at a time.
    pub(super) fn bytes(config: &DflashConfig, vocab: usize, rows: usize) -> Result<usize> {
        let mut carver = Carver::counting();
        Self::carve(config, vocab, rows, &mut carver)?;
        Ok(carver.bytes())
    }

    /// Reserves the buffers.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub(super) fn reserve(
        config: &DflashConfig,
        vocab: usize,
        rows: usize,
        device: &dyn Device,
    ) -> Result<Self> {
        let bytes = Self::bytes(config, vocab, rows)?;
        let buffer = device.allocate(bytes, "draft activations")?;
        Self::carve(config, vocab, rows, &mut Carver::over(buffer))
    }

    /// Nothing outlives its part but what lands in the cache and the proposal, and the
    /// two parts run one after the other: they share memory.
    fn carve(config: &DflashConfig, vocab: usize, rows: usize, c: &mut Carver) -> Result<Self> {
        let start = c.mark();
        let context = ContextBuffers::carve(config, rows, c)?;
        c.rewind(start);
        Ok(Self { context, block: BlockBuffers::carve(config, vocab, c)? })
    }
}

impl ContextBuffers {
    fn carve(config: &DflashConfig, m: usize, c: &mut Carver) -> Result<Self> {
        let (f32, a) = (DType::F32, &config.attention);
        let kv = [&[m, a.kv_heads, a.head_dim][..], &[m, a.kv_heads * a.head_dim]];
        let [control] = c.views(DType::I32, [&[Control::WORDS]])?;
        let [positions] = c.views(DType::I32, [&[m]])?;
        let [angles] = c.views(f32, [&[m, a.rotary_dims]])?;
        let [features] = c.views(f32, [&[m, config.features()]])?;
        let [h] = c.views(f32, [&[m, config.hidden]])?;
        let [k, k_rows] = c.views(f32, kv)?;
        let [v, v_rows] = c.views(f32, kv)?;
        let control = Control(control);
        Ok(Self { control, positions, angles, features, h, k, k_rows, v, v_rows })
    }

    /// The same memory, seen as fewer rows.
    ///
    /// # Errors
    /// `BadOperands` when there are fewer.
    pub(super) fn first_rows(&self, rows: usize) -> Result<Self> {
        Ok(Self {
            control: self.control.clone(),
            positions: self.positions.first_rows(rows)?,
            angles: self.angles.first_rows(rows)?,
            features: self.features.first_rows(rows)?,
            h: self.h.first_rows(rows)?,
            k: self.k.first_rows(rows)?,
            k_rows: self.k_rows.first_rows(rows)?,
            v: self.v.first_rows(rows)?,
            v_rows: self.v_rows.first_rows(rows)?,
        })
    }
}

impl BlockBuffers {
    fn carve(config: &DflashConfig, vocab: usize, c: &mut Carver) -> Result<Self> {
        let (f32, a, m) = (DType::F32, &config.attention, config.block);
        let q_dims = [&[m, a.heads, a.head_dim][..], &[m, a.heads * a.head_dim]];
        let kv = [&[m, a.kv_heads, a.head_dim][..], &[m, a.kv_heads * a.head_dim]];
        let drafted = m.saturating_sub(1);
        let [control] = c.views(DType::I32, [&[Control::WORDS]])?;
        let [tokens] = c.views(DType::I32, [&[m]])?;
        let [positions] = c.views(DType::I32, [&[m]])?;
        let [angles] = c.views(f32, [&[m, a.rotary_dims]])?;
        let [x] = c.views(f32, [&[m, config.hidden]])?;
        let [h] = c.views(f32, [&[m, config.hidden]])?;
        let [q, q_rows] = c.views(f32, q_dims)?;
        let [k, k_rows] = c.views(f32, kv)?;
        let [v, v_rows] = c.views(f32, kv)?;
        let [out, out_rows] = c.views(f32, q_dims)?;
        let [gate] = c.views(f32, [&[m, config.ffn]])?;
        let [up] = c.views(f32, [&[m, config.ffn]])?;
        let [head_h] = c.views(f32, [&[drafted, config.hidden]])?;
        let [logits] = c.views(f32, [&[drafted, vocab]])?;
        let control = Control(control);
        Ok(Self {
            control,
            tokens,
            positions,
            angles,
            x,
            h,
            q,
            q_rows,
            k,
            k_rows,
            v,
            v_rows,
            out,
            out_rows,
            gate,
            up,
            head_h,
            logits,
        })
    }
}
