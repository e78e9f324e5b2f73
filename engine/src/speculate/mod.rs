//! Speculative decoding: drafters, their proposals, and the choice of how much to draft.
//!
//! A drafter proposes candidates for the tokens after the pending one; a tree of them is
//! verified by the target in one pass (operations in `kernel::tree`), so that the answer
//! is the one plain decoding gives, whatever is proposed. Depends on `model`, `cache`,
//! `kernel`, `device`; `generate` drives it.
//!
//! - `drafter`: what a drafter is to a session; `lookup`: one that copies from the text
//! - `mode`, `outcome`: what is asked for, decided, and heard of a step
//! - `controller`: decides, from `cost` (seconds, measured and kept per device),
//!   `acceptance` (tokens, learnt per position) and `explore` (what may be spent on trials)
//! - `stats`: what a request reports

mod acceptance;
mod controller;
mod cost;
mod drafter;
mod explore;
mod fault;
mod lookup;
mod mode;
mod outcome;
mod stats;

pub use acceptance::{Acceptance, Chance};
pub use controller::{Controller, Estimate};
pub use cost::{
    Calibration, CalibrationPlan, CostCache, CostKey, CostModel, CostPoints, Task, VerifyPoint,
};
pub use drafter::{Candidates, DraftSite, DraftSizes, Drafter, Proposal};
pub use fault::SpeculateFault;
pub use lookup::PromptLookup;
pub use mode::{Choice, SpecLimits, SpecMode};
pub use outcome::{Decision, Outcome, Reason};
pub use stats::{PositionCount, SpecStats};
