//! Device memory on a CPU: a byte budget, aligned blocks, and typed windows.
//!
//! All raw-pointer access of the driver goes through [`Span`]; a kernel's `unsafe`
//! says only that no other worker touches the range meanwhile. Depends on the seam
//! (`foretoken::device`) alone.

mod block;
mod budget;
mod span;

pub(crate) use block::Block;
pub(crate) use budget::{Budget, Lease};
pub(crate) use span::{Plain, Span, View, bytes_of};
