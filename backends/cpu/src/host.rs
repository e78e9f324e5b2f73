//! What the operating system says of this machine.

use std::fs;

/// The processor's marketing name.
pub(crate) fn cpu_name() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = ["model name", "Model", "Hardware"].iter().find_map(|key| field(&text, key));
    name.unwrap_or_else(|| format!("{} CPU", std::env::consts::ARCH))
}

fn field(text: &str, key: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key && !value.trim().is_empty()).then(|| value.trim().to_owned())
    })
}

/// Bytes of memory in the machine, or in the container if that is less; `None` when
/// the system does not say.
pub(crate) fn memory_total() -> Option<u64> {
    let total = meminfo(&fs::read_to_string("/proc/meminfo").ok()?, "MemTotal")?;
    Some(cgroup("memory.max").map_or(total, |max| total.min(max)))
}

/// Bytes that can be taken now without swapping (clean file pages count as free).
pub(crate) fn memory_available() -> Option<u64> {
    let free = meminfo(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable")?;
    let room = || {
        let stat = fs::read_to_string("/sys/fs/cgroup/memory.stat").ok()?;
        let clean = stat.lines().find_map(|l| l.strip_prefix("inactive_file "));
        let clean = clean.and_then(|n| n.trim().parse().ok()).unwrap_or(0);
        let taken = cgroup("memory.current")?.saturating_sub(clean);
        Some(cgroup("memory.max")?.saturating_sub(taken))
    };
    Some(room().map_or(free, |room| free.min(room)))
}

/// A value of the control group this process sees as its own, when it is a number.
fn cgroup(name: &str) -> Option<u64> {
    fs::read_to_string(format!("/sys/fs/cgroup/{name}")).ok()?.trim().parse().ok()
}

fn meminfo(text: &str, key: &str) -> Option<u64> {
    let value = field(text, key)?;
    value.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_and_nonsense_is_not() {
        let text = "MemTotal:       16384 kB\nMemAvailable:   1024 kB\nOdd: many\n";
        assert_eq!(meminfo(text, "MemTotal"), Some(16 << 20));
        assert_eq!(meminfo(text, "MemAvailable"), Some(1 << 20));
        assert_eq!(meminfo(text, "Odd"), None);
        assert_eq!(meminfo("MemTotal: 99999999999999999999 kB", "MemTotal"), None);
        assert!(!cpu_name().is_empty());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_machine_has_memory() {
        let (total, free) = (memory_total().unwrap(), memory_available().unwrap());
        assert!(0 < free && free <= total);
    }
}
