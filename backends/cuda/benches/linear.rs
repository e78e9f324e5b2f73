//! Speed of the linear operation on a GPU, beside what its memory can do.
//!
//! `cargo bench -p foretoken-cuda --features kernels --bench linear -- [TYPE,..] [NxK,..]
//! [M,..]`; `TYPE:f32` takes activations as they are.
//!
//! A graph holds the operation with several copies of the weight in turn, together larger
//! than the second-level cache. Times are those of the device's clock, the best of several
//! replays, for one operation: the packing of activations, the decoding of weights and gaps
//! between kernels are in it. `GB/s` counts the weight's bytes. `no rows` is the time of the
//! same launches when no row is live: of weights that are decoded before they are multiplied,
//! and of launching; the rest grows with rows.

#![allow(clippy::print_stdout)]

mod common;

use foretoken::Result;
use foretoken::device::{Activations, Device, HostTensor, Weight, WeightRole, WeightSpec};
use foretoken::kernel::{Control, Linear, LinearPart, Op, Regime, RowSet};
use foretoken::tensor::{DType, Shape, Tensor};

const SHAPES: &str = "10240x5120,5120x17408,34816x5120,248320x5120";

/// Bytes of weights in a graph: several times any second-level cache.
const ROTATED: usize = 512 << 20;

fn main() {
    let args: Vec<String> = common::arguments();
    let arg = |i: usize, or: &str| args.get(i).cloned().unwrap_or(or.to_owned());
    let (types, shapes) = (arg(0, "Q4_K,Q6_K"), arg(1, SHAPES));
    let rows = arg(2, "1,8,16,24,48,512,2048,4096");
    let Some(device) = common::open() else { return };
    println!(
        "{:<9} {:>12} {:>5} {:>9} {:>7} {:>8} {:>9}",
        "type", "NxK", "M", "us", "GB/s", "TFLOP/s", "no rows"
    );
    for name in types.split(',') {
        let (base, activations) = match name.strip_suffix(":f32") {
            Some(base) => (base, Activations::F32),
            None => (name, Activations::Fast),
        };
        let dtype = *DType::ALL.iter().find(|t| t.name() == base).expect("a type name");
        for shape in shapes.split(',') {
            let (n, k) = shape.split_once('x').expect("NxK");
            let (n, k): (usize, usize) = (n.parse().expect("N"), k.parse().expect("K"));
            let case = Case::new(&*device, &weight(dtype, n, k), activations).expect("weights");
            for m in rows.split(',').map(|m| m.parse::<usize>().expect("M")) {
                let [ns, idle] = case.run(m).expect("a run");
                let bytes = case.weights[0].bytes() as f64;
                println!(
                    "{name:<9} {shape:>12} {m:>5} {:>9.1} {:>7.0} {:>8.1} {:>9.1}",
                    ns / 1e3,
                    bytes / ns,
                    2.0 * (m * n * k) as f64 / ns / 1e3,
                    idle / 1e3
                );
            }
        }
    }
}

struct Case<'a> {
    device: &'a dyn Device,
    weights: Vec<Weight>,
}

impl<'a> Case<'a> {
    fn new(device: &'a dyn Device, host: &HostTensor, activations: Activations) -> Result<Self> {
        let HostTensor { dtype, rows, cols, .. } = *host;
        let spec = WeightSpec { dtype, rows, cols, role: WeightRole::Linear, activations };
        let copies = (ROTATED / host.bytes.len().max(1)).clamp(1, 16);
        let weights =
            (0..copies).map(|_| device.load_weight(host, &spec)).collect::<Result<_>>()?;
        Ok(Self { device, weights })
    }

    fn tensor(&self, dtype: DType, dims: &[usize]) -> Result<Tensor> {
        let shape = Shape::new(dims).expect("a shape");
        let size = dtype.block_bytes();
        let buffer = self.device.allocate(shape.elements() * size, "bench")?;
        Ok(Tensor::new(&buffer, 0, dtype, shape)?)
    }

    /// Nanoseconds of one operation of `m` rows, and of the same with none of them live.
    fn run(&self, m: usize) -> Result<[f64; 2]> {
        let WeightSpec { rows, cols, .. } = self.weights[0].spec;
        let control = self.tensor(DType::I32, &[4])?;
        let x = self.tensor(DType::F32, &[m, cols])?;
        let out = self.tensor(DType::F32, &[m, rows])?;
        let mut stream = self.device.stream()?;
        let values = (0..m * cols).map(|i| ((i * 37 % 101) as f32 - 50.0) / 50.0);
        let bytes: Vec<u8> = values.flat_map(f32::to_le_bytes).collect();
        stream.write(x.buffer(), 0, &bytes)?;
        let mut kernels = Vec::new();
        for weight in &self.weights {
            let (weight, out) = (weight.clone(), out.clone());
            let parts = vec![LinearPart { weight, out, accumulate: false }];
            let control = Control(control.clone());
            let regime = if m > 64 { Regime::Prefill } else { Regime::Step };
            let op = Linear { control, regime, rows: RowSet::All, x: x.clone(), parts };
            kernels.push(self.device.prepare(&Op::from(op))?);
        }
        let timed = common::Timed::new(self.device, &kernels)?;
        let mut best = [f64::MAX; 2];
        for (live, best) in [m, 0].into_iter().zip(&mut best) {
            stream.write(control.buffer(), 0, &(live as i32).to_le_bytes())?;
            *best = timed.nanoseconds(&mut *stream)?;
        }
        Ok(best)
    }
}

/// A weight of small values: random codes, factors near 2^-10.
fn weight(dtype: DType, rows: usize, cols: usize) -> HostTensor {
    let mut state = 1u64;
    let mut bytes = vec![0u8; dtype.bytes_for(rows * cols).expect("whole blocks")];
    for word in bytes.chunks_mut(8) {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        word.copy_from_slice(&(state ^ (state >> 29)).to_le_bytes()[..word.len()]);
    }
    let factors: &[usize] = match dtype {
        DType::Q4_1 | DType::Q5_1 | DType::Q4_K | DType::Q5_K => &[0, 2],
        DType::Q2_K => &[80, 82],
        DType::Q3_K => &[108],
        DType::Q6_K => &[208],
        _ => &[0],
    };
    for block in bytes.chunks_exact_mut(dtype.block_bytes()) {
        for &at in factors {
            block[at..at + 2].copy_from_slice(&[0x12, 0x14]);
        }
    }
    HostTensor { dtype, rows, cols, bytes: bytes.into(), scale: 1.0 }
}
