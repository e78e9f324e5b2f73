//! Model files: GGUF and safetensors, read as hostile input.
//!
//! Depends on `tensor` for element types; knows nothing of models or devices.

mod bytes;
mod fault;

pub use bytes::SharedBytes;
pub use fault::FormatFault;
