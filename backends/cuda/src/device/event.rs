//! Points in a stream.

use std::any::Any;
use std::sync::Arc;

use foretoken::Result;
use foretoken::device::Event as SeamEvent;

use super::{Core, Event};

/// A recorded event.
pub(crate) struct CudaEvent {
    pub(crate) core: Arc<Core>,
    pub(crate) event: Event,
}

impl SeamEvent for CudaEvent {
    fn wait(&self) -> Result<()> {
        let entered = self.core.context.enter()?;
        entered.check("work before an event", self.event.wait(&entered))?;
        Ok(self.core.trap.check()?)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
