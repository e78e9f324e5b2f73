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
    /// A drafter's weights, caches, features and activations.
    Draft,
    /// Activations of verification passes.
    Verify,
    /// What a driver takes for itself: scratch memory of kernels, code, recorded graphs.
    Driver,
}

impl MemoryKind {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Weights,
        Self::KvCache,
        Self::State,
        Self::Scratch,
        Self::Outputs,
        Self::Draft,
        Self::Verify,
        Self::Driver,
    ];

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
            Self::Driver => "driver",
        }
    }
}

/// One line of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanEntry {
    /// Device it is on, as in [`MemoryPlan::device`].
    pub device: String,
    /// What for.
    pub kind: MemoryKind,
    /// What exactly, for example `f16, 4096 tokens, 2 layers`.
    pub detail: String,
    /// Bytes.
    pub bytes: u64,
}

/// Memory to be reserved, on one device or, with a drafter on another, on two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryPlan {
    /// The model's device, for example `cuda:0 (NVIDIA H200)`.
    pub device: String,
    /// Lines, in order.
    pub entries: Vec<PlanEntry>,
}

impl MemoryPlan {
    /// An empty plan for a device.
    pub fn new(device: impl Into<String>) -> Self {
        Self { device: device.into(), entries: Vec::new() }
    }

    /// Adds a line of the model's device.
    pub fn add(&mut self, kind: MemoryKind, detail: impl Into<String>, bytes: u64) {
        let device = self.device.clone();
        self.add_on(device, kind, detail, bytes);
    }

    /// Adds a line of any device.
    pub fn add_on(
        &mut self,
        device: impl Into<String>,
        kind: MemoryKind,
        detail: impl Into<String>,
        bytes: u64,
    ) {
        let (device, detail) = (device.into(), detail.into());
        self.entries.push(PlanEntry { device, kind, detail, bytes });
    }

    /// The devices, the model's first.
    pub fn devices(&self) -> Vec<&str> {
        let mut devices = vec![self.device.as_str()];
        for entry in &self.entries {
            if !devices.contains(&entry.device.as_str()) {
                devices.push(&entry.device);
            }
        }
        devices
    }

    /// Bytes in all (saturating: a sum that does not fit is past any device).
    pub fn total(&self) -> u64 {
        sum(self.entries.iter())
    }

    /// Bytes on one device.
    pub fn total_on(&self, device: &str) -> u64 {
        sum(self.on(device))
    }

    /// Bytes of one kind, on all devices.
    pub fn of(&self, kind: MemoryKind) -> u64 {
        sum(self.entries.iter().filter(|e| e.kind == kind))
    }

    /// What makes up the bytes on one device, on one line: `weights 1.5 GiB, kv_cache 9.0
    /// MiB`.
    pub fn parts_on(&self, device: &str) -> String {
        let parts = MemoryKind::ALL.iter().filter_map(|&kind| {
            let bytes = sum(self.on(device).filter(|e| e.kind == kind));
            (bytes > 0).then(|| format!("{} {}", kind.name(), MemorySize(bytes)))
        });
        parts.collect::<Vec<_>>().join(", ")
    }

    fn on<'a>(&'a self, device: &'a str) -> impl Iterator<Item = &'a PlanEntry> {
        self.entries.iter().filter(move |e| e.device == device)
    }
}

fn sum<'a>(entries: impl Iterator<Item = &'a PlanEntry>) -> u64 {
    entries.fold(0, |n, e| n.saturating_add(e.bytes))
}

impl fmt::Display for MemoryPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, device) in self.devices().into_iter().enumerate() {
            let gap = if i > 0 { "\n" } else { "" };
            writeln!(f, "{gap}memory on {device}")?;
            for e in self.on(device) {
                let size = MemorySize(e.bytes).to_string();
                writeln!(f, "  {:<9} {size:>10}  {}", e.kind.name(), e.detail)?;
            }
            let total = MemorySize(self.total_on(device)).to_string();
            write!(f, "  {:<9} {total:>10}", "total")?;
        }
        Ok(())
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
    fn devices_have_lines_and_sums_of_their_own() {
        let mut p = MemoryPlan::new("a:0");
        p.add(MemoryKind::Weights, "m", 2 << 20);
        p.add_on("b:1", MemoryKind::Draft, "d", 1 << 20);
        p.add_on("b:1", MemoryKind::Driver, "s", 3 << 10);
        assert_eq!((p.devices(), p.total()), (vec!["a:0", "b:1"], (3 << 20) + (3 << 10)));
        assert_eq!((p.total_on("a:0"), p.total_on("c:0")), (2 << 20, 0));
        assert_eq!(p.parts_on("b:1"), "draft 1.0 MiB, driver 3.0 KiB");
        let shown = p.to_string();
        let lines = "memory on a:0\n  weights      2.0 MiB  m\n  total        2.0 MiB\n\
                     memory on b:1\n  draft        1.0 MiB  d\n  driver       3.0 KiB  s\n";
        assert!(shown.starts_with(lines), "{shown}");
    }

    #[test]
    fn sizes_read_well() {
        let sizes = [0, 1023, 1536, u64::MAX].map(|bytes| MemorySize(bytes).to_string());
        assert_eq!(sizes, ["0 B", "1023 B", "1.5 KiB", "16777216.0 TiB"]);
    }
}
