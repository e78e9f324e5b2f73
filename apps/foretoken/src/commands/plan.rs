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
    total: u64,
    entries: Vec<EntryReport>,
}

/// One line of a plan.
#[derive(Debug, Serialize)]
struct EntryReport {
    kind: &'static str,
    detail: String,
    bytes: u64,
}

impl From<&MemoryPlan> for PlanReport {
    fn from(plan: &MemoryPlan) -> Self {
        let entries = plan.entries.iter().map(|e| EntryReport {
            kind: e.kind.name(),
            detail: e.detail.clone(),
            bytes: e.bytes,
        });
        Self {
            device: plan.device.clone(),
            weights: plan.of(MemoryKind::Weights),
            kv_cache: plan.of(MemoryKind::KvCache),
            state: plan.of(MemoryKind::State),
            scratch: plan.of(MemoryKind::Scratch),
            outputs: plan.of(MemoryKind::Outputs),
            draft: plan.of(MemoryKind::Draft),
            verify: plan.of(MemoryKind::Verify),
            total: plan.total(),
            entries: entries.collect(),
        }
    }
}
