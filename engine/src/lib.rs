//! The Foretoken engine: file formats, tokenizer, model graphs, sampling and
//! generation over a small device seam. It holds no GPU code, no HTTP and no
//! async runtime; drivers live in crates of their own and are handed in.

pub mod cache;
pub mod device;
pub mod error;
pub mod format;
pub mod generate;
pub mod kernel;
pub mod model;
pub mod quant;
pub mod sample;
pub mod speculate;
pub mod tensor;
#[cfg(feature = "testing")]
pub mod testing;
pub mod tokenizer;

pub use error::{Error, Result};
