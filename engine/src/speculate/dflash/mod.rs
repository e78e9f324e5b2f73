//! DFlash: drafting a block in one pass (arXiv 2602.06036).
//!
//! A few layers read the target's hidden states: what `fc` makes of them serves every
//! layer as context keys and values, which are computed once per committed token and
//! kept. A draft is one pass over the pending token and mask tokens, each of which
//! becomes the candidates for its own position. Embedding table and head are the
//! target's.
//!
//! `config` with its readers `gguf` and `hf` says what a draft file holds, `naming`
//! what its tensors are called, `file` opens it, `weights` plans and loads it;
//! `drafter` runs it, with the memory of `buffers` and the operations of `graph`.

mod buffers;
mod config;
mod drafter;
mod fault;
mod file;
mod gguf;
mod graph;
mod hf;
mod naming;
mod weights;

pub use config::{DflashConfig, DraftLayer};
pub use drafter::DflashDrafter;
pub use fault::DflashFault;
pub use file::DflashFile;
pub use weights::{DflashLayer, DflashModel, DflashPlan};
