//! Operations on a GPU, beyond the driver-operation table: `contents` has words in device
//! memory that break the contract, `stored` every bit that a table or a cache may hold,
//! `vocabulary` rows of logits of full length. Without a GPU they are skipped, and say so.
// That a test was skipped is for people.
#![allow(clippy::print_stdout)]

mod contents;
mod stored;
mod support;
mod vocabulary;
