//! What the benches share: their arguments, the GPU they run on, its clock.

use std::sync::Arc;

use foretoken::Result;
use foretoken::device::{Device, Driver, Graph, Kernel, Stream};
use foretoken::kernel::{Op, Stamp};
use foretoken::tensor::{DType, Shape, Tensor};
use foretoken_cuda::{CudaDriver, CudaOptions};

/// Runs of a graph, of which the best counts.
const REPLAYS: usize = 7;

/// Arguments that are not cargo's.
pub(crate) fn arguments() -> Vec<String> {
    std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect()
}

/// The first GPU with code for it, named; with the portable code of `FORETOKEN_FORCE_PTX`
/// when that is set. None, and why is said, when there is no such GPU.
pub(crate) fn open() -> Option<Arc<dyn Device>> {
    let force_ptx = std::env::var("FORETOKEN_FORCE_PTX").ok().filter(|arch| !arch.is_empty());
    let driver = CudaDriver::with_options(CudaOptions { force_ptx, ..CudaOptions::default() });
    let devices = driver.devices().unwrap_or_default();
    let Some(info) = devices.first().filter(|info| driver.score(info) > 0) else {
        println!("no device: {:?}", driver.problems());
        return None;
    };
    let device = driver.open(info.index).expect("a device");
    println!("{} ({})", info.name, info.arch);
    Some(device)
}

/// A recorded graph of kernels between two looks at the device's clock.
pub(crate) struct Timed {
    graph: Arc<dyn Graph>,
    clock: Tensor,
    kernels: usize,
}

impl Timed {
    /// Records them.
    pub(crate) fn new(device: &dyn Device, kernels: &[Arc<dyn Kernel>]) -> Result<Self> {
        let shape = Shape::new(&[2]).expect("a shape");
        let buffer = device.allocate(shape.elements() * DType::I64.block_bytes(), "clock")?;
        let clock = Tensor::new(&buffer, 0, DType::I64, shape)?;
        let stamp = |slot| device.prepare(&Op::from(Stamp { clock: clock.clone(), slot }));
        let (first, last) = (stamp(0)?, stamp(1)?);
        let all = [&[first], kernels, &[last]].concat();
        Ok(Self { graph: device.record(&all)?, clock, kernels: kernels.len() })
    }

    /// Nanoseconds of a kernel: the mean of the best run.
    pub(crate) fn nanoseconds(&self, stream: &mut dyn Stream) -> Result<f64> {
        let mut best = f64::MAX;
        for _ in 0..REPLAYS {
            stream.launch_graph(&*self.graph)?;
            stream.synchronize()?;
            let mut read = [0; 16];
            stream.read(self.clock.buffer(), 0, &mut read)?;
            let at = |i: usize| i64::from_le_bytes(read[i..i + 8].try_into().unwrap_or_default());
            best = best.min((at(8) - at(0)) as f64);
        }
        Ok(best / self.kernels as f64)
    }
}
