//! Model files: GGUF and safetensors, read as hostile input.
//!
//! Everything a file says is checked before it is used: arithmetic on its numbers is
//! checked, counts never size an allocation, offsets are held against the file's length.
//! A bad file gives [`Error::Format`](crate::Error::Format) with the file's name and one
//! [`FormatFault`]; it never panics.
//!
//! Depends on `tensor` for element types; knows nothing of models or devices.

mod bytes;
mod fault;
mod file;
mod gguf;
mod safetensors;
mod shown;
mod source;

pub use bytes::SharedBytes;
pub use fault::FormatFault;
pub use file::OpenOptions;
pub(crate) use file::read_small;
pub use gguf::{
    Array, GgufBody, GgufFile, GgufLayout, GgufPlace, GgufWriter, Kind, Metadata, StrArray, Value,
    ValueType,
};
pub use safetensors::SafetensorsModel;
pub(crate) use shown::{Detail, Shown};
pub use source::{TensorInfo, TensorSource};

pub(crate) use shown::ShownPath;
