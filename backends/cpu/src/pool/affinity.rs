//! Which CPUs the workers run on.

/// One CPU number for each worker, or nothing when workers should float: on
/// systems without affinity, and when there are more workers than allowed CPUs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Placement {
    /// CPU for worker `i`.
    pub(crate) cpus: Vec<usize>,
    /// More workers than CPUs: waiting must give way at once.
    pub(crate) crowded: bool,
}

/// Threads used when none are asked for: one for each allowed physical core,
/// within the share of CPU time the system grants this process.
pub(crate) fn default_threads() -> usize {
    let granted = std::thread::available_parallelism().map_or(1, usize::from);
    let cores = allowed().iter().filter(|c| c.first_of_core).count();
    if cores == 0 { granted } else { cores.min(granted) }
}

/// Where to put `threads` workers.
pub(crate) fn placement(threads: usize) -> Placement {
    place(threads, &allowed())
}

/// A CPU this process may use.
#[derive(Debug, Clone, Copy)]
struct Cpu {
    number: usize,
    /// False for the second and later hardware threads of a core.
    first_of_core: bool,
}

fn place(threads: usize, allowed: &[Cpu]) -> Placement {
    if allowed.is_empty() {
        let known = std::thread::available_parallelism().map_or(usize::MAX, usize::from);
        return Placement { cpus: Vec::new(), crowded: threads > known };
    }
    if threads > allowed.len() {
        return Placement { cpus: Vec::new(), crowded: true };
    }
    // A core each before two on one core.
    let first = allowed.iter().filter(|c| c.first_of_core);
    let rest = allowed.iter().filter(|c| !c.first_of_core);
    let cpus = first.chain(rest).map(|c| c.number).take(threads).collect();
    Placement { cpus, crowded: false }
}

#[cfg(target_os = "linux")]
fn allowed() -> Vec<Cpu> {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else { return Vec::new() };
    let numbers = (0..rustix::thread::CpuSet::MAX_CPU).filter(|&n| set.is_set(n));
    let mut seen: Vec<String> = Vec::new();
    let mut all = Vec::new();
    for number in numbers {
        let path = format!("/sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list");
        // Without topology every CPU counts as a core of its own.
        let core = std::fs::read_to_string(path).unwrap_or_else(|_| format!("cpu{number}"));
        let first_of_core = !seen.contains(&core);
        if first_of_core {
            seen.push(core);
        }
        all.push(Cpu { number, first_of_core });
    }
    all
}

#[cfg(not(target_os = "linux"))]
fn allowed() -> Vec<Cpu> {
    Vec::new()
}

/// Binds the calling thread to one CPU. Best effort: on failure it floats.
#[cfg(target_os = "linux")]
pub(crate) fn pin(cpu: usize) {
    if cpu >= rustix::thread::CpuSet::MAX_CPU {
        return;
    }
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    if let Err(e) = rustix::thread::sched_setaffinity(None, &set) {
        tracing::debug!(cpu, error = %e, "worker not pinned");
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn pin(_cpu: usize) {}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(list: &[(usize, bool)]) -> Vec<Cpu> {
        list.iter().map(|&(number, first_of_core)| Cpu { number, first_of_core }).collect()
    }

    #[test]
    fn cores_come_before_sibling_threads() {
        let smt = cpus(&[(0, true), (1, false), (4, true), (5, false)]);
        assert_eq!(place(2, &smt).cpus, [0, 4]);
        assert_eq!(place(3, &smt).cpus, [0, 4, 1]);
    }

    #[test]
    fn more_workers_than_cpus_float() {
        let p = place(3, &cpus(&[(0, true), (1, true)]));
        assert_eq!(p, Placement { cpus: vec![], crowded: true });
    }

    #[test]
    fn there_is_always_a_thread() {
        assert!(default_threads() >= 1);
        assert!(placement(1).cpus.len() <= 1);
    }
}
