//! Threads for templates: with stacks of a chosen size, and waited for only so long.
//!
//! A panic over there is a fault here, but its message goes where the process sends
//! those of all panics. Only the process-wide hook could keep it quiet, and that belongs
//! to the program the engine is part of; so the work is bounded not to panic instead.

use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use super::TemplateFault;

/// Runs `work` on a thread with a stack of that size and waits for `time` at most. Work
/// that takes longer is `OutOfFuel`, and its thread is left to itself.
pub(super) fn on_thread<T: Send + 'static>(
    stack: usize,
    time: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, TemplateFault> {
    let (give, get) = sync_channel(1);
    let running = thread::Builder::new()
        .name("chat-template".to_owned())
        .stack_size(stack)
        // With nobody waiting any more there is nobody to tell.
        .spawn(move || drop(give.send(work())))
        .map_err(|error| TemplateFault::Thread(error.to_string()))?;
    match get.recv_timeout(time) {
        Ok(done) => {
            // Nothing is left to do there but to end.
            let _ = running.join();
            Ok(done)
        }
        Err(RecvTimeoutError::Timeout) => Err(TemplateFault::OutOfFuel),
        Err(RecvTimeoutError::Disconnected) => Err(TemplateFault::Thread("it panicked".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_thread_that_cannot_be_had_or_panics_is_a_fault() {
        let fault = on_thread(usize::MAX / 2, LONG, || ()).unwrap_err();
        assert!(matches!(fault, TemplateFault::Thread(_)), "{fault}");
        let fault = on_thread(1 << 20, LONG, || assert_eq!(1, 2)).unwrap_err();
        assert_eq!(fault, TemplateFault::Thread("it panicked".to_owned()));
        assert_eq!(on_thread(1 << 20, LONG, || 7), Ok(7));
    }

    #[test]
    fn a_thread_that_takes_too_long_is_left() {
        let (end, wait) = channel::<()>();
        let result = on_thread(1 << 20, Duration::from_millis(10), move || wait.recv());
        assert_eq!(result.unwrap_err(), TemplateFault::OutOfFuel);
        // It was still there to hear of this.
        end.send(()).unwrap();
    }
}
