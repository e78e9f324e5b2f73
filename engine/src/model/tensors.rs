//! Named tensors, planned before and loaded in one pass, whatever they are part of.

use std::collections::HashMap;
use std::sync::Arc;

use super::ModelFault;
use super::provider::Provider;
use crate::device::{Activations, Device, Rehearsal, Stream, Weight, WeightRole, WeightSpec};
use crate::error::{Error, Result};
use crate::tensor::{DType, Shape, Tensor};

/// How a tensor is taken in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A matrix in its stored type; two dimensions.
    Matrix(WeightRole),
    /// Small, decoded to F32.
    Vector,
}

/// One tensor that is needed.
#[derive(Clone, Debug)]
pub(crate) struct Need {
    /// Canonical name.
    pub(crate) name: String,
    /// Canonical name of the tensor it is read from; another one when tensors are tied.
    pub(crate) source: String,
    dims: Vec<usize>,
    form: Form,
}

impl Need {
    /// A tensor of these dimensions, outermost first, read from its own name.
    pub(crate) fn new(name: String, dims: &[usize], form: Form) -> Self {
        Self { source: name.clone(), name, dims: dims.to_vec(), form }
    }
}

/// Tensors checked against the file, with their sizes on a device.
pub(crate) struct TensorPlan {
    needs: Vec<(Need, Option<WeightSpec>)>,
    bytes: u64,
}

impl TensorPlan {
    /// Checks every tensor's presence, shape and type, and asks the device what each
    /// will take. Nothing is loaded.
    ///
    /// # Errors
    /// `MissingTensor`, `WrongShape`, `NotNumeric`, `NotFinite`, `WeightRefused`.
    pub(crate) fn new(
        needs: Vec<Need>,
        provider: &Provider,
        device: &dyn Device,
        activations: Activations,
    ) -> Result<Self> {
        let mut checked = Vec::with_capacity(needs.len());
        let mut bytes = 0u64;
        for need in needs {
            let (spec, size) = match (&need.form, need.dims.as_slice()) {
                (Form::Matrix(role), &[rows, cols]) => {
                    let host = provider.matrix(&need.source, rows, cols)?;
                    let spec =
                        WeightSpec { dtype: host.dtype, rows, cols, role: *role, activations };
                    let refused = |e| refuse(provider, &need.source, e);
                    (Some(spec), device.weight_bytes(&spec).map_err(refused)?)
                }
                _ => {
                    let values = provider.vector(&need.source, &need.dims)?;
                    (None, device.allocation_bytes(size_of_val(&values[..])))
                }
            };
            bytes = bytes.saturating_add(size);
            checked.push((need, spec));
        }
        Ok(Self { needs: checked, bytes })
    }

    /// Bytes of device memory all of them will take.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// All tensors, without memory: on a stand-in for the device that this was made for.
    pub(crate) fn rehearse(&self, device: &Rehearsal) -> Result<Loaded> {
        let mut loaded = Loaded { matrices: HashMap::new(), vectors: HashMap::new(), bytes: 0 };
        for (need, spec) in &self.needs {
            match spec {
                Some(spec) => {
                    let weight = device.weight(spec)?;
                    loaded.bytes += weight.bytes();
                    loaded.matrices.insert(need.name.clone(), weight);
                }
                None => {
                    let shape = Shape::new(&need.dims).unwrap_or(Shape::vector(0));
                    let bytes = shape.elements().saturating_mul(size_of::<f32>());
                    let buffer = device.allocate(bytes, &need.name)?;
                    loaded.bytes += device.allocation_bytes(bytes);
                    let tensor = Tensor::new(&buffer, 0, DType::F32, shape)?;
                    loaded.vectors.insert(need.name.clone(), tensor);
                }
            }
        }
        Ok(loaded)
    }

    /// Loads everything. `progress` is told done and total after each tensor.
    pub(crate) fn load(
        self,
        provider: &Provider,
        device: &Arc<dyn Device>,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Loaded> {
        let mut stream = device.stream()?;
        let mut loaded = Loaded { matrices: HashMap::new(), vectors: HashMap::new(), bytes: 0 };
        let total = self.needs.len();
        for (done, (need, spec)) in self.needs.into_iter().enumerate() {
            match spec {
                Some(spec) => {
                    let host = provider.matrix(&need.source, spec.rows, spec.cols)?;
                    let weight = device.load_weight(&host, &spec);
                    let weight = weight.map_err(|e| refuse(provider, &need.source, e))?;
                    loaded.bytes += weight.bytes();
                    loaded.matrices.insert(need.name, weight);
                }
                None => {
                    let values = provider.vector(&need.source, &need.dims)?;
                    let tensor = upload(&**device, &mut *stream, &need, &values)?;
                    loaded.bytes += device.allocation_bytes(tensor.bytes());
                    loaded.vectors.insert(need.name, tensor);
                }
            }
            progress(done + 1, total);
        }
        stream.synchronize()?;
        Ok(loaded)
    }
}

fn refuse(provider: &Provider, tensor: &str, error: Error) -> Error {
    match error {
        Error::Device(fault) => {
            provider.fault(ModelFault::WeightRefused { tensor: tensor.to_owned(), fault })
        }
        other => other,
    }
}

fn upload(
    device: &dyn Device,
    stream: &mut dyn Stream,
    need: &Need,
    values: &[f32],
) -> Result<Tensor> {
    let bytes: &[u8] = bytemuck::cast_slice(values);
    let buffer = device.allocate(bytes.len(), &need.name)?;
    stream.write(&buffer, 0, bytes)?;
    let shape = Shape::new(&need.dims).unwrap_or(Shape::vector(values.len()));
    Ok(Tensor::new(&buffer, 0, DType::F32, shape)?)
}

/// Loaded tensors, to be taken out by canonical name.
pub(crate) struct Loaded {
    matrices: HashMap<String, Weight>,
    vectors: HashMap<String, Tensor>,
    bytes: u64,
}

impl Loaded {
    /// Bytes of device memory all of them take.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes a matrix out.
    pub(crate) fn matrix(&mut self, provider: &Provider, name: &str) -> Result<Weight> {
        let missing = || provider.fault(ModelFault::MissingTensor(name.to_owned()));
        self.matrices.remove(name).ok_or_else(missing)
    }

    /// Takes a small tensor out.
    pub(crate) fn vector(&mut self, provider: &Provider, name: &str) -> Result<Tensor> {
        let missing = || provider.fault(ModelFault::MissingTensor(name.to_owned()));
        self.vectors.remove(name).ok_or_else(missing)
    }
}
