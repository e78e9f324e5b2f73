//! Convolution and recurrent state of delta layers.

use crate::device::{Buffer, Device, DeviceFault, Stream};
use crate::error::Result;
use crate::model::{DeltaConfig, LayerKind, ModelConfig};
use crate::tensor::{DType, Shape, Tensor};

/// State of one delta layer.
#[derive(Clone)]
pub struct RecurrentLayer {
    /// `[conv_width - 1, channels]` F32.
    pub conv: Tensor,
    /// `[Hv, dv, dk]` F32.
    pub state: Tensor,
}

/// State of all delta layers, in one buffer.
pub struct RecurrentState {
    buffer: Option<Buffer>,
    layers: Vec<RecurrentLayer>,
}

fn shapes(d: &DeltaConfig) -> Option<(Shape, Shape)> {
    let conv = Shape::new(&[d.conv_width - 1, d.channels()])?;
    Some((conv, Shape::new(&[d.value_heads, d.value_dim, d.key_dim])?))
}

impl RecurrentState {
    /// Bytes for one sequence.
    pub fn bytes(config: &ModelConfig) -> Option<usize> {
        let Some(d) = &config.delta else { return Some(0) };
        let (conv, state) = shapes(d)?;
        let per_layer = conv.elements().checked_add(state.elements())?.checked_mul(4)?;
        per_layer.checked_mul(config.count(LayerKind::Delta))
    }

    /// Reserves the state. Call [`clear`](Self::clear) before the first use.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn reserve(config: &ModelConfig, device: &dyn Device) -> Result<Self> {
        let Some(d) = &config.delta else {
            return Ok(Self { buffer: None, layers: Vec::new() });
        };
        let too_large = DeviceFault::BadOperands { op: "state", detail: "the size overflows" };
        let total = Self::bytes(config).ok_or(too_large.clone())?;
        let (conv_shape, state_shape) = shapes(d).ok_or(too_large)?;
        let buffer = device.allocate(total, "recurrent state")?;
        let mut layers = Vec::new();
        let mut offset = 0;
        for _ in 0..config.count(LayerKind::Delta) {
            let conv = Tensor::new(&buffer, offset, DType::F32, conv_shape)?;
            offset += conv.bytes();
            let state = Tensor::new(&buffer, offset, DType::F32, state_shape)?;
            offset += state.bytes();
            layers.push(RecurrentLayer { conv, state });
        }
        Ok(Self { buffer: Some(buffer), layers })
    }

    /// Sets the state of an empty sequence.
    pub fn clear(&self, stream: &mut dyn Stream) -> Result<()> {
        match &self.buffer {
            Some(b) => stream.fill(b, 0, b.bytes(), 0),
            None => Ok(()),
        }
    }

    /// Copies the state of a sequence of the same model on the same device.
    ///
    /// # Errors
    /// `BadOperands` when it is another model's; device faults.
    pub fn copy_from(&self, other: &Self, stream: &mut dyn Stream) -> Result<()> {
        match (&self.buffer, &other.buffer) {
            (Some(to), Some(from)) if to.bytes() == from.bytes() => {
                stream.copy(to, 0, from, 0, to.bytes())
            }
            (None, None) => Ok(()),
            _ => {
                let detail = "states of different models";
                Err(DeviceFault::BadOperands { op: "state", detail }.into())
            }
        }
    }

    /// The delta layers' states, bottom up.
    pub fn layers(&self) -> &[RecurrentLayer] {
        &self.layers
    }
}
