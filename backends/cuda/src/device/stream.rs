//! Streams.

use std::sync::Arc;

use foretoken::Result;
use foretoken::device::{Buffer, DeviceFault, Event as SeamEvent, Graph, Kernel, Stream};

use super::open::Prepared;
use super::{Core, CudaEvent, CudaGraph, Entered, Event, Queue, Staging};
use crate::api::SUCCESS;
use crate::launch::CudaKernel;
use crate::memory::address_of;

/// An in-order queue of the device.
pub(crate) struct CudaStream {
    core: Arc<Core>,
    queue: Arc<Queue>,
    /// None only while the stream is dropped.
    staging: Option<Staging>,
    /// What was launched since the last wait, for a failure to name: first, last, how many.
    launched: Option<Launched>,
}

/// First and last of some launches, and how many.
type Launched = (Arc<str>, Arc<str>, usize);

impl CudaStream {
    pub(crate) fn new(core: &Arc<Core>) -> std::result::Result<Self, DeviceFault> {
        let queue = Arc::new(Queue::new(&core.context)?);
        let staging = Some(core.staging()?);
        Ok(Self { core: Arc::clone(core), queue, staging, launched: None })
    }

    /// What the device's handles share.
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// The driver's stream.
    pub(crate) fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    /// The device address of a checked range of a buffer of this device.
    pub(crate) fn range(
        &self,
        what: &'static str,
        buffer: &Buffer,
        start: usize,
        bytes: usize,
    ) -> std::result::Result<u64, DeviceFault> {
        let address = address_of(buffer).filter(|_| buffer.device() == self.core.id);
        let address = address.ok_or(DeviceFault::ForeignBuffer { op: what })?;
        match start.checked_add(bytes) {
            Some(end) if end <= buffer.bytes() => Ok(address + start as u64),
            end => {
                let (end, size) = (end.unwrap_or(usize::MAX), buffer.bytes());
                Err(DeviceFault::OutOfBounds { what, start, end, size })
            }
        }
    }

    /// The staging, which is there but while the stream is dropped.
    fn staging(staging: &mut Option<Staging>) -> std::result::Result<&mut Staging, DeviceFault> {
        staging
            .as_mut()
            .ok_or(DeviceFault::BadOperands { op: "stream", detail: "the stream is being dropped" })
    }

    /// Remembers a launch.
    pub(crate) fn note(&mut self, name: &Arc<str>) {
        let last = Arc::clone(name);
        self.launched = Some(match self.launched.take() {
            Some((first, _, count)) => (first, last, count + 1),
            None => (Arc::clone(name), last, 1),
        });
    }

    fn launch_one(
        &mut self,
        entered: &Entered<'_>,
        kernel: &CudaKernel,
    ) -> std::result::Result<(), DeviceFault> {
        let turn = match kernel.uses_scratch() {
            true => Some(self.core.claim_scratch(entered, &self.queue)?),
            false => None,
        };
        kernel.enqueue(entered, &self.queue)?;
        drop(turn);
        self.note(kernel.name());
        if self.core.one_by_one {
            wait(&self.core, entered, &self.queue, self.launched.as_ref())?;
            self.launched = None;
        }
        Ok(())
    }
}

/// Blocks until the queue is empty. A failure names what was launched.
fn wait(
    core: &Core,
    entered: &Entered<'_>,
    queue: &Queue,
    launched: Option<&Launched>,
) -> std::result::Result<(), DeviceFault> {
    let status = queue.wait(entered);
    if status != SUCCESS {
        let call = match launched {
            None => "waiting for a stream".to_owned(),
            Some((first, _, 1)) => first.to_string(),
            Some((first, last, count)) => {
                format!(
                    "one of {count} launches, {first} to {last} (FORETOKEN_CUDA_SYNC=1 tells which)"
                )
            }
        };
        entered.check(&call, status)?;
    }
    core.trap.check()
}

impl Stream for CudaStream {
    fn write(&mut self, dst: &Buffer, offset: usize, src: &[u8]) -> Result<()> {
        let to = self.range("write", dst, offset, src.len())?;
        let core = Arc::clone(&self.core);
        let entered = core.context.enter()?;
        let staging = Self::staging(&mut self.staging)?;
        Ok(staging.upload(&entered, &self.queue, to, src)?)
    }

    fn read(&mut self, src: &Buffer, offset: usize, dst: &mut [u8]) -> Result<()> {
        let from = self.range("read", src, offset, dst.len())?;
        let core = Arc::clone(&self.core);
        let entered = core.context.enter()?;
        let (queue, launched) = (&self.queue, self.launched.as_ref());
        let wait = || wait(&core, &entered, queue, launched);
        let staging = Self::staging(&mut self.staging)?;
        if dst.is_empty() {
            wait()?;
            staging.reset();
        }
        staging.download(&entered, queue, from, dst, wait)?;
        self.launched = None;
        Ok(())
    }

    fn copy(
        &mut self,
        dst: &Buffer,
        dst_offset: usize,
        src: &Buffer,
        src_offset: usize,
        bytes: usize,
    ) -> Result<()> {
        let to = self.range("copy", dst, dst_offset, bytes)?;
        let from = self.range("copy", src, src_offset, bytes)?;
        let size = bytes as u64;
        if to < from + size && from < to + size {
            let detail = "source and destination overlap";
            return Err(DeviceFault::BadOperands { op: "copy", detail }.into());
        }
        let entered = self.core.context.enter()?;
        if bytes == 0 {
            return Ok(());
        }
        Ok(self.queue.copy(&entered, to, from, bytes)?)
    }

    fn fill(&mut self, dst: &Buffer, offset: usize, bytes: usize, value: u8) -> Result<()> {
        let at = self.range("fill", dst, offset, bytes)?;
        let entered = self.core.context.enter()?;
        if bytes == 0 {
            return Ok(());
        }
        Ok(self.queue.fill(&entered, at, bytes, value)?)
    }

    fn launch(&mut self, kernel: &dyn Kernel) -> Result<()> {
        let own = kernel.as_any().downcast_ref::<Prepared>();
        let own = own.filter(|Prepared(kernel)| kernel.device() == self.core.id);
        let Prepared(kernel) = own.ok_or(DeviceFault::ForeignBuffer { op: "launch" })?;
        let core = Arc::clone(&self.core);
        let entered = core.context.enter()?;
        Ok(self.launch_one(&entered, kernel)?)
    }

    fn launch_graph(&mut self, graph: &dyn Graph) -> Result<()> {
        let own = graph.as_any().downcast_ref::<CudaGraph>();
        let own = own.filter(|graph| graph.device() == self.core.id);
        let graph = own.ok_or(DeviceFault::ForeignBuffer { op: "launch" })?;
        let core = Arc::clone(&self.core);
        let entered = core.context.enter()?;
        if core.one_by_one {
            for kernel in graph.kernels() {
                self.launch_one(&entered, kernel)?;
            }
            return Ok(());
        }
        let turn = match graph.uses_scratch() {
            true => Some(core.claim_scratch(&entered, &self.queue)?),
            false => None,
        };
        graph.enqueue(&entered, &self.queue)?;
        drop(turn);
        self.note(graph.name());
        Ok(())
    }

    fn record_event(&mut self) -> Result<Box<dyn SeamEvent>> {
        let event = Event::new(&self.core.context)?;
        let entered = self.core.context.enter()?;
        event.record(&entered, &self.queue)?;
        Ok(Box::new(CudaEvent { core: Arc::clone(&self.core), event }))
    }

    fn wait_event(&mut self, event: &dyn SeamEvent) -> Result<()> {
        let own = event.as_any().downcast_ref::<CudaEvent>();
        let own = own.filter(|event| event.core.id == self.core.id);
        let own = own.ok_or(DeviceFault::ForeignBuffer { op: "wait_event" })?;
        let entered = self.core.context.enter()?;
        Ok(self.queue.wait_for(&entered, &own.event)?)
    }

    fn synchronize(&mut self) -> Result<()> {
        let entered = self.core.context.enter()?;
        wait(&self.core, &entered, &self.queue, self.launched.as_ref())?;
        self.launched = None;
        if let Some(staging) = &mut self.staging {
            staging.reset();
        }
        Ok(())
    }
}

impl Drop for CudaStream {
    fn drop(&mut self) {
        // The staging may serve another stream once its copies are done.
        let (core, queue) = (&self.core, &self.queue);
        let mut staging = self.staging.take();
        core.context.leave(|entered| {
            if queue.wait(entered) == SUCCESS
                && let Some(mut staging) = staging.take()
            {
                staging.reset();
                core.keep(staging);
            }
        });
    }
}
