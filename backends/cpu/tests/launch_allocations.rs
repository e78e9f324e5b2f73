//! A recorded graph allocates nothing when it is launched again.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use foretoken::device::{Activations, Device, Driver, HostTensor, Weight, WeightRole, WeightSpec};
use foretoken::format::SharedBytes;
use foretoken::kernel::{
    Advance, Attention, AttentionMask, Control, ConvCommit, Cursor, DeltaCommit, DraftBlock,
    DraftContext, Embed, FeatureCommit, FeatureLoad, FeatureStore, GatedDelta, GatedNorm, HeadMap,
    HeadPart, KvAppend, KvCommit, KvPair, Linear, LinearPart, Op, OutputGate, Path, QkNormRope,
    Regime, RmsNorm, RopeAngles, RowSet, Sample, SampleParams, ShortConv, Stamp, SwiGlu, TopK,
    TreeBuild, TreeLimits, TreeRows, TreeWalk,
};
use foretoken::tensor::{DType, Shape, Tensor};
use foretoken_cpu::{CpuDriver, CpuOptions};

/// Counts what it is asked for, on all threads.
struct Counting;

static REQUESTS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: hands everything on to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        REQUESTS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(p, layout) }
    }

    unsafe fn realloc(&self, p: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        REQUESTS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(p, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ROWS: usize = 8;
const VOCABULARY: usize = 9000;

struct Model<'a> {
    device: &'a dyn Device,
    control: Control,
}

impl Model<'_> {
    fn f32(&self, dims: &[usize]) -> Tensor {
        self.tensor(DType::F32, dims)
    }

    fn tensor(&self, dtype: DType, dims: &[usize]) -> Tensor {
        tensor(self.device, dtype, dims)
    }

    fn weight(&self, dtype: DType, rows: usize, cols: usize, role: WeightRole) -> Weight {
        let bytes = SharedBytes::from(vec![0; dtype.bytes_for(rows * cols).unwrap()]);
        let spec = WeightSpec { dtype, rows, cols, role, activations: Activations::Fast };
        let host = HostTensor { dtype, rows, cols, bytes, scale: 1.0 };
        self.device.load_weight(&host, &spec).unwrap()
    }

    /// A speculative step on a cursor of its own: all candidates are alike, so that a
    /// tree is all ties.
    fn speculation(&self) -> Vec<Op> {
        let ints = |dims: &[usize]| self.tensor(DType::I32, dims);
        let (rows, positions, k) = (TreeRows::MAX, 15, 8);
        let (cursor, control) = (Cursor(ints(&[4])), Control(ints(&[4])));
        let (limits, draft) = (TreeLimits(ints(&[4])), Control(ints(&[4])));
        let words: Vec<u8> = [63, 15, 15, 3].into_iter().flat_map(i32::to_le_bytes).collect();
        self.device.stream().unwrap().write(limits.0.buffer(), 0, &words).unwrap();
        let (tokens, path) = (ints(&[rows]), Path(ints(&[1 + rows])));
        let result = ints(&[TreeWalk::HEADER + rows]);
        let tree =
            TreeRows { parents: ints(&[rows]), depths: ints(&[rows]), masks: ints(&[rows, 2]) };
        let (cursor, control) = (|| cursor.clone(), || control.clone());
        vec![
            DraftContext { cursor: cursor(), control: draft.clone(), positions: ints(&[rows]) }
                .into(),
            DraftBlock {
                cursor: cursor(),
                mask_token: 1,
                control: draft,
                tokens: ints(&[1 + positions]),
                positions: ints(&[1 + positions]),
            }
            .into(),
            TreeBuild {
                cursor: cursor(),
                limits,
                ids: ints(&[positions, k]),
                scores: self.f32(&[positions, k]),
                log_sum_exp: Some(self.f32(&[positions])),
                vocab: VOCABULARY,
                control: control(),
                tokens: tokens.clone(),
                positions: ints(&[rows]),
                tree: tree.clone(),
            }
            .into(),
            TreeWalk {
                control: control(),
                tokens,
                tree,
                choices: ints(&[rows, 1]),
                path: path.clone(),
                result: result.clone(),
            }
            .into(),
            Advance { control: control(), path, result, cursor: cursor() }.into(),
            Stamp { clock: self.tensor(DType::I64, &[2]), slot: 1 }.into(),
        ]
    }

    fn words(&self, words: &[i32]) -> Tensor {
        let tensor = self.tensor(DType::I32, &[words.len()]);
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.device.stream().unwrap().write(tensor.buffer(), 0, &bytes).unwrap();
        tensor
    }

    /// Attention over trees and blocks, commits, the ring of features.
    fn speculative_ops(&self) -> Vec<Op> {
        let control = || self.control.clone();
        let cache = |t: DType| self.tensor(t, &[1024, 2, 64]);
        let cache = KvPair { k: cache(DType::F16), v: cache(DType::F32) };
        let attention = |mask| Attention {
            control: control(),
            regime: Regime::Step,
            mask,
            q: self.f32(&[ROWS, 4, 64]),
            cache: cache.clone(),
            scale: 0.125,
            out: self.f32(&[ROWS, 4, 64]),
        };
        let tree = TreeRows {
            parents: self.words(&[-1, 0, 0, 1, 1, 2, 5, 6]),
            depths: self.words(&[0, 1, 1, 2, 2, 2, 3, 4]),
            masks: self.tensor(DType::I32, &[ROWS, 2]),
        };
        let path = || Path(self.words(&[1, 0, 0, 0, 0, 0, 0, 0, 0]));
        let ring = self.f32(&[12, 256]);
        let (x, out) = (self.f32(&[ROWS, 64]), self.f32(&[ROWS, 256]));
        vec![
            attention(AttentionMask::Tree(tree)).into(),
            attention(AttentionMask::Block { window: Some(200), causal: false }).into(),
            KvCommit { control: control(), path: path(), cache: cache.clone() }.into(),
            FeatureStore { control: control(), x, ring: ring.clone(), column: 64 }.into(),
            FeatureCommit { control: control(), path: path(), ring: ring.clone() }.into(),
            FeatureLoad { control: control(), ring, out }.into(),
        ]
    }

    /// Operations over a tree, and the commits of a path that is always there.
    fn tree_ops(&self) -> Vec<Op> {
        // A child that goes on has siblings to come, so that slabs are kept aside.
        let tree = TreeRows {
            parents: self.words(&[-1, 0, 1, 2, 2, 1, 0, 6]),
            depths: self.words(&[0, 1, 2, 3, 3, 2, 1, 2]),
            masks: self.tensor(DType::I32, &[ROWS, 2]),
        };
        let path = Path(self.words(&[1, 0, 0, 0, 0, 0, 0, 0, 0]));
        let conv = ShortConv {
            control: self.control.clone(),
            x: self.f32(&[ROWS, 384]),
            weight: self.f32(&[384, 4]),
            state: self.f32(&[3, 384]),
            tree: Some(tree.clone()),
            out: self.f32(&[ROWS, 384]),
        };
        let delta = GatedDelta {
            control: self.control.clone(),
            regime: Regime::Step,
            activations: Activations::Fast,
            qkv: conv.out.clone(),
            alpha: self.f32(&[ROWS, 2]),
            beta: self.f32(&[ROWS, 2]),
            a: self.f32(&[2]),
            dt_bias: self.f32(&[2]),
            state: self.f32(&[2, 64, 64]),
            tree: Some(tree),
            out: self.f32(&[ROWS, 2, 64]),
            key_heads: 2,
            head_map: HeadMap::Tiled,
            eps: 1e-6,
        };
        vec![
            conv.clone().into(),
            delta.clone().into(),
            ConvCommit { path: path.clone(), conv }.into(),
            DeltaCommit { path, delta }.into(),
        ]
    }

    /// The operations of a plain step.
    fn ops(&self) -> Vec<Op> {
        let (control, eps) = (|| self.control.clone(), 1e-6);
        let (d, m) = (256, ROWS);
        let (x, heads) = (self.f32(&[m, d]), self.f32(&[m, 2, 64]));
        let (q, k, v) = (self.f32(&[m, 4, 128]), self.f32(&[m, 2, 64]), self.f32(&[m, 2, 64]));
        let cache = |t: DType| self.tensor(t, &[1024, 2, 64]);
        let cache = KvPair { k: cache(DType::F16), v: cache(DType::BF16) };
        let (angles, attended) = (self.f32(&[m, 32]), self.f32(&[m, 4, 64]));
        let (qkv, convolved) = (self.f32(&[m, 384]), self.f32(&[m, 384]));
        let logits = self.f32(&[m, VOCABULARY]);
        let linear = |t, n, out, accumulate| LinearPart {
            weight: self.weight(t, n, d, WeightRole::Linear),
            out,
            accumulate,
        };
        let (wide, gate) = (self.f32(&[m, 512]), self.f32(&[m, 512]));
        let mut ops = vec![
            Embed {
                control: control(),
                tokens: self.tensor(DType::I32, &[m]),
                table: self.weight(DType::Q4_K, 100, d, WeightRole::Embedding),
                out: x.clone(),
            }
            .into(),
            RmsNorm {
                control: control(),
                rows: RowSet::All,
                x: x.clone(),
                weight: self.f32(&[d]),
                eps,
                out: x.clone(),
            }
            .into(),
            Linear {
                control: control(),
                regime: Regime::Step,
                rows: RowSet::All,
                x: x.clone(),
                parts: vec![
                    linear(DType::Q4_K, 512, wide.clone(), false),
                    linear(DType::F16, 512, gate.clone(), true),
                ],
            }
            .into(),
            RopeAngles {
                control: control(),
                positions: self.tensor(DType::I32, &[m]),
                theta: 1e6,
                out: angles.clone(),
            }
            .into(),
            QkNormRope {
                control: control(),
                angles,
                parts: vec![
                    HeadPart { x: q.clone(), norm: self.f32(&[64]) },
                    HeadPart { x: k.clone(), norm: self.f32(&[64]) },
                ],
                eps,
            }
            .into(),
            KvAppend { control: control(), k, v, cache: cache.clone() }.into(),
            Attention {
                control: control(),
                regime: Regime::Step,
                mask: AttentionMask::Causal,
                q: q.clone(),
                cache,
                scale: 0.125,
                out: attended.clone(),
            }
            .into(),
            OutputGate { control: control(), q, x: attended }.into(),
            ShortConv {
                control: control(),
                x: qkv,
                weight: self.f32(&[384, 4]),
                state: self.f32(&[3, 384]),
                tree: None,
                out: convolved.clone(),
            }
            .into(),
            GatedDelta {
                control: control(),
                regime: Regime::Step,
                activations: Activations::Fast,
                qkv: convolved,
                alpha: self.f32(&[m, 2]),
                beta: self.f32(&[m, 2]),
                a: self.f32(&[2]),
                dt_bias: self.f32(&[2]),
                state: self.f32(&[2, 64, 64]),
                tree: None,
                out: heads.clone(),
                key_heads: 2,
                head_map: HeadMap::Tiled,
                eps,
            }
            .into(),
            GatedNorm {
                control: control(),
                x: heads.clone(),
                z: self.f32(&[m, 2, 64]),
                weight: self.f32(&[64]),
                eps,
                out: heads,
            }
            .into(),
            SwiGlu { control: control(), gate: gate.clone(), up: wide, out: gate }.into(),
            TopK {
                control: control(),
                logits,
                k: 40,
                ids: self.tensor(DType::I32, &[m, 40]),
                values: self.f32(&[m, 40]),
                log_sum_exp: Some(self.f32(&[m])),
            }
            .into(),
            Sample {
                control: control(),
                params: SampleParams(self.tensor(DType::I32, &[SampleParams::WORDS])),
                positions: self.tensor(DType::I32, &[m]),
                ids: self.tensor(DType::I32, &[m, 40]),
                values: self.f32(&[m, 40]),
                log_sum_exp: self.f32(&[m]),
                vocab: 3000,
                choices: self.tensor(DType::I32, &[m, 1]),
            }
            .into(),
        ];
        ops.extend(self.speculation());
        ops
    }
}

fn tensor(device: &dyn Device, dtype: DType, dims: &[usize]) -> Tensor {
    let shape = Shape::new(dims).unwrap();
    let buffer = device.allocate(dtype.bytes_for(shape.elements()).unwrap(), "test").unwrap();
    Tensor::new(&buffer, 0, dtype, shape).unwrap()
}

/// No test harness: its own threads would be counted too.
fn main() {
    for threads in [1, 3] {
        let options = CpuOptions { threads: Some(threads), ..CpuOptions::default() };
        let device = CpuDriver::new(options).open(0).unwrap();
        let control = Control(tensor(&*device, DType::I32, &[4]));
        let model = Model { device: &*device, control: control.clone() };
        let prepare = |op: &Op| device.prepare(op).unwrap();
        let ops = [model.ops(), model.speculative_ops(), model.tree_ops()].concat();
        let kernels: Vec<_> = ops.iter().map(prepare).collect();
        assert_eq!(kernels.len(), 30, "every operation");
        let graph = device.record(&kernels).unwrap();
        let mut stream = device.stream().unwrap();
        let mut out = [0; 64];
        // Warm-up, then steps with other rows and longer contexts.
        let mut before = 0;
        for (step, [rows, committed]) in
            [[1, 0], [8, 900], [2, 1], [8, 700], [1, 1000]].into_iter().enumerate()
        {
            if step == 1 {
                before = REQUESTS.load(Ordering::Relaxed);
            }
            let mut words = [0; 16];
            for (place, word) in words.chunks_exact_mut(4).zip([rows, committed, 0, rows]) {
                place.copy_from_slice(&i32::to_le_bytes(word));
            }
            stream.write(control.0.buffer(), 0, &words).unwrap();
            stream.launch_graph(&*graph).unwrap();
            stream.read(control.0.buffer(), 0, &mut out[..16]).unwrap();
            stream.synchronize().unwrap();
        }
        let requests = REQUESTS.load(Ordering::Relaxed) - before;
        assert_eq!(requests, 0, "with {threads} threads");
        // The counter counts.
        drop(std::hint::black_box(vec![1u8; 100]));
        assert!(REQUESTS.load(Ordering::Relaxed) > before);
    }
}
