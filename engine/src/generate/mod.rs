//! From a prompt to tokens: engine, session, requests, results.
//!
//! [`Engine`] is a loaded model on a device; [`Session`] is one sequence on it with
//! its caches and recorded graphs; [`Engine::generate`] turns a request into text.
//! The top of the crate: may depend on everything below, and nothing depends on it.

mod checkpoint;
mod decode;
mod engine;
mod fault;
mod layout;
mod memory;
mod planner;
mod request;
mod run;
mod select;
mod session;
mod speculation;
mod stats;
mod stop;

pub use checkpoint::Checkpoint;
pub use engine::{Engine, EngineOptions, LoadStage};
pub use fault::GenerateFault;
pub use memory::{SessionOptions, SpeculationRoom};
pub use planner::Planner;
pub use request::{Cancel, FinishReason, GenerateRequest, Generation, Speculate, StreamEvent};
pub use select::select_device;
pub use session::{Session, WantLogits};
pub use speculation::{PassTime, SpeculativeStep, TreeShape};
pub use stats::{Fallback, GenerationStats};
pub use stop::{Emit, StopHit, StopMatcher};
