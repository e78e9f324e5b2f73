//! Weights under one set of names and conventions, whatever file they come from.
//!
//! The canonical form is GGUF's (GGUF names as in llama.cpp's `qwen35` and `qwen3`
//! tensor lists): norms multiply as they are, `ssm_a` is `-exp(A_log)`, the
//! convolution is `[channels, taps]`. Only the order of the value heads differs
//! between files; it stays as it is and is told by
//! [`HeadMap`](crate::kernel::HeadMap).

use std::path::Path;

use super::ModelFault;
use crate::device::HostTensor;
use crate::error::{Error, Result};
use crate::format::{GgufFile, SafetensorsModel, TensorInfo, TensorSource};
use crate::quant;
use crate::tensor::{DType, Shape};

/// How a small tensor is changed on its way to the canonical form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Taken as it is.
    None,
    /// `w + 1`: a norm stored around zero.
    AddOne,
    /// `-exp(w)`.
    NegExp,
}

/// Maps canonical names to a file's own and back to canonical values.
pub trait TensorNaming: Send + Sync {
    /// The file's name for a canonical one, and how its values change.
    fn resolve(&self, canonical: &str) -> Option<(String, Change)>;
}

/// GGUF names are the canonical ones.
pub(super) struct GgufNaming;

impl TensorNaming for GgufNaming {
    fn resolve(&self, canonical: &str) -> Option<(String, Change)> {
        Some((canonical.to_owned(), Change::None))
    }
}

/// A model's file with its naming.
pub struct Provider {
    source: Box<dyn TensorSource>,
    naming: Box<dyn TensorNaming>,
}

impl Provider {
    /// A file whose own names are told by `naming`.
    pub(crate) fn new(source: Box<dyn TensorSource>, naming: Box<dyn TensorNaming>) -> Self {
        Self { source, naming }
    }

    pub(super) fn gguf(file: GgufFile) -> Self {
        Self::new(Box::new(file), Box::new(GgufNaming))
    }

    pub(super) fn safetensors(model: SafetensorsModel, naming: Box<dyn TensorNaming>) -> Self {
        Self::new(Box::new(model), naming)
    }

    /// The file or folder.
    pub fn path(&self) -> &Path {
        self.source.path()
    }

    /// The tensors of the file, under the file's own names.
    pub fn source(&self) -> &dyn TensorSource {
        &*self.source
    }

    /// The tensor, and how its values change.
    pub(crate) fn find(&self, canonical: &str) -> Option<(&TensorInfo, Change)> {
        let (name, change) = self.naming.resolve(canonical)?;
        Some((self.source.tensor(&name)?, change))
    }

    fn need(&self, canonical: &str) -> Result<(&TensorInfo, Change)> {
        self.find(canonical)
            .ok_or_else(|| self.fault(ModelFault::MissingTensor(canonical.to_owned())))
    }

    /// Wraps a fault with this file's path.
    pub fn fault(&self, fault: ModelFault) -> Error {
        Error::model(self.path(), fault)
    }

    /// Whether the file has the tensor.
    pub fn has(&self, canonical: &str) -> bool {
        self.find(canonical).is_some()
    }

    /// Shape of a tensor as stored.
    pub fn shape(&self, canonical: &str) -> Result<Shape> {
        Ok(self.need(canonical)?.0.shape())
    }

    /// A matrix of `rows` x `cols` in its stored type.
    ///
    /// # Errors
    /// `MissingTensor`, `WrongShape`.
    pub fn matrix(&self, canonical: &str, rows: usize, cols: usize) -> Result<HostTensor> {
        let (info, _) = self.need(canonical)?;
        self.check_shape(canonical, info, &[rows, cols])?;
        let scale = self.second_scale(canonical)?;
        let bytes = self.source.data(info);
        Ok(HostTensor { dtype: info.dtype(), rows, cols, bytes, scale })
    }

    /// A small tensor decoded to F32 in canonical form, with the element count of
    /// `dims` (dimensions of one are ignored).
    ///
    /// # Errors
    /// `MissingTensor`, `WrongShape`, `NotNumeric`, `NotFinite`.
    pub fn vector(&self, canonical: &str, dims: &[usize]) -> Result<Vec<f32>> {
        let (info, change) = self.need(canonical)?;
        self.check_shape(canonical, info, dims)?;
        let mut values = self.decode(canonical, info)?;
        match change {
            Change::None => {}
            Change::AddOne => values.iter_mut().for_each(|v| *v += 1.0),
            Change::NegExp => values.iter_mut().for_each(|v| *v = -v.exp()),
        }
        if values.iter().any(|v| !v.is_finite()) {
            return Err(self.fault(ModelFault::NotFinite(canonical.to_owned())));
        }
        Ok(values)
    }

    fn decode(&self, canonical: &str, info: &TensorInfo) -> Result<Vec<f32>> {
        let mut values = vec![0.0; info.shape().elements()];
        quant::decode(info.dtype(), &self.source.data(info), &mut values).map_err(|_| {
            let tensor = canonical.to_owned();
            self.fault(ModelFault::NotNumeric { tensor, dtype: info.dtype() })
        })?;
        Ok(values)
    }

    /// NVFP4's second-level factor: `<name without .weight>.scale`, or
    /// `<name>.scale`, one F32.
    fn second_scale(&self, canonical: &str) -> Result<f32> {
        let stem = canonical.strip_suffix(".weight").unwrap_or(canonical);
        for name in [format!("{stem}.scale"), format!("{canonical}.scale")] {
            if let Some((info, _)) = self.find(&name) {
                self.check_shape(&name, info, &[1])?;
                let scale = self.decode(&name, info)?.first().copied().unwrap_or(f32::NAN);
                if !scale.is_finite() {
                    return Err(self.fault(ModelFault::NotFinite(name)));
                }
                return Ok(scale);
            }
        }
        Ok(1.0)
    }

    fn check_shape(&self, canonical: &str, info: &TensorInfo, dims: &[usize]) -> Result<()> {
        let squeezed = |d: &[usize]| d.iter().copied().filter(|&n| n != 1).collect::<Vec<_>>();
        if squeezed(info.shape().dims()) == squeezed(dims) {
            return Ok(());
        }
        let expected = Shape::new(dims).unwrap_or(info.shape());
        let tensor = canonical.to_owned();
        Err(self.fault(ModelFault::WrongShape { tensor, found: info.shape(), expected }))
    }

    /// Type of a tensor as stored.
    pub fn dtype(&self, canonical: &str) -> Result<DType> {
        Ok(self.need(canonical)?.0.dtype())
    }
}
