//! Weights: taken in once at load, in whatever layout the driver likes best.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use super::Buffer;
use crate::format::SharedBytes;
use crate::tensor::DType;

/// How activations enter a linear operation whose weights are quantised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Activations {
    /// The driver's fast path: no coarser than binary16 (15-bit integers per 32 values
    /// on the CPU), or than bfloat16 beside BF16 weights.
    #[default]
    Fast,
    /// 32-bit floats: the reference path.
    F32,
}

/// What a weight is used for; a driver may lay it out differently for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WeightRole {
    /// Right-hand side of a linear operation.
    Linear,
    /// Table from which rows are gathered.
    Embedding,
}

/// Everything a driver must know to plan the memory of a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WeightSpec {
    /// Storage type in the file.
    pub dtype: DType,
    /// Output features (rows of the matrix, entries of the table).
    pub rows: usize,
    /// Input features (contiguous in the file).
    pub cols: usize,
    /// Use.
    pub role: WeightRole,
    /// Activation precision for [`WeightRole::Linear`].
    pub activations: Activations,
}

/// A weight as it lies in a file: `rows` x `cols` of `dtype`, rows contiguous.
#[derive(Clone)]
pub struct HostTensor {
    /// Storage type.
    pub dtype: DType,
    /// Number of rows.
    pub rows: usize,
    /// Elements in a row, whole blocks.
    pub cols: usize,
    /// The bytes, borrowed from the mapped file or owned.
    pub bytes: SharedBytes,
    /// Factor on the product, for formats with a second-level scale (NVFP4); else 1.
    pub scale: f32,
}

/// A weight living on a device.
#[derive(Clone)]
pub struct Weight {
    /// Its type, shape and use.
    pub spec: WeightSpec,
    /// Factor applied to the product.
    pub scale: f32,
    device: u64,
    bytes: u64,
    inner: Arc<dyn Any + Send + Sync>,
}

impl Weight {
    /// Wraps a driver's own representation, which takes `bytes` of device memory.
    pub fn new(
        spec: WeightSpec,
        scale: f32,
        device: u64,
        bytes: u64,
        inner: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        Self { spec, scale, device, bytes, inner }
    }

    /// A weight that would take `bytes` and has no memory behind it, like the buffer given
    /// for it, which a driver finds in place of its own representation.
    pub fn unbacked(spec: WeightSpec, bytes: u64, buffer: Buffer) -> Self {
        Self { spec, scale: 1.0, device: buffer.device(), bytes, inner: Arc::new(buffer) }
    }

    /// Which device holds it.
    pub fn device(&self) -> u64 {
        self.device
    }

    /// Bytes of device memory it takes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The driver's representation.
    pub fn inner(&self) -> &Arc<dyn Any + Send + Sync> {
        &self.inner
    }
}

impl fmt::Debug for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Weight({} {}x{})", self.spec.dtype, self.spec.rows, self.spec.cols)
    }
}
