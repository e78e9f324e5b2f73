//! Recorded kernels: one graph of the driver, instantiated once.

use std::any::Any;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys;
use foretoken::device::{DeviceFault, Graph};

use super::{Context, Core, Entered, Queue};
use crate::launch::{CudaKernel, Launch};
use crate::launch_fused;

/// `CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC`: when all blocks have let dependents go.
const PROGRAMMATIC_PORT: u8 = sys::CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC as u8;

/// `CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC`.
const PROGRAMMATIC: u8 = sys::CUgraphDependencyType::CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC as u8;

/// Kernels that one launch runs in order.
pub(crate) struct CudaGraph {
    kernels: Vec<Arc<CudaKernel>>,
    scratch: bool,
    device: u64,
    name: Arc<str>,
    /// None if there is nothing to launch.
    executable: Option<Executable>,
}

/// An instantiated graph, destroyed when dropped.
struct Executable {
    context: Arc<Context>,
    raw: sys::CUgraphExec,
}

// SAFETY: the driver orders launches of one executable after each other, and is given
// the handle by one call at a time per queue; it may be used from any thread.
unsafe impl Send for Executable {}
// SAFETY: as above.
unsafe impl Sync for Executable {}

impl CudaGraph {
    /// Records kernels of `core`'s device.
    pub(crate) fn new(
        core: &Arc<Core>,
        kernels: Vec<Arc<CudaKernel>>,
    ) -> Result<Self, DeviceFault> {
        let launches = kernels.iter().map(|kernel| kernel.launches().len()).sum::<usize>();
        let name = match (kernels.first(), kernels.last()) {
            (Some(first), Some(last)) => {
                let (first, last) = (first.name(), last.name());
                format!("a graph of {} kernels, {first} to {last}", kernels.len())
            }
            _ => "an empty graph".to_owned(),
        };
        let executable = if launches == 0 { None } else { Some(record(core, &kernels)?) };
        let scratch = kernels.iter().any(|kernel| kernel.uses_scratch());
        Ok(Self { kernels, scratch, device: core.id, name: name.into(), executable })
    }

    /// Which device it was recorded for.
    pub(crate) fn device(&self) -> u64 {
        self.device
    }

    /// As errors name it.
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// In order.
    pub(crate) fn kernels(&self) -> &[Arc<CudaKernel>] {
        &self.kernels
    }

    /// Whether a kernel uses scratch memory.
    pub(crate) fn uses_scratch(&self) -> bool {
        self.scratch
    }

    /// Adds the graph to a queue.
    pub(crate) fn enqueue(&self, entered: &Entered<'_>, queue: &Queue) -> Result<(), DeviceFault> {
        let Some(executable) = &self.executable else { return Ok(()) };
        // SAFETY: handles of the current context; the kernels keep what they point to, and
        // the release of any of it waits for the device.
        let status = unsafe { (entered.work().cuGraphLaunch)(executable.raw, queue.raw()) };
        entered.check(&self.name, status)
    }
}

/// A chain of kernel nodes, instantiated.
fn record(core: &Core, kernels: &[Arc<CudaKernel>]) -> Result<Executable, DeviceFault> {
    let entered = core.context.enter()?;
    let mut graph = ptr::null_mut();
    // SAFETY: writes one handle; the flags must be 0.
    let status = unsafe { (entered.work().cuGraphCreate)(&raw mut graph, 0) };
    entered.check("cuGraphCreate", status)?;
    // Kernels that wait for their predecessors themselves (`after_previous` in
    // foretoken.cuh) may take their places while those still run.
    let early = core.code().target.number >= 90;
    let made = launch_fused::launches(core, &entered, kernels)
        .and_then(|launches| instantiate(&entered, graph, &launches, early));
    // SAFETY: the template is ours; the executable does not need it.
    unsafe { (entered.work().cuGraphDestroy)(graph) };
    Ok(Executable { context: Arc::clone(&core.context), raw: made? })
}

fn instantiate(
    entered: &Entered<'_>,
    graph: sys::CUgraph,
    launches: &[(Launch, &str)],
    early: bool,
) -> Result<sys::CUgraphExec, DeviceFault> {
    let edge = |early| match early {
        true => sys::CUgraphEdgeData {
            from_port: PROGRAMMATIC_PORT,
            to_port: 0,
            type_: PROGRAMMATIC,
            reserved: [0; 5],
        },
        false => sys::CUgraphEdgeData { from_port: 0, to_port: 0, type_: 0, reserved: [0; 5] },
    };
    let mut last: Option<(sys::CUgraphNode, &Launch)> = None;
    for (launch, name) in launches {
        // SAFETY: the graph is under construction.
        let node = unsafe { launch.add_to(entered, graph, name)? };
        if let Some((last, before)) = last {
            let edge = edge(early && before.lets_start(launch));
            let add = entered.work().cuGraphAddDependencies_v2;
            // SAFETY: two nodes of the graph, and one edge's data; all are read only.
            let status =
                unsafe { add(graph, &raw const last, &raw const node, &raw const edge, 1) };
            entered.check("cuGraphAddDependencies", status)?;
        }
        last = Some((node, launch));
    }
    let mut raw = ptr::null_mut();
    // SAFETY: writes one handle; no flags.
    let status = unsafe { (entered.work().cuGraphInstantiateWithFlags)(&raw mut raw, graph, 0) };
    entered.check("cuGraphInstantiate", status).map(|()| raw)
}

impl Graph for CudaGraph {
    fn len(&self) -> usize {
        self.kernels.len()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for Executable {
    fn drop(&mut self) {
        self.context.leave(|entered| {
            // SAFETY: the one owner gives it back; the driver lets a launch in flight end.
            unsafe { (entered.work().cuGraphExecDestroy)(self.raw) };
        });
    }
}
