//! Block formats: layout, exact decode, reference encode.
//!
//! Depends on `tensor` for the type list; used by `format` tests, by drivers and
//! by tools.

mod fault;

pub use fault::QuantFault;
