//! Linear operations.

use std::sync::Arc;

use foretoken::Result;
use foretoken::device::{DeviceFault, HostTensor, WeightSpec};
use foretoken::kernel::Linear;
use foretoken::tensor::DType;

use crate::ops::Bind;
use crate::pool::CpuKernel;
use crate::simd::Isa;

pub(crate) struct PackedWeight;

impl PackedWeight {
    pub(crate) fn bytes_for(spec: &WeightSpec) -> Result<u64> {
        let (op, dtype, arch) = ("linear", spec.dtype, std::env::consts::ARCH.to_owned());
        Err(DeviceFault::Unsupported { op, dtype, arch }.into())
    }

    pub(crate) fn pack(_: &HostTensor, spec: &WeightSpec, _: Isa) -> Result<Self> {
        Self::bytes_for(spec).map(|_| Self)
    }
}

pub(crate) fn prepare(bind: &Bind<'_>, _: &Linear) -> Result<Arc<dyn CpuKernel>> {
    Err(bind.unsupported(DType::F32).into())
}
