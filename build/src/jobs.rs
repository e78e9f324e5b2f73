//! Running compilers side by side, and not too many of them.

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::BuildFault;

/// Memory to reckon for one compiler process.
const BYTES_PER_JOB: u64 = 2 << 30;

/// How many jobs to run at once: what `setting` asks for (1 at least); otherwise one per
/// core, but no more than fit in the memory that is free.
pub fn limit(setting: Option<usize>, cores: usize, memory_free: Option<u64>) -> usize {
    let fit = memory_free
        .map_or(usize::MAX, |bytes| usize::try_from(bytes / BYTES_PER_JOB).unwrap_or(usize::MAX));
    setting.unwrap_or_else(|| cores.min(fit)).max(1)
}

/// Free memory by `/proc/meminfo`'s text: the line `MemAvailable:  123 kB`.
pub fn memory_available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Runs `work` on every item, at most `limit` at a time (the caller's thread is one of
/// them), and returns the results in the items' order.
pub fn run<T: Sync, R: Send>(items: &[T], limit: usize, work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(items.len()));
    let worker = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else { return };
            let result = work(item);
            done.lock().unwrap_or_else(PoisonError::into_inner).push((index, result));
        }
    };
    thread::scope(|scope| {
        for _ in 1..limit.min(items.len()) {
            scope.spawn(worker);
        }
        worker();
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Runs a command to its end. Returns all it printed, errors last.
///
/// # Errors
/// It could not be started, or ended with anything but success.
pub fn command(command: &mut Command) -> Result<String, BuildFault> {
    let line = || format!("{command:?}").replace('\n', " ");
    let fault = |command, status, output| BuildFault::Command { command, status, output };
    let shown = line();
    let ended = command.output().map_err(|e| fault(shown.clone(), e.to_string(), String::new()))?;
    let mut output = String::from_utf8_lossy(&ended.stdout).into_owned();
    output.push_str(&String::from_utf8_lossy(&ended.stderr));
    if ended.status.success() {
        return Ok(output);
    }
    Err(fault(shown, ended.status.to_string(), output))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn jobs_are_as_many_as_cores_or_memory_allow() {
        assert_eq!(limit(None, 8, None), 8);
        assert_eq!(limit(None, 32, Some(64 << 30)), 32);
        assert_eq!(limit(None, 32, Some(9 << 30)), 4);
        assert_eq!(limit(None, 8, Some(1 << 20)), 1);
        assert_eq!(limit(Some(3), 32, Some(0)), 3);
        assert_eq!(limit(Some(0), 8, None), 1);
    }

    #[test]
    fn free_memory_is_read_or_not_known() {
        let text = "MemTotal:       24000000 kB\nMemAvailable:    2097152 kB\nBuffers: 1 kB\n";
        assert_eq!(memory_available(text), Some(2 << 30));
        for text in ["", "MemAvailable: x kB", "MemAvailable: 5", "MemFree: 5 kB"] {
            assert_eq!(memory_available(text), None, "{text:?}");
        }
    }

    #[test]
    fn results_come_in_order_and_no_more_than_the_limit_run_at_once() {
        let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let items: Vec<u64> = (0..40).collect();
        let deadline = Instant::now() + Duration::from_secs(20);
        let results = run(&items, 3, |&item| {
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            // The first ones wait for each other, which takes three at once.
            while item < 3 && most.load(Ordering::SeqCst) < 3 && Instant::now() < deadline {
                thread::yield_now();
            }
            thread::sleep(Duration::from_millis(if item % 7 == 0 { 4 } else { 1 }));
            running.fetch_sub(1, Ordering::SeqCst);
            item * 10
        });
        assert_eq!(results, items.iter().map(|i| i * 10).collect::<Vec<_>>());
        assert_eq!(most.into_inner(), 3);
        assert!(run(&Vec::<u8>::new(), 4, |_| ()).is_empty());
        assert_eq!(run(&[1, 2], 0, |i| i + 1), [2, 3]);
    }

    #[cfg(unix)]
    #[test]
    fn a_command_that_fails_says_which_and_what_it_printed() {
        let said = command(Command::new("sh").args(["-c", "echo out; echo err >&2"])).unwrap();
        assert_eq!(said, "out\nerr\n");
        let fault = command(Command::new("sh").args(["-c", "echo why\nexit 3"])).unwrap_err();
        let line = fault.to_string();
        assert!(line.contains("exit status: 3") && !line.contains('\n'), "{line}");
        assert!(matches!(fault, BuildFault::Command { output, .. } if output == "why\n"));
        assert!(command(&mut Command::new("/no/such/compiler")).is_err());
    }
}
