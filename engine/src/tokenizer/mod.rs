//! Byte-level BPE: text to ids and back.

mod fault;

pub use fault::TokenizerFault;
