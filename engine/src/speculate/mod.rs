//! Speculative decoding: drafters, their proposals, and the choice of how much to draft.
//!
//! A drafter proposes candidates for the tokens after the pending one; a tree of them is
//! verified by the target in one pass (operations in `kernel::tree`), so that the answer
//! is the one plain decoding gives, whatever is proposed. Depends on `model`, `cache`,
//! `kernel`, `device`; `generate` drives it.

pub mod dflash;
mod drafter;

pub use drafter::{Candidates, DraftSite, DraftSizes, Drafter, Proposal};
