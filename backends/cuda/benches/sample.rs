//! Time of choosing tokens on a GPU, from logits: greedy, sampled, and what sampling on the
//! host would copy.
//!
//! `cargo bench -p foretoken-cuda --features kernels --bench sample -- [V,..] [M,..]`
//!
//! A graph holds the operations several times. Times are those of the device's clock, the
//! best of several replays, for one choice of all rows.

#![allow(clippy::print_stdout)]

mod common;

use std::time::Instant;

use foretoken::Result;
use foretoken::device::Device;
use foretoken::kernel::{Control, Op, Sample, SampleParams, TopK};
use foretoken::sample::SamplingParams;
use foretoken::tensor::{DType, Shape, Tensor};

/// Choices in a graph.
const REPEATS: usize = 10;

/// Replays, of which the fastest counts.
const REPLAYS: usize = 7;

fn main() {
    let args: Vec<String> = common::arguments();
    let list = |i: usize, or: &str| -> Vec<usize> {
        let text = args.get(i).cloned().unwrap_or(or.to_owned());
        text.split(',').map(|n| n.parse().expect("a number")).collect()
    };
    let Some(device) = common::open() else { return };
    println!("      V    M   top-1 us  top-64 us  sample us  copy of a row us");
    for v in list(0, "8192,151936,248320") {
        for m in list(1, "1,8,23,64") {
            let [best, candidates, all, copy] = run(&*device, v, m).expect("a run");
            let sample = all - candidates;
            println!("{v:>7} {m:>4} {best:>10.1} {candidates:>10.1} {sample:>10.1} {copy:>17.1}");
        }
    }
}

/// Microseconds of the best token, of the 64 best, of sampling among them, and of copying a
/// row of logits to the host.
fn run(device: &dyn Device, v: usize, m: usize) -> Result<[f64; 4]> {
    let tensor = |dtype: DType, dims: &[usize]| -> Result<Tensor> {
        let shape = Shape::new(dims).expect("a shape");
        let buffer = device.allocate(shape.elements() * dtype.block_bytes(), "bench")?;
        Ok(Tensor::new(&buffer, 0, dtype, shape)?)
    };
    let control = tensor(DType::I32, &[4])?;
    let params = tensor(DType::I32, &[SampleParams::WORDS])?;
    let positions = tensor(DType::I32, &[m])?;
    let logits = tensor(DType::F32, &[m, v])?;
    let mut stream = device.stream()?;
    let words = |words: &[i32]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
    stream.write(control.buffer(), 0, &words(&[m as i32, 0, 0, m as i32]))?;
    let draw = SamplingParams::default().draw(v).expect("sampling a device can do");
    stream.write(params.buffer(), 0, &words(&draw.words()))?;
    stream.write(positions.buffer(), 0, &words(&vec![7; m]))?;
    let mut state = 1u64;
    let mut value = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        // Steep at the top, as the logits of a model are.
        let x = (state >> 40) as f32 / (1u64 << 24) as f32;
        -2.0 * (x + 1e-7).ln() - 4.0
    };
    let bytes: Vec<u8> = (0..m * v).flat_map(|_| value().to_le_bytes()).collect();
    stream.write(logits.buffer(), 0, &bytes)?;

    let top = |k: usize| -> Result<TopK> {
        Ok(TopK {
            control: Control(control.clone()),
            logits: logits.clone(),
            k,
            ids: tensor(DType::I32, &[m, k])?,
            values: tensor(DType::F32, &[m, k])?,
            log_sum_exp: if k > 1 { Some(tensor(DType::F32, &[m])?) } else { None },
        })
    };
    let (one, many) = (top(1)?, top(64)?);
    let sample = Sample {
        control: Control(control.clone()),
        params: SampleParams(params),
        positions,
        ids: many.ids.clone(),
        values: many.values.clone(),
        log_sum_exp: many.log_sum_exp.clone().expect("a sum"),
        vocab: v,
        choices: tensor(DType::I32, &[m, 1])?,
    };
    // Microseconds of these, one after the other.
    let mut time = |ops: &[Op]| -> Result<f64> {
        let mut kernels = Vec::new();
        for _ in 0..REPEATS {
            for op in ops {
                kernels.push(device.prepare(op)?);
            }
        }
        let each = common::Timed::new(device, &kernels)?.nanoseconds(&mut *stream)?;
        Ok(each * ops.len() as f64 / 1e3)
    };
    let greedy = time(&[one.into()])?;
    let candidates = time(&[many.clone().into()])?;
    let all = time(&[many.into(), sample.into()])?;
    let mut row = vec![0; v * 4];
    let mut copy = f64::MAX;
    for _ in 0..REPLAYS {
        let start = Instant::now();
        stream.read(logits.buffer(), 0, &mut row)?;
        copy = copy.min(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok([greedy, candidates, all, copy])
}
