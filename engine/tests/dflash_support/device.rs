//! A device that hands out memory and weights, counts them, and runs nothing.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use foretoken::Result;
use foretoken::device::{
    Buffer, BufferStorage, Device, DeviceFault, DeviceInfo, Event, Graph, HostTensor, Kernel,
    Stream, Weight, WeightRole, WeightSpec, next_device_id,
};
use foretoken::kernel::Op;
use foretoken::tensor::DType;

/// The device.
pub(crate) struct Counting {
    pub(crate) id: u64,
    /// Bytes handed out for buffers and weights.
    pub(crate) taken: AtomicU64,
    /// A type of weights it refuses.
    pub(crate) refused: Option<DType>,
    /// The largest buffer it hands out.
    pub(crate) most: usize,
}

impl Counting {
    pub(crate) fn new() -> Self {
        let taken = AtomicU64::new(0);
        Self { id: next_device_id(), taken, refused: None, most: usize::MAX }
    }

    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    fn unsupported(&self, op: &'static str, dtype: DType) -> DeviceFault {
        DeviceFault::Unsupported { op, dtype, arch: "none".to_owned() }
    }

    /// A weight of this shape, as a target's table or head would be.
    pub(crate) fn weight(&self, rows: usize, cols: usize, role: WeightRole) -> Weight {
        let spec = WeightSpec {
            dtype: DType::F32,
            rows,
            cols,
            role,
            activations: foretoken::device::Activations::F32,
        };
        Weight::new(spec, 1.0, self.id, 0, Arc::new(()))
    }
}

struct Nothing;

impl BufferStorage for Nothing {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Device for Counting {
    fn id(&self) -> u64 {
        self.id
    }

    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            driver: "counting",
            index: 0,
            name: "counting".to_owned(),
            arch: "none".to_owned(),
            units: 1,
            warp_width: 1,
            memory_total: u64::MAX,
            memory_free: u64::MAX,
            prefill_chunk: 512,
            features: Vec::new(),
        }
    }

    fn allocate(&self, bytes: usize, what: &str) -> Result<Buffer> {
        if bytes > self.most {
            let (asked, free) = (bytes as u64, self.most as u64);
            let device = "counting:0".to_owned();
            let what = what.to_owned();
            return Err(DeviceFault::OutOfMemory { device, what, asked, free }.into());
        }
        self.taken.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(Buffer::new(self.id, bytes, Arc::new(Nothing)))
    }

    fn weight_bytes(&self, spec: &WeightSpec) -> Result<u64> {
        if self.refused == Some(spec.dtype) {
            return Err(self.unsupported("linear", spec.dtype).into());
        }
        Ok(spec.dtype.bytes_for(spec.rows * spec.cols).unwrap() as u64)
    }

    fn load_weight(&self, host: &HostTensor, spec: &WeightSpec) -> Result<Weight> {
        let bytes = self.weight_bytes(spec)?;
        self.taken.fetch_add(bytes, Ordering::Relaxed);
        Ok(Weight::new(*spec, host.scale, self.id, bytes, Arc::new(())))
    }

    fn prepare(&self, op: &Op) -> Result<Arc<dyn Kernel>> {
        Err(self.unsupported(op.name(), DType::F32).into())
    }

    fn record(&self, _: &[Arc<dyn Kernel>]) -> Result<Arc<dyn Graph>> {
        Err(self.unsupported("record", DType::F32).into())
    }

    fn stream(&self) -> Result<Box<dyn Stream>> {
        Ok(Box::new(Still))
    }
}

/// Takes writes and forgets them.
struct Still;

impl Still {
    fn no<T>() -> Result<T> {
        let (driver, call) = ("counting", "stream".to_owned());
        Err(DeviceFault::Failed { driver, call, message: "runs nothing".to_owned() }.into())
    }
}

impl Stream for Still {
    fn write(&mut self, _: &Buffer, _: usize, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn read(&mut self, _: &Buffer, _: usize, _: &mut [u8]) -> Result<()> {
        Self::no()
    }

    fn copy(&mut self, _: &Buffer, _: usize, _: &Buffer, _: usize, _: usize) -> Result<()> {
        Self::no()
    }

    fn fill(&mut self, _: &Buffer, _: usize, _: usize, _: u8) -> Result<()> {
        Ok(())
    }

    fn launch(&mut self, _: &dyn Kernel) -> Result<()> {
        Self::no()
    }

    fn launch_graph(&mut self, _: &dyn Graph) -> Result<()> {
        Self::no()
    }

    fn record_event(&mut self) -> Result<Box<dyn Event>> {
        Self::no()
    }

    fn wait_event(&mut self, _: &dyn Event) -> Result<()> {
        Self::no()
    }

    fn synchronize(&mut self) -> Result<()> {
        Ok(())
    }
}
