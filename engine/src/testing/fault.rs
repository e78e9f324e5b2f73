//! Why a case failed.

/// What a case of the table found wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaseFault {
    /// The device refused or failed.
    #[error(transparent)]
    Device(#[from] crate::Error),
    /// A value is too far from the reference.
    #[error("{tensor}[{index}] is {got}, not {want} within {allowed}")]
    Mismatch {
        /// Operand.
        tensor: &'static str,
        /// Element.
        index: usize,
        /// Computed.
        got: f64,
        /// Reference.
        want: f64,
        /// Tolerance.
        allowed: f64,
    },
    /// An element that should have been written still holds poison.
    #[error("{tensor}[{index}] was not written")]
    Unwritten {
        /// Operand.
        tensor: &'static str,
        /// Element.
        index: usize,
    },
    /// An element past the live rows was written.
    #[error("{tensor}[{index}] lies past the live rows but was written")]
    Touched {
        /// Operand.
        tensor: &'static str,
        /// Element.
        index: usize,
    },
    /// Memory outside a tensor was written.
    #[error("byte {byte} outside the tensor {tensor} was written")]
    Guard {
        /// Operand.
        tensor: &'static str,
        /// Offset in the guard zones.
        byte: usize,
    },
    /// An element differs between two ways of computing the same row.
    #[error("{tensor}[{index}] has the bits {one:#x} alone and {other:#x} in company")]
    Variant {
        /// Operand.
        tensor: &'static str,
        /// Element.
        index: usize,
        /// Bits when computed alone.
        one: u32,
        /// Bits when computed among other rows.
        other: u32,
    },
    /// A deliberately wrong result was accepted: the check itself is broken.
    #[error("the check did not notice {0}")]
    Blind(&'static str),
    /// An operation that must be refused was accepted.
    #[error("accepted although {0}")]
    Accepted(&'static str),
}
