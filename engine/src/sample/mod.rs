//! Choosing the next token: sampling parameters, the sampler, penalties, keyed random
//! numbers and log-probabilities.
//!
//! Everything here is a pure function of (logits, history, parameters, position), so plain
//! decoding and speculative verification that call it with the same inputs get the same
//! token, per tree path. It works on host slices and depends only on the crate's error
//! type; no device, model or tokenizer is known here.

mod draw;
mod fault;
mod filter;
mod logprob;
mod math;
mod params;
mod penalty;
mod random;
mod sampler;

pub use draw::{BestOfRow, Draw};
pub use fault::RequestFault;
pub use logprob::{TokenLogprob, TopLogprobs, log_softmax, log_sum_exp, logprob_of};
pub use params::SamplingParams;
pub use random::{philox4x32_10, uniform};
pub use sampler::{Choice, Sampler};
