//! Running cases and keeping the score.

use std::fmt;

use super::fault::CaseFault;
use super::rig::Rig;
use crate::Error;
use crate::device::{Device, DeviceFault};

/// What to run.
#[derive(Clone, Debug, Default)]
pub struct OpTable {
    /// Seed of all inputs.
    pub seed: u64,
    /// Run only cases whose name contains this.
    pub filter: Option<String>,
}

/// How the table went.
#[derive(Debug, Default)]
pub struct Report {
    /// Cases that passed, each with a hash of everything read back from the device.
    /// Two runs whose hashes agree computed the same bits.
    pub passed: Vec<(String, u64)>,
    /// Cases the device has no kernel for, with its words.
    pub unsupported: Vec<(String, String)>,
    /// Cases that failed, with the reason.
    pub failed: Vec<(String, CaseFault)>,
}

impl Report {
    /// True when something ran and nothing failed.
    pub fn is_ok(&self) -> bool {
        self.failed.is_empty() && !self.passed.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (passed, failed) = (self.passed.len(), self.failed.len());
        let missing = self.unsupported.len();
        write!(f, "{passed} passed, {failed} failed, {missing} unsupported")?;
        for (case, fault) in self.failed.iter().take(40) {
            write!(f, "\n  {case}: {fault}")?;
        }
        if failed > 40 {
            write!(f, "\n  and {} more", failed - 40)?;
        }
        Ok(())
    }
}

/// Runs cases on one device.
pub(super) struct Runner<'a> {
    device: &'a dyn Device,
    table: &'a OpTable,
    report: Report,
}

impl<'a> Runner<'a> {
    pub(super) fn new(device: &'a dyn Device, table: &'a OpTable) -> Self {
        Self { device, table, report: Report::default() }
    }

    /// Runs one case, unless it is filtered out. The inputs depend on the table's
    /// seed and the name alone.
    pub(super) fn case(
        &mut self,
        name: String,
        body: impl FnOnce(&mut Rig<'_>) -> Result<(), CaseFault>,
    ) {
        if self.table.filter.as_ref().is_some_and(|part| !name.contains(part.as_str())) {
            return;
        }
        let rig = Rig::new(self.device, self.table.seed, &name);
        let outcome = rig.map_err(CaseFault::from).and_then(|mut rig| {
            body(&mut rig)?;
            rig.check_guards()?;
            Ok(rig.digest())
        });
        match outcome {
            Ok(digest) => self.report.passed.push((name, digest)),
            Err(CaseFault::Device(Error::Device(fault @ DeviceFault::Unsupported { .. }))) => {
                self.report.unsupported.push((name, fault.to_string()));
            }
            Err(fault) => self.report.failed.push((name, fault)),
        }
    }

    pub(super) fn finish(self) -> Report {
        self.report
    }
}
