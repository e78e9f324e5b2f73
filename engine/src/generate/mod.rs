//! Generation: what turns chosen tokens into an answer.

mod stop;

pub use stop::{Emit, StopHit, StopMatcher};
