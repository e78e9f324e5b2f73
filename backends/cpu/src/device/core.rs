//! What a device, its streams and its launches share.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use foretoken::device::{DeviceFault, DeviceInfo, next_device_id};

use crate::memory::{Block, Budget, Span};
use crate::pool::{CpuKernel, Pool};
use crate::simd::Isa;

/// Shared state of one open device.
pub(crate) struct Core {
    pub(crate) id: u64,
    pub(crate) info: DeviceInfo,
    pub(crate) isa: Isa,
    pub(crate) budget: Arc<Budget>,
    engine: Mutex<Engine>,
    failure: OnceLock<DeviceFault>,
}

/// What a launch needs to itself.
struct Engine {
    pool: Pool,
    scratch: Option<Block>,
}

/// The device for oneself: no launch, no copy of another thread.
pub(crate) struct Turn<'a> {
    core: &'a Core,
    engine: MutexGuard<'a, Engine>,
}

impl Core {
    pub(crate) fn new(info: DeviceInfo, isa: Isa, budget: Arc<Budget>, pool: Pool) -> Arc<Self> {
        Arc::new(Self {
            id: next_device_id(),
            info,
            isa,
            budget,
            engine: Mutex::new(Engine { pool, scratch: None }),
            failure: OnceLock::new(),
        })
    }

    /// Waits for one's turn; fails when the device is unhealthy.
    pub(crate) fn turn(&self) -> Result<Turn<'_>, DeviceFault> {
        let engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        match self.failure.get() {
            Some(failure) => Err(failure.clone()),
            None => Ok(Turn { core: self, engine }),
        }
    }

    /// Makes sure that launches find at least this much scratch memory.
    pub(crate) fn reserve_scratch(&self, bytes: usize) -> Result<(), DeviceFault> {
        let mut turn = self.turn()?;
        if turn.engine.scratch.as_ref().map_or(0, |s| s.span().len()) < bytes {
            // Let go of the old block first: nothing lives in it between launches.
            turn.engine.scratch = None;
            turn.engine.scratch = Some(Block::new(&self.budget, bytes, "scratch memory")?);
        }
        Ok(())
    }
}

impl Turn<'_> {
    /// Runs kernels in order. A failure is final for the device.
    pub(crate) fn run(&mut self, kernels: &[Arc<dyn CpuKernel>]) -> Result<(), DeviceFault> {
        let scratch = self.engine.scratch.as_ref().map_or(Span::empty(), Block::span);
        self.engine.pool.run(kernels, scratch).map_err(|failure| {
            let fault = DeviceFault::Failed {
                driver: "cpu",
                call: failure.kernel,
                message: failure.message,
            };
            self.core.failure.get_or_init(|| fault).clone()
        })
    }
}
