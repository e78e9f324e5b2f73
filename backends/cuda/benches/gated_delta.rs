//! Speed of the gated delta rule on a GPU.
//!
//! `cargo bench -p foretoken-cuda --features kernels --bench gated_delta -- [HkxHvxDkxDv,..]
//! [ROWS,..] [step|prefill,..]`
//!
//! Times are those of the device's clock, the best of several replays of a graph with the
//! operation several times on other states, for one operation. `GB/s` counts inputs and
//! outputs once and the state twice, `TFLOP/s` six for each row and element of the state.

#![allow(clippy::print_stdout)]

mod common;

use foretoken::Result;
use foretoken::device::{Activations, Device};
use foretoken::kernel::{Control, GatedDelta, HeadMap, Regime};
use foretoken::tensor::{DType, Shape, Tensor};

/// Operations in a graph.
const COPIES: usize = 8;

fn main() {
    let args: Vec<String> = common::arguments();
    let arg = |i: usize, or: &str| args.get(i).cloned().unwrap_or(or.to_owned());
    let shapes = arg(0, "16x48x128x128,16x16x128x128");
    let (rows, what) = (arg(1, "64,520,2048,4096"), arg(2, "prefill"));
    let Some(device) = common::open() else { return };
    println!(
        "{:>15} {:>8} {:>5} {:>9} {:>8} {:>6} {:>8}  variant",
        "Hk x Hv x d", "what", "rows", "us", "ns/row", "GB/s", "TFLOP/s"
    );
    for shape in shapes.split(',') {
        let sizes: Vec<usize> = shape.split('x').map(|n| n.parse().expect("a shape")).collect();
        let sizes: [usize; 4] = sizes.try_into().expect("HkxHvxDkxDv");
        for what in what.split(',') {
            let regime = if what == "step" { Regime::Step } else { Regime::Prefill };
            for rows in rows.split(',').map(|n| n.parse::<usize>().expect("rows")) {
                let bench = Bench { device: &*device, sizes, regime, rows };
                let (ns, variant) = bench.run().expect("a run");
                let [hk, hv, dk, dv] = sizes;
                let bytes = 4 * (rows * (2 * hk * dk + 2 * hv * dv + 2 * hv) + 2 * hv * dk * dv);
                let flop = 6 * rows * hv * dk * dv;
                println!(
                    "{shape:>15} {what:>8} {rows:>5} {:>9.1} {:>8.1} {:>6.0} {:>8.1}  {variant}",
                    ns / 1e3,
                    ns / rows as f64,
                    bytes as f64 / ns,
                    flop as f64 / ns / 1e3
                );
            }
        }
    }
}

struct Bench<'a> {
    device: &'a dyn Device,
    /// Key heads, value heads, dk, dv.
    sizes: [usize; 4],
    regime: Regime,
    rows: usize,
}

impl Bench<'_> {
    fn tensor(&self, dtype: DType, dims: &[usize]) -> Result<Tensor> {
        let shape = Shape::new(dims).expect("a shape");
        let buffer = self.device.allocate(shape.elements() * dtype.block_bytes(), "bench")?;
        Ok(Tensor::new(&buffer, 0, dtype, shape)?)
    }

    /// Values in `low..high`.
    fn values(&self, dims: &[usize], (low, high): (f32, f32)) -> Result<Tensor> {
        let tensor = self.tensor(DType::F32, dims)?;
        let mut x = 1u32;
        let mut next = || {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            low + (high - low) * (x >> 8) as f32 / (1 << 24) as f32
        };
        // A part again and again: making many numbers takes longer than the run.
        let part: Vec<u8> = (0..(1 << 18) + 12345).flat_map(|_| next().to_le_bytes()).collect();
        let mut stream = self.device.stream()?;
        for start in (0..tensor.bytes()).step_by(part.len()) {
            let size = part.len().min(tensor.bytes() - start);
            stream.write(tensor.buffer(), start, &part[..size])?;
        }
        Ok(tensor)
    }

    /// Nanoseconds of one operation, and the variant that it has.
    fn run(&self) -> Result<(f64, &'static str)> {
        let ([hk, hv, dk, dv], rows) = (self.sizes, self.rows);
        let control = Control(self.tensor(DType::I32, &[4])?);
        let words: Vec<u8> = [rows as i32, 0, 0, 0].iter().flat_map(|x| x.to_le_bytes()).collect();
        self.device.stream()?.write(control.0.buffer(), 0, &words)?;
        let op = GatedDelta {
            control,
            regime: self.regime,
            activations: Activations::Fast,
            qkv: self.values(&[rows, 2 * hk * dk + hv * dv], (-1.0, 1.0))?,
            alpha: self.values(&[rows, hv], (-6.0, 2.0))?,
            beta: self.values(&[rows, hv], (-4.0, 4.0))?,
            a: self.values(&[hv], (-4.0, -0.01))?,
            dt_bias: self.values(&[hv], (-6.0, 2.0))?,
            state: self.values(&[hv, dv, dk], (-0.5, 0.5))?,
            tree: None,
            out: self.tensor(DType::F32, &[rows, hv, dv])?,
            key_heads: hk,
            head_map: HeadMap::Tiled,
            eps: 1e-6,
        };
        let mut kernels = Vec::new();
        for _ in 0..COPIES {
            let state = self.values(&[hv, dv, dk], (-0.5, 0.5))?;
            kernels.push(self.device.prepare(&GatedDelta { state, ..op.clone() }.into())?);
        }
        let variant = kernels.last().map_or("", |kernel| kernel.key().variant);
        let timed = common::Timed::new(self.device, &kernels)?;
        Ok((timed.nanoseconds(&mut *self.device.stream()?)?, variant))
    }
}
