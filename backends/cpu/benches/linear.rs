//! Speed of the linear kernels on one core, beside what the machine can do.
//!
//! `cargo bench -p foretoken-cpu --bench linear -- [TYPE,..] [NxK,..] [M,..] [ISA]`
//! Each figure is the fastest of several runs of at least 50 ms in all (others may use
//! the machine), conversion of the activations included. The weight is read from
//! memory when it is larger than the caches, which `GB/s` then measures.

#![allow(clippy::print_stdout)]

use std::time::{Duration, Instant};

use foretoken::device::{Activations, HostTensor, WeightRole, WeightSpec};
use foretoken::tensor::DType;
use foretoken_cpu::linear::{PackedWeight, Scratch};
use foretoken_cpu::simd::Isa;

const SHAPES: &str =
    "1536x512,512x1536,2048x512,8192x512,3584x1024,1024x3584,6144x1024,248320x1024";

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let arg = |i: usize, or: &str| args.get(i).cloned().unwrap_or(or.to_owned());
    let types = arg(0, "Q4_K,Q6_K,Q8_0,BF16");
    let (shapes, rows) = (arg(1, SHAPES), arg(2, "1,2,8,16,64,512"));
    let isa = arg(3, Isa::detect().name());
    let isa = *Isa::available().iter().find(|i| i.name() == isa).expect("an instruction set");
    let (peak, stream) = (vnni_peak(), read_bandwidth());
    println!("{isa}: dot-product peak {peak:.0} GMAC/s, memory {stream:.1} GB/s on one core");
    println!(
        "{:<8} {:>12} {:>4} {:>10} {:>8} {:>8} {:>7} {:>7}",
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
            let (n, k) = (n.parse().expect("N"), k.parse().expect("K"));
            let weight = weight(dtype, n, k, act, isa);
            for m in rows.split(',').map(|m| m.parse::<usize>().expect("M")) {
                if n * k * m > 1 << 36 {
                    continue;
                }
                let s = time(&weight, m);
                let (macs, bytes) = ((n * k * m) as f64, weight.bytes() as f64);
                println!(
                    "{name:<8} {shape:>12} {m:>4} {:>10.1} {:>8.1} {:>8.1} {:>6.1}% {:>7.3}",
                    s * 1e6,
                    bytes / s / 1e9,
                    macs / s / 1e9,
                    macs / s / 1e7 / peak,
                    bytes * 8.0 / (n * k) as f64
                );
            }
        }
    }
}

/// A weight of small random values: random codes, factors near 2^-10.
fn weight(dtype: DType, rows: usize, cols: usize, act: Activations, isa: Isa) -> PackedWeight {
    let bytes = dtype.bytes_for(rows * cols).expect("whole blocks");
    let mut state = 1u64;
    let mut data = vec![0u8; bytes];
    for word in data.chunks_mut(8) {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        word.copy_from_slice(&(state ^ (state >> 29)).to_le_bytes()[..word.len()]);
    }
    let factors: &[usize] = match dtype {
        DType::Q4_K | DType::Q5_K => &[0, 2],
        DType::Q6_K => &[208],
        DType::Q2_K => &[80, 82],
        DType::Q3_K => &[108],
        DType::BF16 | DType::F16 | DType::Q4_0 | DType::Q5_0 | DType::Q8_0 | DType::IQ4_NL => &[0],
        DType::Q4_1 | DType::Q5_1 => &[0, 2],
        _ => &[0],
    };
    for block in data.chunks_exact_mut(dtype.block_bytes()) {
        for &at in factors {
            block[at..at + 2].copy_from_slice(&[0x12, 0x14]);
        }
    }
    let spec = WeightSpec { dtype, rows, cols, role: WeightRole::Linear, activations: act };
    let host = HostTensor { dtype, rows, cols, bytes: data.into(), scale: 1.0 };
    let started = Instant::now();
    let packed = PackedWeight::pack(&host, &spec, isa).expect("a packable weight");
    let s = started.elapsed().as_secs_f64();
    println!(
        "# packed {dtype} {rows}x{cols} in {:.1} ms, {:.0} M/s",
        s * 1e3,
        (rows * cols) as f64 / s / 1e6
    );
    packed
}

/// Seconds of one product, the least of several.
fn time(weight: &PackedWeight, m: usize) -> f64 {
    let spec = *weight.spec();
    let x: Vec<f32> = (0..m * spec.cols).map(|i| ((i * 37 % 101) as f32 - 50.0) / 50.0).collect();
    let mut out = vec![0.0; m * spec.rows];
    let mut scratch = Scratch::default();
    let mut best = Duration::MAX;
    let mut total = Duration::ZERO;
    let mut runs = 0;
    while runs < 3 || (total < Duration::from_millis(50) && runs < 5000) {
        let started = Instant::now();
        weight.multiply(&x, &mut out, &mut scratch).expect("lengths that fit");
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
        let mut best = f64::MAX;
        for _ in 0..20 {
            let started = Instant::now();
            // SAFETY: the machine has AVX-512 VNNI.
            unsafe { dot_loop(100_000) };
            best = best.min(started.elapsed().as_secs_f64());
        }
        return 100_000.0 * 16.0 * 64.0 / best / 1e9;
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
    let mut best = f64::MAX;
    for _ in 0..5 {
        let started = Instant::now();
        let sum = data.chunks_exact(8).fold([0u64; 8], |mut s, c| {
            s.iter_mut().zip(c).for_each(|(s, c)| *s = s.wrapping_add(*c));
            s
        });
        std::hint::black_box(sum);
        best = best.min(started.elapsed().as_secs_f64());
    }
    (data.len() * 8) as f64 / best / 1e9
}
