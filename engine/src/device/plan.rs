//! The memory plan: what will be reserved, by kind, before anything is.

use std::fmt;

/// What a piece of planned memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum MemoryKind {
    /// Model weights.
    Weights,
    /// Key and value cache.
    KvCache,
    /// Recurrent and convolution state.
    State,
    /// Activations of a step.
    Scratch,
    /// Logits and small results.
    Outputs,
    /// A drafter's caches, features and activations.
    Draft,
    /// Activations of verification passes.
    Verify,
}

impl MemoryKind {
    /// Short name, as printed and as used in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Weights => "weights",
            Self::KvCache => "kv_cache",
            Self::State => "state",
            Self::Scratch => "scratch",
            Self::Outputs => "outputs",
            Self::Draft => "draft",
            Self::Verify => "verify",
        }
    }
}

/// One line of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanEntry {
    /// What for.
    pub kind: MemoryKind,
    /// What exactly, for example `f16, 4096 tokens, 2 layers`.
    pub detail: String,
    /// Bytes.
    pub bytes: u64,
}

/// Memory to be reserved on one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Device name the plan is for.
    pub device: String,
    /// Lines, in order.
    pub entries: Vec<PlanEntry>,
}

impl MemoryPlan {
    /// An empty plan for a device.
    pub fn new(device: impl Into<String>) -> Self {
        Self { device: device.into(), entries: Vec::new() }
    }

    /// Adds a line.
    pub fn add(&mut self, kind: MemoryKind, detail: impl Into<String>, bytes: u64) {
        self.entries.push(PlanEntry { kind, detail: detail.into(), bytes });
    }

    /// Bytes in all (saturating: a sum that does not fit is past any device).
    pub fn total(&self) -> u64 {
        self.entries.iter().fold(0, |n, e| n.saturating_add(e.bytes))
    }

    /// Bytes of one kind.
    pub fn of(&self, kind: MemoryKind) -> u64 {
        let of_kind = self.entries.iter().filter(|e| e.kind == kind);
        of_kind.fold(0, |n, e| n.saturating_add(e.bytes))
    }
}

impl fmt::Display for MemoryPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "memory on {}", self.device)?;
        for e in &self.entries {
            let size = MemorySize(e.bytes).to_string();
            writeln!(f, "  {:<9} {size:>10}  {}", e.kind.name(), e.detail)?;
        }
        write!(f, "  {:<9} {:>10}", "total", MemorySize(self.total()).to_string())
    }
}

/// Bytes, shown in the binary unit that gives a short number: `1.5 KiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemorySize(pub u64);

impl fmt::Display for MemorySize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut value = self.0 as f64;
        let mut shown = "B";
        for unit in ["KiB", "MiB", "GiB", "TiB"] {
            if value < 1024.0 {
                break;
            }
            value /= 1024.0;
            shown = unit;
        }
        if shown == "B" { write!(f, "{} B", self.0) } else { write!(f, "{value:.1} {shown}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_add_up_and_saturate() {
        let mut p = MemoryPlan::new("cpu:0");
        p.add(MemoryKind::Weights, "a", 3);
        p.add(MemoryKind::Weights, "b", 4);
        p.add(MemoryKind::State, "c", 5);
        assert_eq!((p.of(MemoryKind::Weights), p.total()), (7, 12));
        p.add(MemoryKind::KvCache, "huge", u64::MAX);
        assert_eq!(p.total(), u64::MAX);
        assert!(p.to_string().contains("kv_cache"));
    }

    #[test]
    fn every_line_has_a_unit_that_shows_something() {
        let mut p = MemoryPlan::new("cpu:0");
        p.add(MemoryKind::Weights, "qwen3", 3 << 29);
        p.add(MemoryKind::Outputs, "logits of 1 rows", 34_816);
        let lines = "memory on cpu:0\n  weights      1.5 GiB  qwen3\n  \
                     outputs     34.0 KiB  logits of 1 rows\n  total        1.5 GiB";
        assert_eq!(p.to_string(), lines);
    }

    #[test]
    fn sizes_read_well() {
        let sizes = [0, 1023, 1536, u64::MAX].map(|bytes| MemorySize(bytes).to_string());
        assert_eq!(sizes, ["0 B", "1023 B", "1.5 KiB", "16777216.0 TiB"]);
    }
}
