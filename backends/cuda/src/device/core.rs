//! What all handles of an open device share.

use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys::CUdevice_attribute as Attribute;
use foretoken::device::{Buffer, DeviceFault, DeviceInfo, next_device_id};

use super::{Built, Code, Context, Entered, Event, Function, Modules, Queue, Staging, Trap};
use crate::api;
use crate::driver::CudaOptions;
use crate::memory::{Block, View};

/// Counters there are.
pub(crate) const ARRIVALS: usize = 8192;

/// Sizes that kernels are shaped by, read from the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Streaming multiprocessors.
    pub(crate) units: u32,
    /// Most shared memory of a block, in bytes.
    pub(crate) shared_per_block: u32,
    /// Shared memory of a multiprocessor, in bytes.
    pub(crate) shared_per_unit: u32,
    /// Threads that a multiprocessor holds.
    pub(crate) threads_per_unit: u32,
    /// Bytes of second-level cache.
    pub(crate) l2_bytes: u32,
}

impl Limits {
    fn read(index: usize) -> Result<Self, crate::calls::Fault> {
        let Ok(calls) = api::api() else { return Ok(Self::default()) };
        let device = calls.device(index)?;
        let get = |which| calls.attribute(device, which);
        Ok(Self {
            units: get(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            shared_per_block: get(
                Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
            )?,
            shared_per_unit: get(
                Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
            )?,
            threads_per_unit: get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?,
            l2_bytes: get(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?,
        })
    }
}

/// Shared state of one open device. Handles keep it, and it keeps the context.
pub(crate) struct Core {
    pub(crate) id: u64,
    pub(crate) info: DeviceInfo,
    pub(crate) limits: Limits,
    pub(crate) context: Arc<Context>,
    pub(crate) trap: Trap,
    /// Launch kernels one by one and wait for each, so that a failure names its kernel.
    pub(crate) one_by_one: bool,
    modules: Modules,
    scratch: Mutex<Option<Buffer>>,
    arrivals: Mutex<Option<View<u32>>>,
    /// The queue that used scratch memory last.
    scratch_user: Mutex<Option<Arc<Queue>>>,
    spare: Mutex<Vec<Staging>>,
}

/// The variable that makes launches wait: `FORETOKEN_CUDA_SYNC=1`.
pub(crate) const SYNC: &str = "FORETOKEN_CUDA_SYNC";

impl Core {
    /// Opens a device with code for it.
    pub(crate) fn new(
        info: DeviceInfo,
        built: Built,
        code: Code,
        options: &CudaOptions,
    ) -> Result<Arc<Self>, DeviceFault> {
        let context = Context::open(info.index, options.memory_limit, options.own_context)?;
        let limits = Limits::read(info.index)
            .map_err(|fault| context.fail(fault.call.to_owned(), fault.words))?;
        let trap = Trap::new(&context)?;
        Ok(Arc::new(Self {
            id: next_device_id(),
            info,
            limits,
            trap,
            one_by_one: std::env::var_os(SYNC).is_some_and(|value| value != "0"),
            modules: Modules::new(built, code),
            scratch: Mutex::default(),
            arrivals: Mutex::default(),
            scratch_user: Mutex::default(),
            spare: Mutex::default(),
            context,
        }))
    }

    /// What the code in use was compiled for.
    pub(crate) fn code(&self) -> Code {
        self.modules.code()
    }

    /// A kernel of a source.
    pub(crate) fn function(
        &self,
        family: &'static str,
        name: &'static str,
    ) -> Result<Function, DeviceFault> {
        self.modules.function(&self.context, family, name)
    }

    /// A buffer of this device.
    pub(crate) fn buffer(&self, bytes: usize, what: &str) -> Result<Buffer, DeviceFault> {
        let block = Block::new(&self.context, bytes, what)?;
        Ok(Buffer::new(self.id, bytes, Arc::new(block)))
    }

    /// Makes scratch memory this large, unless it is: all that kernels will ask for.
    pub(crate) fn reserve_scratch(&self, bytes: usize) -> Result<(), DeviceFault> {
        let mut scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        if scratch.as_ref().map_or(0, Buffer::bytes) < bytes {
            *scratch = Some(self.buffer(bytes, "scratch memory")?);
        }
        Ok(())
    }

    /// Scratch memory of at least this size, the same for all kernels unless one needs
    /// more than was reserved: then kernels prepared earlier keep the smaller one.
    pub(crate) fn scratch(&self, bytes: usize) -> Result<Buffer, DeviceFault> {
        let mut scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(buffer) = scratch.as_ref().filter(|buffer| buffer.bytes() >= bytes) {
            return Ok(buffer.clone());
        }
        // By powers of two, so that what outgrown ones keep is at most as much again.
        let rounded = bytes.max(1 << 20).checked_next_power_of_two().unwrap_or(bytes);
        let buffer = self.buffer(rounded, "scratch memory")?;
        *scratch = Some(buffer.clone());
        Ok(buffer)
    }

    /// Counters that every kernel leaves at zero.
    pub(crate) fn arrivals(self: &Arc<Self>) -> Result<View<u32>, DeviceFault> {
        let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(view) = arrivals.as_ref() {
            return Ok(view.clone());
        }
        let bytes = ARRIVALS * size_of::<u32>();
        let buffer = self.buffer(bytes, "counters")?;
        let foreign = DeviceFault::ForeignBuffer { op: "counters" };
        let view = View::<u32>::part(&buffer, 0, bytes).ok_or(foreign)?;
        let queue = Queue::new(&self.context)?;
        let entered = self.context.enter()?;
        queue.fill(&entered, view.address(), bytes, 0)?;
        entered.check("cuStreamSynchronize", queue.wait(&entered))?;
        *arrivals = Some(view.clone());
        Ok(view)
    }

    /// Before work that uses scratch memory: waits, on the device, for the work of another
    /// queue that does.
    pub(crate) fn claim_scratch(
        &self,
        entered: &Entered<'_>,
        queue: &Arc<Queue>,
    ) -> Result<ScratchTurn<'_>, DeviceFault> {
        let mut user = self.scratch_user.lock().unwrap_or_else(PoisonError::into_inner);
        match user.as_ref() {
            Some(last) if Arc::ptr_eq(last, queue) => {}
            last => {
                if let Some(last) = last {
                    let event = Event::new(&self.context)?;
                    event.record(entered, last)?;
                    queue.wait_for(entered, &event)?;
                }
                *user = Some(Arc::clone(queue));
            }
        }
        Ok(ScratchTurn { _user: user })
    }

    /// Pinned memory, used before or new.
    pub(crate) fn staging(&self) -> Result<Staging, DeviceFault> {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        spare.map_or_else(|| Staging::new(&self.context), Ok)
    }

    /// Takes pinned memory back that no copy uses any more.
    pub(crate) fn keep(&self, staging: Staging) {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).push(staging);
    }
}

/// Held until the work that uses scratch memory is in its queue.
pub(crate) struct ScratchTurn<'a> {
    _user: std::sync::MutexGuard<'a, Option<Arc<Queue>>>,
}
