//! What a step costs on this device: measured once, kept in a file, corrected as it runs.

mod cache;
mod model;
mod plan;
mod points;

pub use cache::{CostCache, CostKey};
pub use model::CostModel;
pub use plan::{Calibration, CalibrationPlan, Task};
pub use points::{CostPoints, VerifyPoint};
