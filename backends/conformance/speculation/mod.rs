//! Speculation never changes the answer: bits of tree rows, state after commits, ids of
//! whole requests, distributions.
//!
//! Everything is compared with plain decoding of the same engine. Drafters are scripted
//! (they know the answer and miss it on purpose), garbage, silent, prompt lookup and the
//! shipped DFlash model.

mod chi_square;
mod drafters;
mod exact;
mod faults;
mod links;
mod one_launch;
mod placement;
mod rows;
mod support;
