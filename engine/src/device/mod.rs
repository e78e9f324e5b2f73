//! The seam between the engine and a device driver.
//!
//! A [`Driver`] enumerates and opens devices. A [`Device`] hands out
//! [`Buffer`]s, takes weights in, turns an [`Op`](crate::kernel::Op) into a
//! prepared [`Kernel`] and a list of kernels into a recorded [`Graph`]. A
//! [`Stream`] runs them in order. Everything a step needs that changes from step
//! to step (row count, positions, tokens) lives in device buffers, so that one
//! recorded graph serves every step.
//!
//! May depend on `tensor` and `kernel` (the words the seam speaks in) and on
//! nothing above them. No driver is named here; third parties implement
//! [`Driver`] in crates of their own.

mod buffer;
mod fault;
mod info;
mod link;
mod plan;
mod rehearsal;
mod seam;
mod weight;

pub use buffer::{Buffer, BufferStorage};
pub use fault::DeviceFault;
pub use info::{DeviceInfo, DeviceSpec};
pub use link::{End, Link, verified_link};
pub use plan::{MemoryKind, MemoryPlan, MemorySize, PlanEntry};
pub use rehearsal::{Measured, Rehearsal};
pub use seam::{Device, Driver, Event, Graph, Kernel, Stream, next_device_id};
pub use weight::{Activations, HostTensor, Weight, WeightRole, WeightSpec};
