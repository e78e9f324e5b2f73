//! The seam's traits on a CPU: device, stream, graph, event, weights.
//!
//! Launches run when they are issued and are done when the call returns, so events
//! are always past. One launch or copy runs at a time per device. Depends on every
//! other module of the crate.

mod core;
mod kernel;
mod open;
mod stream;
mod weight;

pub(crate) use self::core::Core;
pub(crate) use kernel::{CpuGraph, Prepared};
pub(crate) use open::CpuDevice;
pub(crate) use stream::CpuStream;
pub(crate) use weight::{CpuWeight, Table};
