//! The driver-operation table must be able to fail: a device that does something
//! slightly else, or depends on the row count, is caught.

use std::any::Any;
use std::sync::Arc;

use foretoken::Result;
use foretoken::device::{
    Buffer, Device, DeviceInfo, Driver, Event, Graph, HostTensor, Kernel, Stream, Weight,
    WeightSpec,
};
use foretoken::kernel::{AttentionMask, HeadMap, KernelKey, KvPair, Op, RowSet};
use foretoken::tensor::{Shape, Tensor};
use foretoken::testing::{CaseFault, OpTable, Report, run_op_table};
use foretoken_cpu::CpuDriver;

/// A device that prepares another operation than it was asked for; with `above`, only
/// in launches of more rows than that.
struct Twisted {
    device: Arc<dyn Device>,
    twist: fn(&mut Op),
    above: Option<i32>,
}

/// Two kernels, one of which the row count chooses.
struct Two {
    few: Arc<dyn Kernel>,
    many: Arc<dyn Kernel>,
    above: i32,
    control: Tensor,
}

impl Kernel for Two {
    fn key(&self) -> KernelKey {
        self.few.key()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

struct TwistedStream(Box<dyn Stream>);

impl Stream for TwistedStream {
    fn write(&mut self, dst: &Buffer, offset: usize, src: &[u8]) -> Result<()> {
        self.0.write(dst, offset, src)
    }

    fn read(&mut self, src: &Buffer, offset: usize, dst: &mut [u8]) -> Result<()> {
        self.0.read(src, offset, dst)
    }

    fn copy(&mut self, d: &Buffer, at: usize, s: &Buffer, from: usize, n: usize) -> Result<()> {
        self.0.copy(d, at, s, from, n)
    }

    fn fill(&mut self, dst: &Buffer, offset: usize, bytes: usize, value: u8) -> Result<()> {
        self.0.fill(dst, offset, bytes, value)
    }

    fn launch(&mut self, kernel: &dyn Kernel) -> Result<()> {
        let Some(two) = kernel.as_any().downcast_ref::<Two>() else {
            return self.0.launch(kernel);
        };
        let mut rows = [0; 4];
        self.0.read(two.control.buffer(), two.control.offset(), &mut rows)?;
        let many = i32::from_le_bytes(rows) > two.above;
        self.0.launch(if many { &*two.many } else { &*two.few })
    }

    fn launch_graph(&mut self, graph: &dyn Graph) -> Result<()> {
        self.0.launch_graph(graph)
    }

    fn record_event(&mut self) -> Result<Box<dyn Event>> {
        self.0.record_event()
    }

    fn wait_event(&mut self, event: &dyn Event) -> Result<()> {
        self.0.wait_event(event)
    }

    fn synchronize(&mut self) -> Result<()> {
        self.0.synchronize()
    }
}

impl Device for Twisted {
    fn id(&self) -> u64 {
        self.device.id()
    }

    fn info(&self) -> DeviceInfo {
        self.device.info()
    }

    fn allocate(&self, bytes: usize, what: &str) -> Result<Buffer> {
        self.device.allocate(bytes, what)
    }

    fn weight_bytes(&self, spec: &WeightSpec) -> Result<u64> {
        self.device.weight_bytes(spec)
    }

    fn load_weight(&self, host: &HostTensor, spec: &WeightSpec) -> Result<Weight> {
        self.device.load_weight(host, spec)
    }

    fn prepare(&self, op: &Op) -> Result<Arc<dyn Kernel>> {
        let mut other = op.clone();
        (self.twist)(&mut other);
        let many = self.device.prepare(&other)?;
        let control = match op {
            Op::RmsNorm(op) => Some(&op.control),
            Op::Attention(op) => Some(&op.control),
            Op::GatedDelta(op) => Some(&op.control),
            _ => None,
        };
        match (self.above, control) {
            (Some(above), Some(control)) => {
                let (few, control) = (self.device.prepare(op)?, control.0.clone());
                Ok(Arc::new(Two { few, many, above, control }))
            }
            _ => Ok(many),
        }
    }

    fn record(&self, kernels: &[Arc<dyn Kernel>]) -> Result<Arc<dyn Graph>> {
        self.device.record(kernels)
    }

    fn stream(&self) -> Result<Box<dyn Stream>> {
        Ok(Box::new(TwistedStream(self.device.stream()?)))
    }
}

/// The same memory in another shape, or the first part of it.
fn shaped(tensor: &Tensor, dims: &[usize]) -> Tensor {
    let shape = Shape::new(dims).unwrap();
    Tensor::new(tensor.buffer(), tensor.offset(), tensor.dtype(), shape).unwrap()
}

/// A ring with a slot fewer.
fn one_less(ring: &Tensor) -> Tensor {
    let shape = ring.shape();
    shaped(ring, &[shape.dims()[0] - 1, shape.dims()[1]])
}

/// A cache whose slots hold one head each.
fn one_head_a_slot(cache: &mut KvPair) {
    for tensor in [&mut cache.k, &mut cache.v] {
        let shape = tensor.shape();
        let [context, heads, d] = *shape.dims() else { return };
        *tensor = shaped(tensor, &[context * heads, 1, d]);
    }
}

/// A window that shows one position more.
fn widen(mask: &mut AttentionMask) {
    if let AttentionMask::Block { window: Some(window), .. } = mask {
        *window += 1;
    }
}

fn run(filter: &str, above: Option<i32>, twist: fn(&mut Op)) -> Report {
    let device = CpuDriver::default().open(0).unwrap();
    let table = OpTable { seed: 7, filter: Some(filter.into()) };
    run_op_table(&Twisted { device, twist, above }, &table)
}

macro_rules! twist {
    ($op:ident, $x:ident => $body:expr) => {
        (|op: &mut Op| {
            if let Op::$op($x) = op {
                $body;
            }
        }) as fn(&mut Op)
    };
}

#[test]
fn an_operation_that_differs_a_little_is_caught() {
    let twists = [
        ("rms_norm/tiny", twist!(RmsNorm, x => x.eps *= 1.001)),
        ("rms_norm/logit", twist!(RmsNorm, x => x.rows = RowSet::LogitsCompact)),
        ("gated_norm/m=17", twist!(GatedNorm, x => std::mem::swap(&mut x.x, &mut x.z))),
        ("swiglu/m=15/f=16/out=apart", twist!(SwiGlu, x => std::mem::swap(&mut x.gate, &mut x.up))),
        ("rope_angles/m=3/", twist!(RopeAngles, x => x.theta *= 1.000_001)),
        ("qk_norm_rope/m=2/", twist!(QkNormRope, x => x.parts[0].norm = x.parts[1].norm.clone())),
        ("kv_append/F16-F16", twist!(KvAppend, x => std::mem::swap(&mut x.k, &mut x.v))),
        ("attention/", twist!(Attention, x => x.scale *= 1.001)),
        ("attention/tree/Random/", twist!(Attention, x => x.mask = AttentionMask::Causal)),
        ("attention/tree/Star/", twist!(Attention, x => x.mask = AttentionMask::Causal)),
        ("attention/block/Some(5)", twist!(Attention, x => widen(&mut x.mask))),
        (
            "attention/block/None/causal=false",
            twist!(Attention, x => x.mask = AttentionMask::Causal),
        ),
        ("kv_commit/Random", twist!(KvCommit, x => one_head_a_slot(&mut x.cache))),
        ("feature_store/", twist!(FeatureStore, x => x.column = x.column.saturating_sub(1))),
        ("feature_load/", twist!(FeatureLoad, x => x.ring = one_less(&x.ring))),
        (
            "feature_commit/Winding/m=64/committed=255",
            twist!(FeatureCommit, x => x.ring = one_less(&x.ring)),
        ),
        ("gated_delta/m=2/", twist!(GatedDelta, x => x.eps = 1e-3)),
        ("gated_delta/prefill/m=7", twist!(GatedDelta, x => x.eps = 1.0)),
        ("gated_delta/prefill/Magnitudes", twist!(GatedDelta, x => x.eps = 1.0)),
        ("gated_delta/prefill/long", twist!(GatedDelta, x => x.eps = 1.0)),
        ("gated_delta/m=64/grouped", twist!(GatedDelta, x => x.head_map = HeadMap::Tiled)),
        ("gated_delta/tree/Random/m=17", twist!(GatedDelta, x => x.tree = None)),
        ("gated_delta/tree/Chain/m=17", twist!(GatedDelta, x => x.tree = None)),
        ("short_conv/tree/Deep/m=31", twist!(ShortConv, x => x.tree = None)),
        ("short_conv/tree/Chain/m=31", twist!(ShortConv, x => x.tree = None)),
        ("conv_commit/m=15/path=7", twist!(ConvCommit, x => x.conv.x = x.conv.out.clone())),
        ("delta_commit/m=15/path=7", twist!(DeltaCommit, x => x.delta.eps = 1e-2)),
        (
            "delta_commit/m=15/path=2",
            twist!(DeltaCommit, x => {
                x.delta.alpha = x.delta.beta.clone();
            }),
        ),
        ("linear/edges/Q8_0", twist!(Linear, x => x.parts[0].accumulate ^= true)),
        ("linear/logit", twist!(Linear, x => x.rows = RowSet::All)),
        ("tree_build/b=22/p=5", twist!(TreeBuild, x => x.log_sum_exp = None)),
        (
            "tree_build/b=7/p=1",
            twist!(TreeBuild, x => std::mem::swap(&mut x.tokens, &mut x.positions)),
        ),
        ("tree_build/close", twist!(TreeBuild, x => x.log_sum_exp = None)),
        ("tree_build/ends", twist!(TreeBuild, x => x.vocab += 1)),
        ("tree_build/chain/b=7", twist!(TreeBuild, x => x.limits.0 = x.cursor.0.clone())),
        (
            "tree_walk/m=8/Random",
            twist!(TreeWalk, x => std::mem::swap(&mut x.tokens, &mut x.tree.parents)),
        ),
        (
            "draft_context/",
            twist!(DraftContext, x => std::mem::swap(&mut x.cursor.0, &mut x.control.0)),
        ),
        ("draft_block/", twist!(DraftBlock, x => x.mask_token ^= 1)),
        ("advance/", twist!(Advance, x => x.result = x.path.0.clone())),
        ("stamp", twist!(Stamp, x => x.slot ^= 1)),
        ("sample/m=", twist!(Sample, x => x.vocab = usize::MAX >> 1)),
        ("sample/m=", twist!(Sample, x => x.positions = x.params.0.clone())),
        ("top_k/m=", twist!(TopK, x => std::mem::swap(&mut x.values, &mut x.logits))),
    ];
    for (filter, twist) in twists {
        let plain = run(filter, None, |_| {});
        assert!(plain.is_ok(), "{filter}: {plain}");
        assert!(!run(filter, None, twist).failed.is_empty(), "{filter}: not noticed");
    }
}

/// Differences far below the tolerance, but present only above a number of rows.
#[test]
fn an_operation_that_depends_on_the_row_count_is_caught() {
    let twists = [
        ("invariance/rms_norm", 16, twist!(RmsNorm, x => x.eps *= 2.0)),
        ("invariance/attention/step", 8, twist!(Attention, x => x.scale *= 1.000_000_1)),
        ("invariance/attention/prefill", 64, twist!(Attention, x => x.scale *= 1.000_000_1)),
        ("invariance/attention/tree", 1, twist!(Attention, x => x.scale *= 1.000_000_1)),
        ("invariance/attention/window", 8, twist!(Attention, x => widen(&mut x.mask))),
        ("invariance/gated_delta/step", 4, twist!(GatedDelta, x => x.eps *= 10.0)),
        ("invariance/tree/gated_delta/", 1, twist!(GatedDelta, x => x.eps *= 10.0)),
        ("invariance/tree/gated_delta/", 1, twist!(DeltaCommit, x => x.delta.eps *= 10.0)),
        (
            "invariance/tree/short_conv/",
            1,
            twist!(ConvCommit, x => {
                x.conv.x = x.conv.out.clone();
            }),
        ),
        ("gated_delta/prefill/resumed/", 448, twist!(GatedDelta, x => x.eps *= 10.0)),
        ("invariance/gated_delta/prefill", 64, twist!(GatedDelta, x => x.eps *= 10.0)),
    ];
    for (filter, above, twist) in twists {
        let report = run(filter, Some(above), twist);
        assert!(report.passed.is_empty() && !report.failed.is_empty(), "{filter}: {report}");
        let variant = |(_, f): &(String, CaseFault)| matches!(f, CaseFault::Variant { .. });
        assert!(report.failed.iter().all(variant), "{filter}: {report}");
    }
}
