//! Speed of attention on a GPU: steps beside what its memory can do, prefill beside what
//! its tensor cores can.
//!
//! `cargo bench -p foretoken-cuda --features kernels --bench attention -- [TYPE,..]
//! [HqxHkvxD,..] [step|tree|prefill,..]`
//!
//! A graph holds the operation several times, with caches of its own each, together larger
//! than the second-level cache unless the context is long. Times are those of the device's
//! clock, the best of several replays, for one operation. `GB/s` counts keys and values
//! once, `TFLOP/s` four for each query, visible key and value of a head.

#![allow(clippy::print_stdout)]

mod common;

use foretoken::Result;
use foretoken::device::Device;
use foretoken::kernel::{Attention, AttentionMask, Control, KvPair, Regime, TreeRows};
use foretoken::tensor::{DType, Shape, Tensor};

/// Bytes of caches in a graph: several times any second-level cache.
const ROTATED: usize = 256 << 20;

fn main() {
    let args: Vec<String> = common::arguments();
    let arg = |i: usize, or: &str| args.get(i).cloned().unwrap_or(or.to_owned());
    let (types, heads, what) = (arg(0, "F16"), arg(1, "24x4x256"), arg(2, "step,tree,prefill"));
    let Some(device) = common::open() else { return };
    println!(
        "{:<5} {:>9} {:>8} {:>5} {:>6} {:>9} {:>6} {:>8}  variant",
        "type", "heads", "what", "rows", "before", "us", "GB/s", "TFLOP/s"
    );
    for name in types.split(',') {
        let dtype = *DType::ALL.iter().find(|t| t.name() == name).expect("a type name");
        for heads in heads.split(',') {
            let sizes: Vec<usize> =
                heads.split('x').map(|n| n.parse().expect("HqxHkvxD")).collect();
            let &[q_heads, kv_heads, d] = &sizes[..] else { panic!("HqxHkvxD") };
            let bench = Bench { device: &*device, dtype, q_heads, kv_heads, d };
            for what in what.split(',') {
                let calls: Vec<(usize, usize)> = match what {
                    "prefill" => vec![(512, 0), (4096, 0), (4096, 28672)],
                    _ => [512, 4096, 65536]
                        .into_iter()
                        .flat_map(|before| [1, 8, 16, 23].map(|rows| (rows, before)))
                        .collect(),
                };
                for (rows, before) in calls {
                    let (ns, variant) = bench.run(what, rows, before).expect("a run");
                    let bytes = ((before + rows) * kv_heads * d * 4) as f64;
                    let pairs = rows * before + rows * (rows + 1) / 2;
                    let flop = 4.0 * (pairs * q_heads * d) as f64;
                    println!(
                        "{name:<5} {heads:>9} {what:>8} {rows:>5} {before:>6} {:>9.1} {:>6.0} \
                         {:>8.1}  {variant}",
                        ns / 1e3,
                        bytes / ns,
                        flop / ns / 1e3
                    );
                }
            }
        }
    }
}

struct Bench<'a> {
    device: &'a dyn Device,
    dtype: DType,
    q_heads: usize,
    kv_heads: usize,
    d: usize,
}

impl Bench<'_> {
    fn tensor(&self, dtype: DType, dims: &[usize]) -> Result<Tensor> {
        let shape = Shape::new(dims).expect("a shape");
        let buffer = self.device.allocate(shape.elements() * dtype.block_bytes(), "bench")?;
        Ok(Tensor::new(&buffer, 0, dtype, shape)?)
    }

    fn ints(&self, dims: &[usize], values: &[i32]) -> Result<Tensor> {
        let tensor = self.tensor(DType::I32, dims)?;
        let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        self.device.stream()?.write(tensor.buffer(), 0, &bytes)?;
        Ok(tensor)
    }

    /// Values in `-1..1`.
    fn values(&self, dtype: DType, dims: &[usize], seed: u32) -> Result<Tensor> {
        let tensor = self.tensor(dtype, dims)?;
        let mut x = seed;
        let mut next = || {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (x >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        let one = |x: f32| match dtype {
            DType::F16 => half::f16::from_f32(x).to_le_bytes().to_vec(),
            DType::BF16 => half::bf16::from_f32(x).to_le_bytes().to_vec(),
            _ => x.to_le_bytes().to_vec(),
        };
        // A part again and again: making many numbers takes longer than the run.
        let part: Vec<u8> = (0..(1 << 18) + 12345).flat_map(|_| one(next())).collect();
        let mut stream = self.device.stream()?;
        for start in (0..tensor.bytes()).step_by(part.len()) {
            let size = part.len().min(tensor.bytes() - start);
            stream.write(tensor.buffer(), start, &part[..size])?;
        }
        Ok(tensor)
    }

    /// Each row below one of the two before it.
    fn tree(&self, rows: usize) -> Result<TreeRows> {
        let parents: Vec<i32> =
            (0..rows as i32).map(|row| (row - 1 - (row & 1)).max(row.min(1) - 1)).collect();
        let mut depths = vec![0; rows];
        for row in 1..rows {
            depths[row] = depths[parents[row] as usize] + 1;
        }
        Ok(TreeRows {
            parents: self.ints(&[rows], &parents)?,
            depths: self.ints(&[rows], &depths)?,
            masks: self.ints(&[rows, 2], &vec![0; 2 * rows])?,
        })
    }

    /// Nanoseconds of one operation, and the variant that it has.
    fn run(&self, what: &str, rows: usize, before: usize) -> Result<(f64, &'static str)> {
        let regime = if what == "prefill" { Regime::Prefill } else { Regime::Step };
        let dims = [before + rows, self.kv_heads, self.d];
        let cache_bytes = 2 * dims.iter().product::<usize>() * self.dtype.block_bytes();
        let copies = match regime {
            Regime::Prefill => 1,
            _ => (ROTATED / cache_bytes).clamp(2, 16),
        };
        let control = Control(self.ints(&[4], &[rows as i32, before as i32, 0, 0])?);
        let q = self.values(DType::F32, &[rows, self.q_heads, self.d], 3)?;
        let out = self.tensor(DType::F32, &[rows, self.q_heads, self.d])?;
        let mask = match what {
            "tree" => AttentionMask::Tree(self.tree(rows)?),
            _ => AttentionMask::Causal,
        };
        let mut kernels = Vec::new();
        for seed in 0..copies as u32 {
            let k = self.values(self.dtype, &dims, 10 + seed)?;
            let v = self.values(self.dtype, &dims, 100 + seed)?;
            let op = Attention {
                control: control.clone(),
                regime,
                mask: mask.clone(),
                q: q.clone(),
                cache: KvPair { k, v },
                scale: 1.0 / (self.d as f32).sqrt(),
                out: out.clone(),
            };
            kernels.push(self.device.prepare(&op.into())?);
        }
        let variant = kernels.last().map_or("", |kernel| kernel.key().variant);
        let timed = common::Timed::new(self.device, &kernels)?;
        Ok((timed.nanoseconds(&mut *self.device.stream()?)?, variant))
    }
}
