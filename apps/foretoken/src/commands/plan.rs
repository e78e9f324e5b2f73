//! A memory plan as JSON.

use foretoken::device::{MemoryKind, MemoryPlan};
use serde::Serialize;

/// Bytes by kind, the lines they come from, and the total.
#[derive(Debug, Serialize)]
pub(super) struct PlanReport {
    device: String,
    weights: u64,
    kv_cache: u64,
    state: u64,
    scratch: u64,
    outputs: u64,
    draft: u64,
    verify: u64,
    driver: u64,
    total: u64,
    devices: Vec<DeviceReport>,
    entries: Vec<EntryReport>,
}

/// What a plan has on one device, the model's first.
#[derive(Debug, Serialize)]
struct DeviceReport {
    device: String,
    total: u64,
}

/// One line of a plan.
#[derive(Debug, Serialize)]
struct EntryReport {
    device: String,
    kind: &'static str,
    detail: String,
    bytes: u64,
}

impl From<&MemoryPlan> for PlanReport {
    fn from(plan: &MemoryPlan) -> Self {
        let entries = plan.entries.iter().map(|e| EntryReport {
            device: e.device.clone(),
            kind: e.kind.name(),
            detail: e.detail.clone(),
            bytes: e.bytes,
        });
        let devices = plan.devices().into_iter();
        let devices = devices
            .map(|device| DeviceReport { device: device.to_owned(), total: plan.total_on(device) });
        Self {
            device: plan.device.clone(),
            weights: plan.of(MemoryKind::Weights),
            kv_cache: plan.of(MemoryKind::KvCache),
            state: plan.of(MemoryKind::State),
            scratch: plan.of(MemoryKind::Scratch),
            outputs: plan.of(MemoryKind::Outputs),
            draft: plan.of(MemoryKind::Draft),
            verify: plan.of(MemoryKind::Verify),
            driver: plan.of(MemoryKind::Driver),
            total: plan.total(),
            devices: devices.collect(),
            entries: entries.collect(),
        }
    }
}
