//! What a driver or device can refuse or fail with.

use crate::tensor::DType;

/// A device-side fault. `Unsupported`, `OutOfMemory` and the operand faults leave
/// the device usable; after `Failed` it is unhealthy and must be reopened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceFault {
    /// No driver in this build answers to the name asked for.
    #[error("no device '{asked}' here; available: {available}")]
    NoSuchDevice {
        /// What was asked for, as typed.
        asked: String,
        /// What there is, comma-separated.
        available: String,
    },
    /// The device is there, but nothing in this build runs on it.
    #[error(
        "this build has no {driver} kernels for {arch} (it has: {built}); choose another \
         device, such as cpu"
    )]
    NoKernels {
        /// Driver name.
        driver: &'static str,
        /// Device architecture.
        arch: String,
        /// Architectures this build has kernels for, comma-separated.
        built: String,
    },
    /// The device has no kernel for this operation on these types.
    #[error("{arch} has no kernel for {op} with {dtype} operands")]
    Unsupported {
        /// Operation name.
        op: &'static str,
        /// The operand type that is not handled.
        dtype: DType,
        /// Device architecture.
        arch: String,
    },
    /// An allocation did not fit.
    #[error("out of memory on {device}: {what} needs {asked} bytes, {free} are free")]
    OutOfMemory {
        /// Device name.
        device: String,
        /// What the memory was for.
        what: String,
        /// Bytes asked for.
        asked: u64,
        /// Bytes free.
        free: u64,
    },
    /// A buffer of one device was handed to another.
    #[error("{op}: a buffer belongs to another device")]
    ForeignBuffer {
        /// Operation name.
        op: &'static str,
    },
    /// A tensor or copy reaches past its buffer.
    #[error("{what}: bytes {start}..{end} lie outside a buffer of {size} bytes")]
    OutOfBounds {
        /// The tensor or copy.
        what: &'static str,
        /// First byte.
        start: usize,
        /// One past the last byte.
        end: usize,
        /// Bytes in the buffer.
        size: usize,
    },
    /// The operands of an operation do not fit together.
    #[error("{op}: {detail}")]
    BadOperands {
        /// Operation name.
        op: &'static str,
        /// Which rule is broken.
        detail: &'static str,
    },
    /// A NaN or infinity reached a checked output; the request must end.
    #[error("{op}: a non-finite value was computed (row {row})")]
    NonFinite {
        /// Operation name.
        op: &'static str,
        /// Row it was found in.
        row: usize,
    },
    /// Nothing can be copied between two devices but through the host.
    #[error("no peer copies between {from} and {to}: {reason}")]
    NoLink {
        /// One device, for example `cuda:0`.
        from: String,
        /// The other.
        to: String,
        /// Why not.
        reason: String,
    },
    /// The driver's own failure, in its words. The device is unhealthy from here on.
    #[error("{driver}: {call} failed: {message}")]
    Failed {
        /// Driver name.
        driver: &'static str,
        /// The call or kernel.
        call: String,
        /// The driver's words.
        message: String,
    },
}
