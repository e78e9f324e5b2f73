//! Speed of the operations other than linear, at the sizes of Qwen3.5 0.8B, and the
//! cost of one more kernel in a graph.
//!
//! `cargo bench -p foretoken-cpu --bench ops -- [ISA] [THREADS]`. Each figure is the
//! fastest of several runs (others may use the machine). `Gop/s` counts multiply-adds
//! for attention and the delta rule (two products, decay and write), elements for the
//! rest.

#![allow(clippy::print_stdout)]

use std::time::{Duration, Instant};

use foretoken::device::{Activations, Device, Driver, Graph, Stream};
use foretoken::kernel::{
    Attention, AttentionMask, Control, DeltaCommit, GatedDelta, GatedNorm, HeadMap, KvPair, Op,
    Path, Regime, RmsNorm, RowSet, ShortConv, SwiGlu, TopK, TreeRows,
};
use foretoken::tensor::{DType, Shape, Tensor};
use foretoken_cpu::simd::Isa;
use foretoken_cpu::{CpuDriver, CpuOptions};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let isa = args.first().map_or(Isa::detect().name(), String::as_str);
    let isa = *Isa::available().iter().find(|i| i.name() == isa).expect("an instruction set");
    let threads: usize = args.get(1).map_or(1, |a| a.parse().expect("a number of threads"));
    let options = CpuOptions { threads: Some(threads), isa: Some(isa), memory_limit: None };
    let bench = Bench { device: CpuDriver::new(options).open(0).expect("a device") };

    println!("{isa}, {threads} threads");
    println!("{:<12} {:>4} {:>28} {:>11} {:>9}", "operation", "M", "sizes", "us", "Gop/s");
    for rows in [1, 64] {
        bench.delta(rows, 16, 128);
        bench.delta_tree(rows, 16, 128);
        for context in [1024, 4096] {
            for dtype in [DType::F32, DType::F16] {
                bench.attention(rows, context, dtype);
            }
        }
        bench.short_conv(rows, 6144);
        bench.gated_norm(rows, 16, 128);
        bench.rms_norm(rows, 1024);
        bench.swiglu(rows, 3584);
    }
    for k in [1, 20, 64] {
        bench.top_k(248_320, k);
    }
    bench.launches();
}

struct Bench {
    device: std::sync::Arc<dyn Device>,
}

impl Bench {
    fn tensor(&self, dtype: DType, dims: &[usize]) -> Tensor {
        let shape = Shape::new(dims).expect("a shape");
        let bytes = dtype.bytes_for(shape.elements()).expect("a size");
        let buffer = self.device.allocate(bytes, "bench").expect("memory");
        let value = |i: usize| ((i * 37 % 101) as f32 - 50.0) / 50.0;
        let data: Vec<u8> = match dtype {
            DType::F32 => (0..shape.elements()).flat_map(|i| value(i).to_le_bytes()).collect(),
            // Between 0.5 and 0.53.
            DType::F16 => (0..bytes).map(|i| if i % 2 == 0 { i as u8 } else { 0x38 }).collect(),
            _ => vec![0; bytes],
        };
        self.stream().write(&buffer, 0, &data).expect("a write");
        Tensor::new(&buffer, 0, dtype, shape).expect("a tensor")
    }

    fn f32(&self, dims: &[usize]) -> Tensor {
        self.tensor(DType::F32, dims)
    }

    fn stream(&self) -> Box<dyn Stream> {
        self.device.stream().expect("a stream")
    }

    fn words(&self, dims: &[usize], words: &[i32]) -> Tensor {
        let tensor = self.tensor(DType::I32, dims);
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.stream().write(tensor.buffer(), 0, &bytes).expect("a write");
        tensor
    }

    fn control(&self, rows: usize, committed: usize) -> Control {
        Control(self.words(&[4], &[rows as i32, committed as i32, 0, rows as i32]))
    }

    /// A tree with the given parents.
    fn tree(&self, rows: usize, parent: impl Fn(usize) -> usize) -> TreeRows {
        let (mut parents, mut depths) = (vec![-1], vec![0]);
        for row in 1..rows {
            parents.push(parent(row) as i32);
            depths.push(depths[parent(row)] + 1);
        }
        TreeRows {
            parents: self.words(&[rows], &parents),
            depths: self.words(&[rows], &depths),
            masks: self.words(&[rows, 2], &[]),
        }
    }

    /// Runs an operation and prints a line.
    fn run(&self, rows: usize, sizes: String, work: usize, op: impl Into<Op>) {
        let op = op.into();
        let kernel = self.device.prepare(&op).expect("a kernel");
        let graph = self.device.record(&[kernel]).expect("a graph");
        let s = self.time(&*graph);
        let rate = work as f64 / s / 1e9;
        println!("{:<12} {rows:>4} {sizes:>28} {:>11.2} {rate:>9.2}", op.name(), s * 1e6);
    }

    /// Seconds of one launch, the least of several.
    fn time(&self, graph: &dyn Graph) -> f64 {
        let mut stream = self.stream();
        let (mut best, mut total) = (Duration::MAX, Duration::ZERO);
        let mut runs = 0;
        while runs < 5 || (total < Duration::from_millis(100) && runs < 5000) {
            let started = Instant::now();
            stream.launch_graph(graph).expect("a launch");
            let took = started.elapsed();
            (best, total, runs) = (best.min(took), total + took, runs + 1);
        }
        best.as_secs_f64()
    }

    fn delta(&self, rows: usize, heads: usize, d: usize) {
        let op = self.delta_op(rows, heads, d);
        self.run(rows, format!("{heads} heads of {d} x {d}"), 4 * rows * heads * d * d, op);
    }

    /// Rows of a tree, and a commit of all of them.
    fn delta_tree(&self, rows: usize, heads: usize, d: usize) {
        let op = self.delta_op(rows, heads, d);
        let work = 4 * rows * heads * d * d;
        for (name, tree) in [
            ("chain", self.tree(rows, |row| row - 1)),
            ("star", self.tree(rows, |_| 0)),
            ("binary tree", self.tree(rows, |row| (row - 1) / 2)),
        ] {
            self.run(rows, name.into(), work, GatedDelta { tree: Some(tree), ..op.clone() });
        }
        let all: Vec<_> = std::iter::once(rows).chain(0..rows).map(|x| x as i32).collect();
        let path = Path(self.words(&[1 + rows], &all));
        self.run(rows, "all rows".into(), work, DeltaCommit { path, delta: op });
    }

    fn delta_op(&self, rows: usize, heads: usize, d: usize) -> GatedDelta {
        GatedDelta {
            control: self.control(rows, 0),
            regime: Regime::Step,
            activations: Activations::Fast,
            qkv: self.f32(&[rows, 3 * heads * d]),
            alpha: self.f32(&[rows, heads]),
            beta: self.f32(&[rows, heads]),
            a: self.f32(&[heads]),
            dt_bias: self.f32(&[heads]),
            state: self.f32(&[heads, d, d]),
            tree: None,
            out: self.f32(&[rows, heads, d]),
            key_heads: heads,
            head_map: HeadMap::Tiled,
            eps: 1e-6,
        }
    }

    fn attention(&self, rows: usize, context: usize, dtype: DType) {
        let (heads, kv, d) = (8, 2, 256);
        let cache = || self.tensor(dtype, &[context, kv, d]);
        let op = Attention {
            control: self.control(rows, context - rows),
            regime: Regime::Step,
            mask: AttentionMask::Causal,
            q: self.f32(&[rows, heads, 2 * d]),
            cache: KvPair { k: cache(), v: cache() },
            scale: 1.0 / 16.0,
            out: self.f32(&[rows, heads, d]),
        };
        let work = 2 * rows * heads * d * (context - rows / 2);
        self.run(rows, format!("{context} {dtype} slots, 8/2 x {d}"), work, op);
    }

    fn short_conv(&self, rows: usize, c: usize) {
        let op = ShortConv {
            control: self.control(rows, 0),
            x: self.f32(&[rows, c]),
            weight: self.f32(&[c, 4]),
            state: self.f32(&[3, c]),
            tree: None,
            out: self.f32(&[rows, c]),
        };
        self.run(rows, format!("{c} channels"), rows * c, op);
    }

    fn gated_norm(&self, rows: usize, heads: usize, d: usize) {
        let op = GatedNorm {
            control: self.control(rows, 0),
            x: self.f32(&[rows, heads, d]),
            z: self.f32(&[rows, heads, d]),
            weight: self.f32(&[d]),
            eps: 1e-6,
            out: self.f32(&[rows, heads, d]),
        };
        self.run(rows, format!("{heads} heads of {d}"), rows * heads * d, op);
    }

    fn rms_norm(&self, rows: usize, d: usize) {
        self.run(rows, format!("width {d}"), rows * d, self.norm(rows, d));
    }

    fn norm(&self, rows: usize, d: usize) -> RmsNorm {
        RmsNorm {
            control: self.control(rows, 0),
            rows: RowSet::All,
            x: self.f32(&[rows, d]),
            weight: self.f32(&[d]),
            eps: 1e-6,
            out: self.f32(&[rows, d]),
        }
    }

    fn swiglu(&self, rows: usize, f: usize) {
        let op = SwiGlu {
            control: self.control(rows, 0),
            gate: self.f32(&[rows, f]),
            up: self.f32(&[rows, f]),
            out: self.f32(&[rows, f]),
        };
        self.run(rows, format!("width {f}"), rows * f, op);
    }

    fn top_k(&self, v: usize, k: usize) {
        let op = TopK {
            control: self.control(1, 0),
            logits: self.f32(&[1, v]),
            k,
            ids: self.tensor(DType::I32, &[1, k]),
            values: self.f32(&[1, k]),
            log_sum_exp: (k > 1).then(|| self.f32(&[1])),
        };
        self.run(1, format!("{k} of {v}"), v, op);
    }

    /// What a kernel adds to a graph when it has next to nothing to do.
    fn launches(&self) {
        let kernel = self.device.prepare(&self.norm(1, 16).into()).expect("a kernel");
        let graph = self.device.record(&vec![kernel; 1000]).expect("a graph");
        println!("a kernel in a graph: {:.0} ns", self.time(&*graph) * 1e6);
    }
}
