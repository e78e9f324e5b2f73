//! Activations of a call, carved from one reserved buffer.

use super::ModelConfig;
use crate::device::{Buffer, Device, DeviceFault};
use crate::error::Result;
use crate::kernel::Control;
use crate::tensor::{DType, Shape, Tensor};

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

/// The delta rule's activations.
pub struct DeltaBuffers {
    /// `[M, channels]` before the convolution.
    pub qkv: Tensor,
    /// `[M, channels]` after it.
    pub conv: Tensor,
    /// `[M, Hv, dv]`.
    pub z: Tensor,
    /// `[M, Hv * dv]`.
    pub z_rows: Tensor,
    /// `[M, Hv]`.
    pub alpha: Tensor,
    /// `[M, Hv]`.
    pub beta: Tensor,
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
    /// `[L, 1]` I32.
    pub top_ids: Tensor,
    /// `[L, 1]`.
    pub top_values: Tensor,
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

/// Hands out consecutive aligned pieces; without a buffer it only counts.
struct Carver<'a> {
    buffer: Option<&'a Buffer>,
    offset: usize,
    end: usize,
}

const ALIGN: usize = 64;

impl Carver<'_> {
    fn reserve(&mut self, bytes: usize) -> Result<usize, DeviceFault> {
        let start = self.offset;
        let too_large = DeviceFault::BadOperands { op: "scratch", detail: "the size overflows" };
        let end = start.checked_add(bytes).and_then(|e| e.checked_next_multiple_of(ALIGN));
        self.offset = end.ok_or(too_large)?;
        self.end = self.end.max(self.offset);
        Ok(start)
    }

    /// One piece seen in several shapes of the same size.
    fn views<const N: usize>(
        &mut self,
        dtype: DType,
        dims: [&[usize]; N],
        dummy: &Buffer,
    ) -> Result<[Tensor; N]> {
        let too_large = DeviceFault::BadOperands { op: "scratch", detail: "the size overflows" };
        let mut shapes = [Shape::vector(0); N];
        for (shape, dims) in shapes.iter_mut().zip(dims) {
            *shape = Shape::new(dims).ok_or(too_large.clone())?;
        }
        let bytes = dtype.bytes_for(shapes.first().map_or(0, Shape::elements)).ok_or(too_large)?;
        let start = self.reserve(bytes)?;
        let mut out = Vec::with_capacity(N);
        for shape in shapes {
            out.push(match self.buffer {
                Some(b) => Tensor::new(b, start, dtype, shape)?,
                None => Tensor::new(dummy, 0, dtype, Shape::vector(0))?,
            });
        }
        let wrong = |_| DeviceFault::BadOperands { op: "scratch", detail: "view count" };
        Ok(out.try_into().map_err(wrong)?)
    }
}

impl StepBuffers {
    /// Bytes for `rows` rows, `logit_rows` of them with logits: everything else, and
    /// the head's part.
    pub fn bytes(config: &ModelConfig, rows: usize, logit_rows: usize) -> Result<(usize, usize)> {
        let dummy = Buffer::new(0, 0, std::sync::Arc::new(Nothing));
        let mut carver = Carver { buffer: None, offset: 0, end: 0 };
        Self::carve(config, rows, logit_rows, &mut carver, &dummy)?;
        let head = logit_rows.saturating_mul(config.vocab + config.hidden + 2).saturating_mul(4);
        Ok((carver.end.saturating_sub(head), head))
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
        let mut carver = Carver { buffer: Some(&buffer), offset: 0, end: 0 };
        Self::carve(config, rows, logit_rows, &mut carver, &buffer)
    }

    fn carve(
        config: &ModelConfig,
        m: usize,
        l: usize,
        c: &mut Carver<'_>,
        dummy: &Buffer,
    ) -> Result<Self> {
        let f32 = DType::F32;
        let [control] = c.views(DType::I32, [&[Control::WORDS]], dummy)?;
        let [tokens] = c.views(DType::I32, [&[m]], dummy)?;
        let [positions] = c.views(DType::I32, [&[m]], dummy)?;
        let [angles] = c.views(f32, [&[m, config.attention.rotary_dims]], dummy)?;
        let [x] = c.views(f32, [&[m, config.hidden]], dummy)?;
        let [h] = c.views(f32, [&[m, config.hidden]], dummy)?;
        let [head_h] = c.views(f32, [&[l, config.hidden]], dummy)?;
        let [logits] = c.views(f32, [&[l, config.vocab]], dummy)?;
        let [top_ids] = c.views(DType::I32, [&[l, 1]], dummy)?;
        let [top_values] = c.views(f32, [&[l, 1]], dummy)?;

        // Only one of the three parts of a layer is alive at a time: they share memory.
        let shared = c.offset;
        let a = &config.attention;
        let stride = if a.gated { 2 * a.head_dim } else { a.head_dim };
        let kv = [&[m, a.kv_heads, a.head_dim][..], &[m, a.kv_heads * a.head_dim]];
        let [q, q_rows] = c.views(f32, [&[m, a.heads, stride], &[m, a.heads * stride]], dummy)?;
        let [k, k_rows] = c.views(f32, kv, dummy)?;
        let [v, v_rows] = c.views(f32, kv, dummy)?;
        let out_dims = [&[m, a.heads, a.head_dim][..], &[m, a.heads * a.head_dim]];
        let [out, out_rows] = c.views(f32, out_dims, dummy)?;
        let attention = AttentionBuffers { q, q_rows, k, k_rows, v, v_rows, out, out_rows };

        c.offset = shared;
        let delta = match &config.delta {
            None => None,
            Some(d) => {
                let value = [&[m, d.value_heads, d.value_dim][..], &[m, d.value_width()]];
                let [qkv] = c.views(f32, [&[m, d.channels()]], dummy)?;
                let [conv] = c.views(f32, [&[m, d.channels()]], dummy)?;
                let [z, z_rows] = c.views(f32, value, dummy)?;
                let [alpha] = c.views(f32, [&[m, d.value_heads]], dummy)?;
                let [beta] = c.views(f32, [&[m, d.value_heads]], dummy)?;
                let [out, out_rows] = c.views(f32, value, dummy)?;
                Some(DeltaBuffers { qkv, conv, z, z_rows, alpha, beta, out, out_rows })
            }
        };

        c.offset = shared;
        let [gate] = c.views(f32, [&[m, config.ffn]], dummy)?;
        let [up] = c.views(f32, [&[m, config.ffn]], dummy)?;
        c.offset = c.end;
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
            head: HeadBuffers { h: head_h, logits, top_ids, top_values },
            rows: m,
            logit_rows: l,
        })
    }
}

/// Storage of the buffer that stands in while sizes are only counted.
struct Nothing;

impl crate::device::BufferStorage for Nothing {
    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}
