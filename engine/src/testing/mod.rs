//! The driver-operation table: tests that any driver runs on its device.
//!
//! [`run_op_table`] launches every operation of [`kernel`](crate::kernel) on many
//! shapes and types and compares with plain F64 references (`reference`) written for
//! this purpose alone. `rig` owns the device side: inputs come from a seeded
//! generator, every byte that is not an input is NaN beforehand, rows past the live
//! ones and guard zones around each tensor must stay untouched. `invariance` checks
//! that a row's bits do not depend on its company, `lineage` that a tree row's are
//! those of single steps along its path, and both that the check can fail.
//! `cases` holds one file for each family of operations.
//!
//! ```no_run
//! use foretoken::device::Driver;
//! use foretoken::testing::{OpTable, run_op_table};
//!
//! fn check(driver: &dyn Driver) -> foretoken::Result<()> {
//!     let device = driver.open(0)?;
//!     let report = run_op_table(&*device, &OpTable::default());
//!     assert!(report.is_ok(), "{report}");
//!     Ok(())
//! }
//! ```
//!
//! Behind the feature `testing`. Depends on the seam and on `quant`; no driver is
//! named here, and drivers outside this workspace use it unchanged.

mod cases;
mod compare;
mod fault;
mod invariance;
mod lineage;
mod reference;
mod report;
mod rig;
mod rng;
mod trees;

pub use fault::CaseFault;
pub use report::{OpTable, Report};

use crate::device::Device;

/// Runs the table on a device. Cases a device has no kernel for are listed as
/// unsupported; whether that is acceptable is for the caller to say.
pub fn run_op_table(device: &dyn Device, table: &OpTable) -> Report {
    let mut runner = report::Runner::new(device, table);
    cases::all(&mut runner);
    invariance::all(&mut runner);
    lineage::all(&mut runner);
    runner.finish()
}
