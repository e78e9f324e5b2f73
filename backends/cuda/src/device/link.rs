//! Copies from one device to another, or from one context of a device to another.

use std::any::Any;
use std::sync::Arc;

use foretoken::Result;
use foretoken::device::{DeviceFault, End, Link, Stream};

use super::{Core, CudaStream, Event};

/// Two devices that reach each other's memory.
pub(crate) struct CudaLink {
    ends: [Arc<Core>; 2],
    /// What a sending stream remembers of a copy.
    name: Arc<str>,
}

impl CudaLink {
    /// Lets both devices reach the other's memory.
    ///
    /// # Errors
    /// `NoLink`: the other is not one of this driver, or the NVIDIA driver refuses.
    pub(crate) fn new(
        one: &Arc<Core>,
        other: Option<&Arc<Core>>,
    ) -> std::result::Result<Self, DeviceFault> {
        let name = |core: &Core| core.context.name().to_owned();
        let Some(other) = other else {
            let (to, reason) = ("another driver's device", "they are of different drivers");
            return Err(DeviceFault::NoLink {
                from: name(one),
                to: to.to_owned(),
                reason: reason.to_owned(),
            });
        };
        for (from, to) in [(one, other), (other, one)] {
            from.context.reach(&to.context).map_err(|reason| {
                let (from, to) = (name(from), name(to));
                DeviceFault::NoLink { from, to, reason }
            })?;
        }
        let ends = [Arc::clone(one), Arc::clone(other)];
        let name = format!("a copy between {} and {}", name(one), name(other)).into();
        Ok(Self { ends, name })
    }

    /// Whether copies go from one to the other.
    fn joins(&self, from: &CudaStream, to: &CudaStream) -> bool {
        let [a, b] = self.ends.each_ref().map(|core| core.id);
        [[a, b], [b, a]].contains(&[from.core().id, to.core().id])
    }
}

/// This driver's stream.
fn own(stream: &mut dyn Stream) -> std::result::Result<&mut CudaStream, DeviceFault> {
    let stream: &mut dyn Any = stream;
    stream.downcast_mut().ok_or(DeviceFault::ForeignBuffer { op: "peer copy" })
}

/// Later work of one stream comes after what was issued to the other so far. Contexts are
/// current one at a time.
fn after(then: &CudaStream, first: &CudaStream) -> std::result::Result<(), DeviceFault> {
    let event = Event::new(&first.core().context)?;
    let entered = first.core().context.enter()?;
    event.record(&entered, first.queue())?;
    drop(entered);
    then.queue().wait_for(&then.core().context.enter()?, &event)
}

impl Link for CudaLink {
    fn copy(&self, from: End<'_>, to: End<'_>, bytes: usize) -> Result<()> {
        let (sender, receiver) = (own(from.stream)?, own(to.stream)?);
        if !self.joins(sender, receiver) {
            return Err(DeviceFault::ForeignBuffer { op: "peer copy" }.into());
        }
        let source = sender.range("peer copy", from.buffer, from.offset, bytes)?;
        let place = receiver.range("peer copy", to.buffer, to.offset, bytes)?;
        if bytes == 0 {
            return Ok(());
        }
        // What is still read of the place, and then what is to be read of the copy.
        after(sender, receiver)?;
        let (core, target) = (Arc::clone(sender.core()), Arc::clone(receiver.core()));
        let entered = core.context.enter()?;
        let copied = sender.queue().copy_to(&entered, (place, &target.context), source, bytes);
        drop(entered);
        copied.map_err(|refusal| {
            let [from, to] = [&core, &target].map(|core| core.context.name().to_owned());
            let reason = format!("{}: {}", refusal.call, refusal.words);
            DeviceFault::NoLink { from, to, reason }
        })?;
        sender.note(&self.name);
        after(receiver, sender)?;
        if core.one_by_one { sender.synchronize() } else { Ok(()) }
    }
}
