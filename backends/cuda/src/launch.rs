//! Kernels with their arguments: what one operation launches.
//!
//! Arguments are packed from typed values and checked against the sizes that the code
//! itself gives for its parameters, so that a launch never reads past them.

use std::any::Any;
use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::sys;
use foretoken::device::{Buffer, DeviceFault, Kernel};
use foretoken::kernel::KernelKey;

use crate::device::{Core, CudaWeight, Entered, Function, Limits, Queue, Site};
use crate::launch_fused::{Packing, Producer};
use crate::memory::{Plain, View};

/// Dynamic shared memory that a block may have without asking.
const SHARED_FREE: u32 = 48 << 10;

/// Most threads of a block.
const MAX_THREADS: u32 = 1024;

/// Most blocks along the second and third dimension of a grid.
const MAX_GRID_YZ: u32 = 65_535;

/// One launch of a kernel. The kernel's first parameter, its `ft::Site`, is added by
/// [`CudaKernel::new`]; arguments are those after it, in order.
#[derive(Clone)]
pub(crate) struct Launch {
    function: Function,
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    arguments: Arguments,
    /// Writes what kernels after its successor read ahead of their own predecessors (`ahead`
    /// in foretoken.cuh).
    publishes: bool,
    /// Address of the state that it reads ahead, and may write.
    state: Option<u64>,
}

/// Packed arguments, and what their addresses point to.
#[derive(Clone, Default)]
struct Arguments {
    /// Each in 8-byte units of its own, so aligned for any parameter.
    words: Vec<u64>,
    /// First word and size in bytes of each.
    places: Vec<(usize, usize)>,
    keep: Vec<Buffer>,
    scratch: bool,
}

/// Scratch memory: undefined before each launch, anybody's after it.
#[derive(Clone)]
pub(crate) struct Scratch(pub(crate) View<u8>);

/// What can be a kernel's argument.
pub(crate) trait Argument {
    /// Appends the argument.
    fn push(self, arguments: &mut ArgumentList<'_>);
}

/// Where arguments are appended.
pub(crate) struct ArgumentList<'a>(&'a mut Arguments);

impl ArgumentList<'_> {
    fn value(&mut self, bytes: &[u8]) {
        let first = self.0.words.len();
        self.0.places.push((first, bytes.len()));
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.0.words.push(u64::from_ne_bytes(word));
        }
    }
}

macro_rules! values {
    ($($t:ty)*) => {
        $(impl Argument for $t {
            fn push(self, arguments: &mut ArgumentList<'_>) {
                arguments.value(&self.to_ne_bytes());
            }
        })*
    };
}
values!(i32 u32 i64 u64 f32 f64);

/// The address.
impl<T: Plain> Argument for &View<T> {
    fn push(self, arguments: &mut ArgumentList<'_>) {
        arguments.value(&self.address().to_ne_bytes());
        arguments.0.keep.push(self.buffer().clone());
    }
}

/// The address, or null.
impl<T: Plain> Argument for Option<&View<T>> {
    fn push(self, arguments: &mut ArgumentList<'_>) {
        match self {
            Some(view) => view.push(arguments),
            None => arguments.value(&0u64.to_ne_bytes()),
        }
    }
}

/// A structure that a kernel takes by value, in words, with what its addresses point to.
#[derive(Default)]
pub(crate) struct Record {
    words: Vec<u64>,
    keep: Vec<Buffer>,
}

impl Record {
    /// Appends an address.
    pub(crate) fn address<T: Plain>(&mut self, view: &View<T>) {
        self.words.push(view.address());
        self.keep.push(view.buffer().clone());
    }

    /// Appends two values of four bytes.
    pub(crate) fn pair(&mut self, first: u32, second: u32) {
        self.words.push(u64::from(first) | u64::from(second) << 32);
    }
}

impl Argument for Record {
    fn push(self, arguments: &mut ArgumentList<'_>) {
        let bytes: Vec<u8> = self.words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        arguments.value(&bytes);
        arguments.0.keep.extend(self.keep);
    }
}

impl Argument for &Scratch {
    fn push(self, arguments: &mut ArgumentList<'_>) {
        self.0.push(arguments);
        arguments.0.scratch = true;
    }
}

impl Launch {
    /// `grid` blocks of `block` threads, without dynamic shared memory.
    pub(crate) fn new(function: &Function, grid: [u32; 3], block: [u32; 3]) -> Self {
        let (function, arguments) = (function.clone(), Arguments::default());
        Self { function, grid, block, shared_bytes: 0, arguments, publishes: false, state: None }
    }

    /// The arguments so far for another kernel, whose grid is still to be said.
    pub(crate) fn of(&self, function: &Function, threads: u32) -> Self {
        let arguments = self.arguments.clone();
        Self { arguments, ..Self::new(function, [1; 3], [threads, 1, 1]) }
    }

    /// With another grid.
    #[must_use]
    pub(crate) fn grid(mut self, grid: [u32; 3]) -> Self {
        self.grid = grid;
        self
    }

    /// With dynamic shared memory; past 48 KiB the device is asked to allow it.
    #[must_use]
    pub(crate) fn shared(mut self, bytes: u32) -> Self {
        self.shared_bytes = bytes;
        self
    }

    /// Writes a control block or a token tree: a graph has the next launch wait for its end.
    #[must_use]
    pub(crate) fn publishing(mut self) -> Self {
        self.publishes = true;
        self
    }

    /// Reads this state ahead of its predecessor, and may write it: a graph has launches with
    /// the same state wait for each other's ends.
    #[must_use]
    pub(crate) fn with_state(mut self, state: &View<f32>) -> Self {
        self.state = Some(state.address());
        self
    }

    /// Whether a launch may take its place in a graph while this one, before it, still runs.
    pub(crate) fn lets_start(&self, next: &Self) -> bool {
        let same_state = self.state.is_some() && self.state == next.state;
        !self.publishes && !same_state
    }

    /// With one more argument.
    #[must_use]
    pub(crate) fn arg(mut self, argument: impl Argument) -> Self {
        argument.push(&mut ArgumentList(&mut self.arguments));
        self
    }

    /// Puts the site in front; checks sizes and limits.
    pub(crate) fn finish(
        mut self,
        core: &Core,
        entered: &Entered<'_>,
        site: Site,
    ) -> Result<Self, DeviceFault> {
        let mut arguments = Arguments { keep: self.arguments.keep, ..Arguments::default() };
        ArgumentList(&mut arguments).value(&site.bytes());
        let base = arguments.words.len();
        arguments.words.append(&mut self.arguments.words);
        let shifted = self.arguments.places.iter().map(|(first, size)| (first + base, *size));
        arguments.places.extend(shifted);
        arguments.scratch = self.arguments.scratch;
        self.arguments = arguments;
        let sizes = self.arguments.places.iter().map(|(_, size)| *size);
        // That there are no more is a matter of the build: it is looked at in the mode for
        // finding mistakes, in which the operation table is run, too.
        let same = self.function.takes(entered, sizes, core.one_by_one)?;
        self.check(same, &core.limits).map_err(|detail| {
            tracing::error!("{}: {detail}", self.function.name());
            DeviceFault::BadOperands { op: self.function.name(), detail }
        })?;
        if self.shared_bytes + self.function.static_shared() > SHARED_FREE {
            // All there is: a later launch with less must not take it from this one.
            let most = core.limits.shared_per_block.saturating_sub(self.function.static_shared());
            self.function.allow_shared(entered, most)?;
        }
        Ok(self)
    }

    /// Which rule the launch breaks.
    fn check(&self, same: bool, limits: &Limits) -> Result<(), &'static str> {
        let holds = |holds, detail| if holds { Ok(()) } else { Err(detail) };
        holds(same, "the arguments are not those of the kernel")?;
        let threads = self.block.iter().try_fold(1u32, |n, d| n.checked_mul(*d)).unwrap_or(0);
        let most = self.function.max_threads().min(MAX_THREADS);
        holds((1..=most).contains(&threads), "a block of a size that the kernel cannot have")?;
        let [x, y, z] = self.grid;
        let grid = x.min(y).min(z) > 0
            && i32::try_from(x).is_ok()
            && y.max(z) <= MAX_GRID_YZ
            && self.block[2] <= 64;
        holds(grid, "a grid of a size that there cannot be")?;
        let shared = self.shared_bytes.checked_add(self.function.static_shared());
        holds(
            shared.is_some_and(|bytes| bytes <= limits.shared_per_block),
            "more shared memory than a block of this device can have",
        )
    }

    /// Addresses of the arguments, as the driver reads them during a call.
    fn pointers(&self) -> Vec<*mut c_void> {
        let words = &self.arguments.words;
        let places = self.arguments.places.iter();
        places.map(|(first, _)| (&raw const words[*first]).cast_mut().cast()).collect()
    }

    /// Adds the launch to a queue.
    fn enqueue(&self, entered: &Entered<'_>, queue: &Queue, name: &str) -> Result<(), DeviceFault> {
        let mut pointers = self.pointers();
        let ([gx, gy, gz], [bx, by, bz]) = (self.grid, self.block);
        // SAFETY: the arguments are of the number and sizes that the kernel has
        // (`check`), are copied during the call, and point to memory that the kernel
        // handle keeps and whose release waits for the device.
        let status = unsafe {
            (entered.work().cuLaunchKernel)(
                self.function.raw(),
                gx,
                gy,
                gz,
                bx,
                by,
                bz,
                self.shared_bytes,
                queue.raw(),
                pointers.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        entered.check(name, status)
    }

    /// Adds the launch to a graph, on its own as yet. Returns its node.
    ///
    /// # Safety
    /// `graph` is the handle of a graph under construction.
    pub(crate) unsafe fn add_to(
        &self,
        entered: &Entered<'_>,
        graph: sys::CUgraph,
        name: &str,
    ) -> Result<sys::CUgraphNode, DeviceFault> {
        let mut pointers = self.pointers();
        let ([gx, gy, gz], [bx, by, bz]) = (self.grid, self.block);
        let parameters = sys::CUDA_KERNEL_NODE_PARAMS {
            func: self.function.raw(),
            gridDimX: gx,
            gridDimY: gy,
            gridDimZ: gz,
            blockDimX: bx,
            blockDimY: by,
            blockDimZ: bz,
            sharedMemBytes: self.shared_bytes,
            kernelParams: pointers.as_mut_ptr(),
            extra: std::ptr::null_mut(),
            kern: std::ptr::null_mut(),
            ctx: std::ptr::null_mut(),
        };
        let mut node = std::ptr::null_mut();
        // SAFETY: the graph is the caller's promise; the arguments as in `enqueue`.
        let status = unsafe {
            (entered.work().cuGraphAddKernelNode_v2)(
                &raw mut node,
                graph,
                std::ptr::null(),
                0,
                &raw const parameters,
            )
        };
        entered.check(&format!("recording {name}"), status).map(|()| node)
    }
}

/// An operation bound to its operands: launches in order, and all they keep alive.
pub(crate) struct CudaKernel {
    core: Arc<Core>,
    key: KernelKey,
    name: Arc<str>,
    launches: Vec<Launch>,
    site: Site,
    producer: Option<Producer>,
    packing: Option<Packing>,
    _weights: Vec<Arc<CudaWeight>>,
}

impl CudaKernel {
    /// Checks the launches and tells each where to report.
    pub(crate) fn new(
        core: &Arc<Core>,
        key: KernelKey,
        launches: Vec<Launch>,
        weights: Vec<Arc<CudaWeight>>,
    ) -> Result<Self, DeviceFault> {
        let site = core.trap.site(key);
        let entered = core.context.enter()?;
        let finish = |launch: Launch| launch.finish(core, &entered, site);
        let launches = launches.into_iter().map(finish).collect::<Result<_, _>>()?;
        drop(entered);
        let (core, name) = (Arc::clone(core), key.to_string().into());
        let (producer, packing) = (None, None);
        Ok(Self { core, key, name, launches, site, producer, packing, _weights: weights })
    }

    /// Says how rows can be made and packed at once.
    #[must_use]
    pub(crate) fn producing(self, producer: Producer) -> Self {
        Self { producer: Some(producer), ..self }
    }

    /// Says what the first launch packs.
    #[must_use]
    pub(crate) fn packing_first(self, packing: Option<Packing>) -> Self {
        Self { packing, ..self }
    }

    /// How its rows can be made and packed at once.
    pub(crate) fn producer(&self) -> Option<&Producer> {
        self.producer.as_ref()
    }

    /// What its first launch packs.
    pub(crate) fn packing(&self) -> Option<&Packing> {
        self.packing.as_ref()
    }

    /// Where it reports.
    pub(crate) fn site(&self) -> Site {
        self.site
    }

    /// Which device it was prepared for.
    pub(crate) fn device(&self) -> u64 {
        self.core.id
    }

    /// As errors name it.
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// In order.
    pub(crate) fn launches(&self) -> &[Launch] {
        &self.launches
    }

    /// Whether a launch uses scratch memory.
    pub(crate) fn uses_scratch(&self) -> bool {
        self.launches.iter().any(|launch| launch.arguments.scratch)
    }

    /// Adds the launches to a queue.
    pub(crate) fn enqueue(&self, entered: &Entered<'_>, queue: &Queue) -> Result<(), DeviceFault> {
        self.launches.iter().try_for_each(|launch| launch.enqueue(entered, queue, &self.name))
    }
}

impl Kernel for CudaKernel {
    fn key(&self) -> KernelKey {
        self.key
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
