//! Speed of the linear operation, beside what the machine can do.
//!
//! `cargo bench -p foretoken-cpu --bench linear -- [TYPE,..] [NxK,..] [M,..] [ISA] [THREADS]`
//! - `TYPE:f32` takes activations as they are.
//! - THREADS 0 (the default) is the kernel alone on this thread, conversion of the rows
//!   included; with more it is the operation on a device with as many workers, one of
//!   [`REPEATS`] in a graph.
//!
//! Each figure is the fastest of several runs (others may use the machine). `GB/s` counts
//! the packed weight; one that is larger than the caches is read from memory. `%peak` is
//! of the byte dot-product rate of the cores in use.

#![allow(clippy::print_stdout)]

use std::time::{Duration, Instant};

use foretoken::device::{Activations, Driver, HostTensor, WeightRole, WeightSpec};
use foretoken::kernel::{Control, Linear, LinearPart, Op, Regime, RowSet};
use foretoken::tensor::{DType, Shape, Tensor};
use foretoken_cpu::linear::{PackedWeight, Scratch};
use foretoken_cpu::simd::Isa;
use foretoken_cpu::{CpuDriver, CpuOptions};

/// How often a graph holds the operation.
const REPEATS: usize = 4;

const SHAPES: &str =
    "1536x512,512x1536,2048x512,8192x512,3584x1024,1024x3584,6144x1024,248320x1024";

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let arg = |i: usize, or: &str| args.get(i).cloned().unwrap_or(or.to_owned());
    let (types, shapes) = (arg(0, "Q4_K,Q6_K,Q8_0,BF16"), arg(1, SHAPES));
    let rows = arg(2, "1,2,8,16,64,512");
    let isa = arg(3, Isa::detect().name());
    let isa = *Isa::available().iter().find(|i| i.name() == isa).expect("an instruction set");
    let threads: usize = arg(4, "0").parse().expect("a number of threads");

    let peak = vnni_peak();
    let stream = read_bandwidth();
    println!(
        "{isa}, {threads} threads; one core: {peak:.0} GMAC/s of byte dot products, {stream:.1} GB/s read"
    );
    println!(
        "{:<9} {:>12} {:>4} {:>10} {:>8} {:>8} {:>7} {:>7}",
        "type", "NxK", "M", "us", "GB/s", "GMAC/s", "%peak", "bits/w"
    );
    for name in types.split(',') {
        let (base, act) = match name.strip_suffix(":f32") {
            Some(base) => (base, Activations::F32),
            None => (name, Activations::Fast),
        };
        let dtype = *DType::ALL.iter().find(|t| t.name() == base).expect("a type name");
        for shape in shapes.split(',') {
            let (n, k) = shape.split_once('x').expect("NxK");
            let (n, k): (usize, usize) = (n.parse().expect("N"), k.parse().expect("K"));
            let rows = rows.split(',').map(|m| m.parse::<usize>().expect("M"));
            let rows: Vec<usize> = rows.filter(|m| n * k * m <= 1 << 36).collect();
            let case = Case { host: weight(dtype, n, k), act, isa };
            let (bytes, seconds) = match threads {
                0 => case.kernel(&rows),
                _ => case.operation(&rows, threads),
            };
            for (m, s) in rows.iter().zip(seconds) {
                let macs = (n * k * m) as f64 / s / 1e9;
                println!(
                    "{name:<9} {shape:>12} {m:>4} {:>10.1} {:>8.1} {macs:>8.1} {:>6.1}% {:>7.3}",
                    s * 1e6,
                    bytes as f64 / s / 1e9,
                    macs / peak / threads.max(1) as f64 * 100.0,
                    bytes as f64 * 8.0 / (n * k) as f64
                );
            }
        }
    }
}

struct Case {
    host: HostTensor,
    act: Activations,
    isa: Isa,
}

impl Case {
    fn spec(&self) -> WeightSpec {
        let HostTensor { dtype, rows, cols, .. } = self.host;
        WeightSpec { dtype, rows, cols, role: WeightRole::Linear, activations: self.act }
    }

    fn packing_took(&self, started: Instant) {
        let s = started.elapsed().as_secs_f64();
        let elements = (self.host.rows * self.host.cols) as f64;
        println!("# packed in {:.1} ms: {:.0} M weights/s", s * 1e3, elements / s / 1e6);
    }

    /// Bytes of the weight, and seconds for each number of rows, of the kernel alone.
    fn kernel(&self, rows: &[usize]) -> (usize, Vec<f64>) {
        let started = Instant::now();
        let weight = PackedWeight::pack(&self.host, &self.spec(), self.isa).expect("a weight");
        self.packing_took(started);
        let mut scratch = Scratch::default();
        let seconds = rows.iter().map(|&m| {
            let x = inputs(m * self.host.cols);
            let mut out = vec![0.0; m * self.host.rows];
            time(|| weight.multiply(&x, &mut out, &mut scratch).expect("lengths that fit"))
        });
        (weight.bytes(), seconds.collect())
    }

    /// The same of the operation on a device.
    fn operation(&self, rows: &[usize], threads: usize) -> (usize, Vec<f64>) {
        let options =
            CpuOptions { threads: Some(threads), isa: Some(self.isa), memory_limit: None };
        let device = CpuDriver::new(options).open(0).expect("a device");
        let started = Instant::now();
        let weight = device.load_weight(&self.host, &self.spec()).expect("a weight");
        self.packing_took(started);
        let most = rows.iter().copied().max().unwrap_or(1);
        let tensor = |dtype, dims: &[usize]| {
            let shape = Shape::new(dims).expect("a shape");
            let buffer = device.allocate(shape.elements() * 4, "bench").expect("memory");
            Tensor::new(&buffer, 0, dtype, shape).expect("a tensor")
        };
        let control = tensor(DType::I32, &[4]);
        let x = tensor(DType::F32, &[most, self.host.cols]);
        let out = tensor(DType::F32, &[most, self.host.rows]);
        let mut stream = device.stream().expect("a stream");
        let bytes: Vec<u8> =
            inputs(most * self.host.cols).iter().flat_map(|v| v.to_le_bytes()).collect();
        stream.write(x.buffer(), 0, &bytes).expect("a write");
        let size = weight.bytes() as usize;
        let parts = vec![LinearPart { weight, out, accumulate: false }];
        let op = Linear {
            control: Control(control.clone()),
            regime: Regime::Step,
            rows: RowSet::All,
            x,
            parts,
        };
        let kernel = device.prepare(&Op::from(op)).expect("a kernel");
        let graph = device.record(&vec![kernel; REPEATS]).expect("a graph");
        let seconds = rows.iter().map(|&m| {
            stream.write(control.buffer(), 0, &(m as i32).to_le_bytes()).expect("a write");
            let s = time(|| {
                stream.launch_graph(&*graph).expect("a launch");
                stream.synchronize().expect("an end");
            });
            s / REPEATS as f64
        });
        (size, seconds.collect())
    }
}

fn inputs(n: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 37 % 101) as f32 - 50.0) / 50.0).collect()
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

/// Seconds of one call, the least of several.
fn time(mut call: impl FnMut()) -> f64 {
    let (mut best, mut total) = (Duration::MAX, Duration::ZERO);
    let mut runs = 0;
    while runs < 5 || (total < Duration::from_millis(200) && runs < 5000) {
        let started = Instant::now();
        call();
        let took = started.elapsed();
        best = best.min(took);
        total += took;
        runs += 1;
    }
    best.as_secs_f64()
}

/// GMAC/s of byte dot products on registers alone: the arithmetic floor.
fn vnni_peak() -> f64 {
    #[cfg(target_arch = "x86_64")]
    if Isa::Avx512.is_available() {
        // SAFETY: the machine has AVX-512 VNNI.
        let s = time(|| unsafe { dot_loop(100_000) });
        return 100_000.0 * 16.0 * 64.0 / s / 1e9;
    }
    f64::NAN
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vnni")]
fn dot_loop(n: usize) {
    use std::arch::x86_64::*;
    let mut sums = [_mm512_setzero_si512(); 16];
    let a = std::hint::black_box(_mm512_set1_epi8(3));
    let b = std::hint::black_box(_mm512_set1_epi8(5));
    for _ in 0..n {
        for sum in &mut sums {
            *sum = _mm512_dpbusd_epi32(*sum, a, b);
        }
    }
    std::hint::black_box(sums);
}

/// GB/s of reading 512 MB from memory: the bandwidth floor of one core.
fn read_bandwidth() -> f64 {
    let data = vec![1u64; 64 << 20];
    let s = time(|| {
        let sum = data.chunks_exact(8).fold([0u64; 8], |mut s, c| {
            s.iter_mut().zip(c).for_each(|(s, c)| *s = s.wrapping_add(*c));
            s
        });
        std::hint::black_box(sum);
    });
    (data.len() * 8) as f64 / s / 1e9
}
