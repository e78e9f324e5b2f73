//! Typed views of device buffers: element types, shapes, tensors.
//!
//! May depend on `device` (for [`Buffer`](crate::device::Buffer)); nothing here
//! knows a file format or a model.

mod dtype;
mod shape;
mod view;

pub use dtype::DType;
pub use shape::{MAX_DIMS, Shape};
pub use view::Tensor;
