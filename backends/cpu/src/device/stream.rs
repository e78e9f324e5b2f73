//! Streams and events.

use std::any::Any;
use std::ops::Range;
use std::slice;
use std::sync::Arc;

use foretoken::Result;
use foretoken::device::{Buffer, DeviceFault, Event, Graph, Kernel, Stream};

use super::{Core, CpuGraph, Prepared};
use crate::memory::{Span, bytes_of};

/// An in-order queue whose work is done when a call returns.
pub(crate) struct CpuStream {
    core: Arc<Core>,
}

impl CpuStream {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    /// A checked range of a buffer of this device.
    fn range(
        &self,
        what: &'static str,
        buffer: &Buffer,
        start: usize,
        bytes: usize,
    ) -> Result<(Span<u8>, Range<usize>), DeviceFault> {
        let all = bytes_of(buffer).filter(|_| buffer.device() == self.core.id);
        let all = all.ok_or(DeviceFault::ForeignBuffer { op: what })?;
        match start.checked_add(bytes) {
            Some(end) if end <= all.len() => Ok((all, start..end)),
            end => {
                let (end, size) = (end.unwrap_or(usize::MAX), all.len());
                Err(DeviceFault::OutOfBounds { what, start, end, size })
            }
        }
    }
}

impl Stream for CpuStream {
    fn write(&mut self, dst: &Buffer, offset: usize, src: &[u8]) -> Result<()> {
        let (dst, range) = self.range("write", dst, offset, src.len())?;
        let _turn = self.core.turn()?;
        // SAFETY: the turn keeps every launch and copy of this device away, and safe
        // code holds no borrow of device memory, so `src` is elsewhere.
        unsafe { dst.write(range) }.copy_from_slice(src);
        Ok(())
    }

    fn read(&mut self, src: &Buffer, offset: usize, dst: &mut [u8]) -> Result<()> {
        let (src, range) = self.range("read", src, offset, dst.len())?;
        let _turn = self.core.turn()?;
        // SAFETY: nothing writes device memory during the turn.
        dst.copy_from_slice(unsafe { src.read(range) });
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
        let (to, to_range) = self.range("copy", dst, dst_offset, bytes)?;
        let (from, from_range) = self.range("copy", src, src_offset, bytes)?;
        let (a, b) = (to.part(to_range.clone()).addresses(), from.part(from_range.clone()));
        let b = b.addresses();
        if a.start < b.end && b.start < a.end {
            let detail = "source and destination overlap";
            return Err(DeviceFault::BadOperands { op: "copy", detail }.into());
        }
        let _turn = self.core.turn()?;
        // SAFETY: the turn keeps others away, and the ranges do not overlap.
        unsafe { to.write(to_range).copy_from_slice(from.read(from_range)) };
        Ok(())
    }

    fn fill(&mut self, dst: &Buffer, offset: usize, bytes: usize, value: u8) -> Result<()> {
        let (dst, range) = self.range("fill", dst, offset, bytes)?;
        let _turn = self.core.turn()?;
        // SAFETY: the turn keeps every launch and copy of this device away.
        unsafe { dst.write(range) }.fill(value);
        Ok(())
    }

    fn launch(&mut self, kernel: &dyn Kernel) -> Result<()> {
        let own = kernel.as_any().downcast_ref::<Prepared>();
        let own = own.filter(|k| k.device == self.core.id);
        let own = own.ok_or(DeviceFault::ForeignBuffer { op: "launch" })?;
        Ok(self.core.turn()?.run(slice::from_ref(&own.kernel))?)
    }

    fn launch_graph(&mut self, graph: &dyn Graph) -> Result<()> {
        let own = graph.as_any().downcast_ref::<CpuGraph>();
        let own = own.filter(|g| g.device == self.core.id);
        let own = own.ok_or(DeviceFault::ForeignBuffer { op: "launch" })?;
        Ok(self.core.turn()?.run(&own.kernels)?)
    }

    fn record_event(&mut self) -> Result<Box<dyn Event>> {
        Ok(Box::new(Past { device: self.core.id }))
    }

    fn wait_event(&mut self, event: &dyn Event) -> Result<()> {
        match event.as_any().downcast_ref::<Past>() {
            Some(event) if event.device == self.core.id => Ok(()),
            _ => Err(DeviceFault::ForeignBuffer { op: "wait_event" }.into()),
        }
    }

    fn synchronize(&mut self) -> Result<()> {
        self.core.turn()?;
        Ok(())
    }
}

/// An event of a queue that never lags: it is past as soon as it exists.
struct Past {
    device: u64,
}

impl Event for Past {
    fn wait(&self) -> Result<()> {
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
