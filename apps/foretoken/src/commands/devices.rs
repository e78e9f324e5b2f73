//! `devices`: what can run a model here.

use std::io::Write;

use anyhow::Result;
use foretoken::device::DeviceInfo;
use serde::Serialize;

use crate::drivers::{DriverOptions, drivers};
use crate::output::{Align, Table, print_json, size, stdout};

/// One device, as JSON.
#[derive(Debug, Serialize)]
pub(super) struct DeviceReport {
    id: String,
    driver: &'static str,
    index: usize,
    name: String,
    arch: String,
    units: u32,
    warp_width: u32,
    memory_total: u64,
    memory_free: u64,
    features: Vec<String>,
    score: u64,
}

impl DeviceReport {
    /// A device and its driver's opinion of it.
    pub(super) fn new(info: DeviceInfo, score: u64) -> Self {
        Self {
            id: format!("{}:{}", info.driver, info.index),
            driver: info.driver,
            index: info.index,
            name: info.name,
            arch: info.arch,
            units: info.units,
            warp_width: info.warp_width,
            memory_total: info.memory_total,
            memory_free: info.memory_free,
            features: info.features,
            score,
        }
    }

    /// In one line.
    pub(super) fn line(&self) -> String {
        let (free, total) = (size(self.memory_free), size(self.memory_total));
        format!("{} {} ({}), {free} free of {total}", self.id, self.name, self.arch)
    }
}

/// All devices of all drivers.
fn devices() -> Result<Vec<DeviceReport>> {
    let mut reports = Vec::new();
    for driver in drivers(DriverOptions::default()) {
        for info in driver.devices()? {
            let score = driver.score(&info);
            reports.push(DeviceReport::new(info, score));
        }
    }
    Ok(reports)
}

/// Runs the command.
pub(super) fn run(json: bool) -> Result<()> {
    let devices = devices()?;
    if json {
        return print_json(&devices);
    }
    let mut table = Table::new(&[
        ("device", Align::Left),
        ("arch", Align::Left),
        ("units", Align::Right),
        ("free", Align::Right),
        ("total", Align::Right),
        ("name", Align::Left),
    ]);
    for d in devices {
        let (free, total) = (size(d.memory_free), size(d.memory_total));
        table.row([d.id, d.arch, d.units.to_string(), free, total, d.name]);
    }
    let mut out = stdout();
    table.write(&mut out)?;
    Ok(out.flush()?)
}
