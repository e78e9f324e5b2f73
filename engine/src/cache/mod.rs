//! What a sequence leaves behind for its next token: keys and values of attention
//! layers, convolution and recurrent state of delta layers.
//!
//! Everything is reserved once, when a session starts. Depends on `tensor`,
//! `device` and the settings in `model`.

mod kv;
mod recurrent;

pub use kv::{KvCache, KvType};
pub use recurrent::{RecurrentLayer, RecurrentState};
