//! `devices`: what can run a model here.

use std::io::Write;

use anyhow::Result;
use foretoken::device::{DeviceInfo, Driver, verified_link};
use serde::Serialize;

use crate::drivers::{DriverOptions, drivers};
use crate::output::{Align, Table, print_json, size, stdout, wrapped};

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
    /// The driver's devices after it, and whether copies to them and back arrive.
    peers: Vec<PeerReport>,
}

/// Copies from one device to another without the host.
#[derive(Debug, Serialize)]
pub(super) struct PeerReport {
    id: String,
    /// Tried just now, both ways.
    verified: bool,
    /// Why not.
    problem: Option<String>,
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
            peers: Vec::new(),
        }
    }

    /// In one line for each device after it, when there are any.
    pub(super) fn peer_lines(&self) -> impl Iterator<Item = String> {
        self.peers.iter().map(|peer| match &peer.problem {
            None => format!("peer copies between {} and {} were verified", self.id, peer.id),
            Some(problem) => problem.clone(),
        })
    }

    /// In one line.
    pub(super) fn line(&self) -> String {
        let (free, total) = (size(self.memory_free), size(self.memory_total));
        format!("{} {} ({}), {free} free of {total}", self.id, self.name, self.arch)
    }
}

/// A driver's devices. Where there are several that can be used, copies between any two are
/// tried.
pub(super) fn reports(driver: &dyn Driver, devices: Vec<DeviceInfo>) -> Vec<DeviceReport> {
    let reports = devices.into_iter().map(|info| {
        let score = driver.score(&info);
        DeviceReport::new(info, score)
    });
    let mut reports: Vec<_> = reports.collect();
    let usable: Vec<_> = reports.iter().filter(|d| d.score > 0).map(|d| d.index).collect();
    if usable.len() < 2 {
        return reports;
    }
    let opened: Vec<_> = usable.iter().map(|&index| driver.open(index)).collect();
    for (i, one) in opened.iter().enumerate() {
        let of = usable.get(i).copied();
        let others = opened.iter().zip(&usable).skip(i + 1);
        let peers = others.map(|(other, index)| {
            let problem = match (one, other) {
                (Ok(one), Ok(other)) => {
                    verified_link(&**one, &**other).err().map(|error| error.to_string())
                }
                (Err(error), _) | (_, Err(error)) => Some(error.to_string()),
            };
            let id = format!("{}:{index}", driver.name());
            PeerReport { id, verified: problem.is_none(), problem }
        });
        if let Some(report) = reports.iter_mut().find(|report| Some(report.index) == of) {
            report.peers = peers.collect();
        }
    }
    reports
}

/// All devices of all drivers.
fn devices() -> Result<Vec<DeviceReport>> {
    let mut all = Vec::new();
    for driver in drivers(DriverOptions::default()) {
        all.extend(reports(&*driver, driver.devices()?));
    }
    Ok(all)
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
    let peers: Vec<_> = devices.iter().flat_map(DeviceReport::peer_lines).collect();
    for d in devices {
        let (free, total) = (size(d.memory_free), size(d.memory_total));
        table.row([d.id, d.arch, d.units.to_string(), free, total, d.name]);
    }
    let mut out = stdout();
    table.write(&mut out)?;
    for line in peers {
        writeln!(out, "{}", wrapped(&line, 2))?;
    }
    Ok(out.flush()?)
}
