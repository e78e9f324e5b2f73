//! The seam's traits on an NVIDIA GPU.
//!
//! - `context`: the device's context; every driver call goes through an
//!   [`Entered`], which stands for "the context is current on this thread";
//! - `queue`: streams, events and copies as calls of an `Entered`;
//! - `module`: code that was loaded, and functions in it;
//! - `select`: which of the embedded images a device gets;
//! - `trap`: how kernels report contents of memory that break a rule;
//! - `core`: what all handles of an open device share;
//! - `staging`: pinned memory between the host's and the device's;
//! - `open`, `stream`, `event`, `graph`, `weight`: the handles themselves;
//! - `link`: copies from one device to another;
//! - `bricks`: weights laid out for tensor cores when they are taken in.
//!
//! A failed driver call (lack of memory aside) and a kernel's report are final: each later
//! call fails at once with the same words.

mod bricks;
mod context;
mod core;
mod event;
mod graph;
mod link;
mod module;
mod open;
mod queue;
mod select;
mod staging;
mod stream;
mod trap;
mod weight;

pub(crate) use self::core::{ARRIVALS, Core, Limits};
pub(crate) use context::{Context, Entered};
pub(crate) use event::CudaEvent;
pub(crate) use graph::CudaGraph;
pub(crate) use link::CudaLink;
pub(crate) use module::{Function, Modules};
pub(crate) use open::open;
pub(crate) use queue::{Event, Queue};
#[cfg(test)]
pub(crate) use select::tests as select_tests;
pub(crate) use select::{Built, Code, FORCE_PTX, Target};
pub(crate) use staging::Staging;
pub(crate) use stream::CudaStream;
pub(crate) use trap::{Site, Trap};
pub(crate) use weight::{CudaWeight, Layout};
