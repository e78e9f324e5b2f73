//! Block formats: layout, exact decode, reference encode.
//!
//! - [`decode`] turns stored bytes into `f32`, bit for bit what the `gguf` Python
//!   package gives (NaN payloads aside).
//! - [`to_affine`] splits blocks into small unsigned codes, scales and offsets:
//!   the form that the integer kernels of every driver start from.
//!
//! - [`encode`] is the reference way back for the types that tools and tests write.
//!
//! The block layouts are those of the GGUF format (ggml types). One unpacking
//! function per type (`legacy`, `kquant`, `lookup`) serves both entry points;
//! `codec` lists them.
//!
//! Depends on `tensor` for the type list; used by `format` tests, by drivers and
//! by tools.

mod affine;
mod codec;
mod decode;
mod encode;
mod fault;
mod kquant;
mod legacy;
mod lookup;
mod scalar;

pub use affine::{AffineLayout, affine_layout, to_affine};
pub use decode::{decode, decode_row, decode_scaled, is_computable};
pub use encode::{encode, is_encodable};
pub use fault::QuantFault;
