//! Device memory: allocations that back the engine's buffers, and typed windows on them
//! that kernels are bound to. No byte of it is touched by the host directly.

mod block;
mod view;

pub(crate) use block::{Block, allocation_bytes};
pub(crate) use view::{Element, Plain, View, address_of};
