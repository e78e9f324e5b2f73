//! `doctor`: what this build can do, what this machine has, and what is missing.

use std::io::Write;

use anyhow::Result;
use foretoken::device::{DeviceInfo, Driver};
use serde::Serialize;

use super::devices::{DeviceReport, reports};
use crate::drivers::{DriverOptions, Gpu, cuda, drivers, hip};
use crate::output::{print_json, size, stdout, wrapped};

/// The whole report, as JSON.
#[derive(Debug, Serialize)]
struct Report {
    version: &'static str,
    profile: &'static str,
    os: &'static str,
    cpu: Cpu,
    cuda: GpuReport,
    hip: GpuReport,
}

/// The CPU driver and its machine.
#[derive(Debug, Default, Serialize)]
struct Cpu {
    name: String,
    arch: String,
    threads: u32,
    features: Vec<String>,
    memory_total: u64,
    memory_free: u64,
    problems: Vec<String>,
}

/// A GPU driver: whether it is in this build, and what it found.
#[derive(Debug, Serialize)]
struct GpuReport {
    built: bool,
    /// Version of the vendor's driver.
    driver: Option<String>,
    /// Architectures this build has kernels for.
    architectures: &'static [&'static str],
    /// Hash of those kernels.
    kernels: Option<&'static str>,
    devices: Vec<DeviceReport>,
    problems: Vec<String>,
}

impl Cpu {
    fn new(driver: Option<&dyn Driver>) -> Self {
        let Some(driver) = driver else { return Self::default() };
        let (devices, problems) = found(driver);
        let Some(info) = devices.into_iter().next() else {
            return Self { problems, ..Self::default() };
        };
        Self {
            name: info.name,
            arch: info.arch,
            threads: info.units,
            features: info.features,
            memory_total: info.memory_total,
            memory_free: info.memory_free,
            problems,
        }
    }
}

impl GpuReport {
    fn new(name: &str, gpu: Option<Gpu>) -> Self {
        let Some(gpu) = gpu else {
            return Self {
                built: false,
                driver: None,
                architectures: &[],
                kernels: None,
                devices: Vec::new(),
                problems: vec![format!("not in this build; build with --features {name}")],
            };
        };
        let (devices, problems) = found(&*gpu.driver);
        let devices = reports(&*gpu.driver, devices);
        Self {
            built: true,
            driver: (gpu.version)(),
            architectures: gpu.architectures,
            kernels: Some(gpu.kernels).filter(|key| !key.is_empty()),
            devices,
            problems,
        }
    }
}

/// A driver's devices and problems; that it could not list them is one more problem.
/// In this order: problems belong to the last look at the devices.
fn found(driver: &dyn Driver) -> (Vec<DeviceInfo>, Vec<String>) {
    let devices = driver.devices();
    let mut problems = driver.problems();
    let devices = devices.unwrap_or_else(|error| {
        problems.push(error.to_string());
        Vec::new()
    });
    (devices, problems)
}

fn report() -> Report {
    let drivers = drivers(DriverOptions::default());
    let cpu = drivers.iter().find(|d| d.name() == "cpu");
    Report {
        version: env!("CARGO_PKG_VERSION"),
        profile: if cfg!(debug_assertions) { "debug" } else { "release" },
        os: std::env::consts::OS,
        cpu: Cpu::new(cpu.map(|d| &**d)),
        cuda: GpuReport::new("cuda", cuda(None)),
        hip: GpuReport::new("hip", hip()),
    }
}

/// Runs the command.
pub(super) fn run(json: bool) -> Result<()> {
    let report = report();
    if json {
        return print_json(&report);
    }
    let mut out = stdout();
    writeln!(out, "foretoken {} ({}, {})", report.version, report.profile, report.os)?;
    let cpu = &report.cpu;
    writeln!(out, "cpu   {}, {}", cpu.name, cpu.arch)?;
    writeln!(out, "      threads {}, kernels for {}", cpu.threads, cpu.features.join(" "))?;
    let (free, total) = (size(cpu.memory_free), size(cpu.memory_total));
    writeln!(out, "      memory {free} free of {total}")?;
    for problem in &cpu.problems {
        writeln!(out, "{}", wrapped(&format!("      problem: {problem}"), 8))?;
    }
    for (name, gpu) in [("cuda", &report.cuda), ("hip", &report.hip)] {
        if !gpu.built {
            writeln!(out, "{name:<5} not in this build")?;
            continue;
        }
        let driver = gpu.driver.as_deref().unwrap_or("none");
        let built = match gpu.architectures {
            [] => "none".to_owned(),
            some => some.join(" "),
        };
        let key = gpu.kernels.map(|key| format!(" ({key})")).unwrap_or_default();
        writeln!(out, "{name:<5} driver {driver}, kernels for {built}{key}")?;
        for device in &gpu.devices {
            for line in std::iter::once(device.line()).chain(device.peer_lines()) {
                writeln!(out, "{}", wrapped(&format!("      {line}"), 8))?;
            }
        }
        for problem in &gpu.problems {
            writeln!(out, "{}", wrapped(&format!("      problem: {problem}"), 8))?;
        }
    }
    Ok(out.flush()?)
}
