//! Features: hidden states of the target that a drafter reads, in a bounded ring.

use super::control::Control;
use super::tree::Path;
use crate::tensor::Tensor;

/// Stores the residual stream after a layer: row `i` goes to columns
/// `column .. column + D` of ring slot `(committed + i) % R`.
#[derive(Clone, Debug)]
pub struct FeatureStore {
    /// Control block of the target's rows.
    pub control: Control,
    /// `[M, D]` F32.
    pub x: Tensor,
    /// `[R, W]` F32, `R >= M`.
    pub ring: Tensor,
    /// First column.
    pub column: usize,
}

/// Moves the path's rows together: slot `(committed + path[i]) % R` to slot
/// `(committed + i) % R`. The slots of the rows after them then hold anything.
#[derive(Clone, Debug)]
pub struct FeatureCommit {
    /// Control block of the verified rows.
    pub control: Control,
    /// The accepted path.
    pub path: Path,
    /// `[R, W]` F32.
    pub ring: Tensor,
}

/// Takes rows out of the ring: `out[i] = ring[(committed + i) % R]`. More rows than the
/// ring has slots fail the launch.
#[derive(Clone, Debug)]
pub struct FeatureLoad {
    /// Control block whose `committed` is the position of the first row.
    pub control: Control,
    /// `[R, W]` F32.
    pub ring: Tensor,
    /// `[M, W]` F32.
    pub out: Tensor,
}

/// Writes the time of a clock of the device, in nanoseconds, to one slot, once all
/// operations before it are done. The clock starts anywhere and never goes back.
#[derive(Clone, Debug)]
pub struct Stamp {
    /// `[N]` I64.
    pub clock: Tensor,
    /// Which slot, below `N`.
    pub slot: usize,
}
