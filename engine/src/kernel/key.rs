//! Which kernel serves an operation.

use std::fmt;

use super::control::Regime;
use crate::tensor::DType;

/// Names a kernel well enough for logs, error messages and tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KernelKey {
    /// Operation name.
    pub op: &'static str,
    /// The type that decides the kernel: the weight's or the cache's.
    pub dtype: DType,
    /// Regime, for operations that have two.
    pub regime: Option<Regime>,
    /// The driver's own word for the variant, for example `avx512-vnni`.
    pub variant: &'static str,
}

impl fmt::Display for KernelKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.op, self.dtype, self.variant)
    }
}
