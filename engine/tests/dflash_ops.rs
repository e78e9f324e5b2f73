//! The operations a draft lists, and the memory it takes.

mod dflash_support;

use std::sync::Arc;

use dflash_support::device::Counting;
use dflash_support::*;
use foretoken::Error;
use foretoken::cache::KvType;
use foretoken::device::{Activations, Device, DeviceFault, Weight, WeightRole};
use foretoken::format::{Array, Value};
use foretoken::kernel::{AttentionMask, Cursor, Op, Regime, RowSet};
use foretoken::model::ModelConfig;
use foretoken::speculate::dflash::{DflashDrafter, DflashModel, DflashPlan};
use foretoken::speculate::{DraftSite, DraftSizes, Drafter, Proposal};
use foretoken::tensor::{DType, Shape, Tensor};

const SIZES: DraftSizes = DraftSizes { context: 100, rows: 16, width: 4, kv_type: KvType::F16 };
const DRAFTED: usize = BLOCK - 1;
const KV: usize = KV_HEADS * HEAD_DIM;
const Q: usize = HEADS * HEAD_DIM;

/// A device and what a session would lend.
struct Session {
    device: Arc<Counting>,
    embedding: Weight,
    head: Weight,
    cursor: Cursor,
    ring: Tensor,
    proposal: Proposal,
    target: ModelConfig,
}

impl Session {
    fn new() -> Self {
        let device = Arc::new(Counting::new());
        let tensor = |dtype, dims: &[usize]| tensor(&device, dtype, dims);
        Self {
            embedding: device.weight(VOCAB, HIDDEN, WeightRole::Embedding),
            head: device.weight(VOCAB, HIDDEN, WeightRole::Linear),
            cursor: Cursor(tensor(DType::I32, &[Cursor::WORDS])),
            ring: tensor(DType::F32, &[64, READ.len() * HIDDEN]),
            proposal: Proposal {
                ids: tensor(DType::I32, &[DRAFTED, SIZES.width]),
                scores: tensor(DType::F32, &[DRAFTED, SIZES.width]),
                log_sum_exp: tensor(DType::F32, &[DRAFTED]),
            },
            device,
            target: target(),
        }
    }

    fn model(&self, draft: &Draft) -> Arc<DflashModel> {
        let device: Arc<dyn Device> = self.device.clone();
        let plan = DflashPlan::new(draft.open().unwrap(), &*device, &target(), Activations::F32);
        plan.unwrap().load(&device, &mut |_, _| {}).unwrap()
    }

    /// Attaches after a change of the site.
    fn attach<'a>(
        &'a self,
        drafter: &mut DflashDrafter,
        change: impl FnOnce(&mut DraftSite<'a>),
    ) -> Result<(), Error> {
        let mut site = DraftSite {
            device: &*self.device,
            target: &self.target,
            embedding: &self.embedding,
            head: &self.head,
            cursor: &self.cursor,
            ring: Some(&self.ring),
            proposal: &self.proposal,
            sizes: SIZES,
        };
        change(&mut site);
        drafter.attach(&site)
    }

    fn drafter(&self, draft: &Draft) -> DflashDrafter {
        let mut drafter = DflashDrafter::new(self.model(draft));
        self.attach(&mut drafter, |_| {}).unwrap();
        drafter
    }
}

fn tensor(device: &Counting, dtype: DType, dims: &[usize]) -> Tensor {
    let shape = Shape::new(dims).unwrap();
    let buffer = device.allocate(dtype.bytes_for(shape.elements()).unwrap(), "test").unwrap();
    Tensor::new(&buffer, 0, dtype, shape).unwrap()
}

fn names(ops: &[Op]) -> Vec<&'static str> {
    ops.iter().map(Op::name).collect()
}

fn dims(t: &Tensor) -> Vec<usize> {
    t.shape().dims().to_vec()
}

/// Whether two views begin at the same byte of the same memory.
fn same(a: &Tensor, b: &Tensor) -> bool {
    std::ptr::eq(a.buffer().storage(), b.buffer().storage()) && a.offset() == b.offset()
}

fn detail(result: Result<impl Sized, Error>) -> &'static str {
    match result.err() {
        Some(Error::Device(DeviceFault::BadOperands { op: "dflash", detail })) => detail,
        other => panic!("{other:?}"),
    }
}

macro_rules! op {
    ($ops:expr, $kind:ident, $nth:expr) => {{
        let mut found = $ops.iter().filter_map(|op| match op {
            Op::$kind(op) => Some(op),
            _ => None,
        });
        found.nth($nth).expect("an operation is missing")
    }};
}

#[test]
fn context_is_projected_once_and_kept_in_every_layer() {
    let session = Session::new();
    let drafter = session.drafter(&Draft::upstream());
    let ops = drafter.context(SIZES.rows).unwrap();
    let layer = ["linear", "qk_norm_rope", "kv_append"];
    let start = ["draft_context", "feature_load", "linear", "rms_norm", "rope_angles"];
    assert_eq!(names(&ops), [&start[..], &layer, &layer].concat());

    let begin = op!(ops, DraftContext, 0);
    assert!(same(&begin.cursor.0, &session.cursor.0));
    assert_eq!(dims(&begin.positions), [16]);
    let load = op!(ops, FeatureLoad, 0);
    assert!(same(&load.ring, &session.ring) && same(&load.control.0, &begin.control.0));
    assert_eq!(dims(&load.out), [16, READ.len() * HIDDEN]);
    let fc = op!(ops, Linear, 0);
    assert!(same(&fc.x, &load.out) && fc.rows == RowSet::All && !fc.parts[0].accumulate);
    let norm = op!(ops, RmsNorm, 0);
    assert!(same(&norm.x, &fc.parts[0].out) && same(&norm.out, &norm.x));
    assert_eq!(dims(&norm.out), [16, HIDDEN]);
    let angles = op!(ops, RopeAngles, 0);
    assert!(same(&angles.positions, &begin.positions) && angles.theta == 1e7);
    assert_eq!(dims(&angles.out), [16, HEAD_DIM]);
    for i in 0..2 {
        // The layer's own first norm is not applied: its input is the normed context.
        let kv = op!(ops, Linear, 1 + i);
        assert!(same(&kv.x, &norm.out) && kv.parts.len() == 2);
        assert_eq!(dims(&kv.parts[0].out), [16, KV]);
        let rope = op!(ops, QkNormRope, i);
        assert!(rope.parts.len() == 1 && same(&rope.parts[0].x, &kv.parts[0].out));
        assert_eq!(dims(&rope.parts[0].x), [16, KV_HEADS, HEAD_DIM]);
        let append = op!(ops, KvAppend, i);
        assert!(same(&append.k, &kv.parts[0].out) && same(&append.v, &kv.parts[1].out));
        assert!(same(&append.control.0, &begin.control.0));
        assert_eq!(dims(&append.cache.k), [100 + BLOCK, KV_HEADS, HEAD_DIM]);
        assert_eq!(append.cache.v.dtype(), DType::F16);
    }
    let caches = [0, 1].map(|i| op!(ops, KvAppend, i).cache.clone());
    assert!(!same(&caches[0].k, &caches[1].k) && !same(&caches[0].k, &caches[0].v));
}

#[test]
fn fewer_rows_of_context_are_views_of_the_same_memory() {
    let session = Session::new();
    let drafter = session.drafter(&Draft::upstream());
    let (all, few) = (drafter.context(16).unwrap(), drafter.context(3).unwrap());
    assert_eq!(names(&all), names(&few));
    assert_eq!(dims(&op!(few, DraftContext, 0).positions), [3]);
    assert_eq!(dims(&op!(few, FeatureLoad, 0).out), [3, READ.len() * HIDDEN]);
    assert_eq!(dims(&op!(few, KvAppend, 1).k), [3, KV_HEADS, HEAD_DIM]);
    assert_eq!(dims(&op!(few, Linear, 2).parts[1].out), [3, KV]);
    assert!(same(&op!(few, KvAppend, 1).v, &op!(all, KvAppend, 1).v));
    let wrong = "more rows of context than were reserved, or none";
    assert_eq!(detail(drafter.context(0)), wrong);
    assert_eq!(detail(drafter.context(17)), wrong);
}

#[test]
fn a_block_is_one_pass_over_pending_and_mask_tokens() {
    let session = Session::new();
    let drafter = session.drafter(
        &Draft::upstream().with("dflash.attention.sliding_window", Value::U32(24)).with(
            "dflash.attention.sliding_window_pattern",
            Value::Array(Array::bools(&[true, false])),
        ),
    );
    assert_eq!((drafter.name(), drafter.positions()), ("dflash", DRAFTED));
    assert_eq!(drafter.layers(), READ);
    let ops = drafter.proposal().unwrap();
    let layer = [
        "rms_norm",
        "linear",
        "qk_norm_rope",
        "kv_append",
        "attention",
        "linear",
        "rms_norm",
        "linear",
        "swiglu",
        "linear",
    ];
    let (start, end) = (["draft_block", "embed", "rope_angles"], ["rms_norm", "linear", "top_k"]);
    assert_eq!(names(&ops), [&start[..], &layer, &layer, &end].concat());

    let block = op!(ops, DraftBlock, 0);
    assert_eq!((block.mask_token, dims(&block.tokens)), (MASK, vec![BLOCK]));
    let embed = op!(ops, Embed, 0);
    assert!(same(&embed.tokens, &block.tokens));
    assert!(Arc::ptr_eq(embed.table.inner(), session.embedding.inner()));
    let x = &embed.out;
    for i in 0..2 {
        let rope = op!(ops, QkNormRope, i);
        assert_eq!(dims(&rope.parts[0].x), [BLOCK, HEADS, HEAD_DIM]);
        assert_eq!(dims(&rope.parts[1].x), [BLOCK, KV_HEADS, HEAD_DIM]);
        let (norm, qkv) = (op!(ops, RmsNorm, 2 * i), op!(ops, Linear, 4 * i));
        assert!(same(&norm.x, x) && same(&qkv.x, &norm.out));
        let widths: Vec<_> = qkv.parts.iter().map(|p| dims(&p.out)).collect();
        assert_eq!(widths, [[BLOCK, Q], [BLOCK, KV], [BLOCK, KV]]);
        let (append, attend) = (op!(ops, KvAppend, i), op!(ops, Attention, i));
        assert!(same(&append.control.0, &block.control.0));
        assert!(same(&append.k, &rope.parts[1].x) && same(&append.v, &qkv.parts[2].out));
        assert!(same(&append.cache.k, &attend.cache.k) && same(&attend.q, &rope.parts[0].x));
        assert_eq!(attend.regime, Regime::Step);
        assert_eq!(attend.scale, 1.0 / (HEAD_DIM as f32).sqrt());
        let AttentionMask::Block { window, causal } = attend.mask else { panic!("mask") };
        assert_eq!((window, causal), if i == 0 { (Some(24), true) } else { (None, false) });
        for (nth, input) in [(4 * i + 1, &attend.out), (4 * i + 3, &op!(ops, SwiGlu, i).out)] {
            let back = op!(ops, Linear, nth);
            assert!(back.parts[0].accumulate && same(&back.parts[0].out, x));
            assert!(same(&back.x, input));
        }
    }
    // The block writes into the caches that the context fills.
    let context = drafter.context(1).unwrap();
    assert!(same(&op!(context, KvAppend, 1).cache.k, &op!(ops, Attention, 1).cache.k));

    let (norm, head, top) = (op!(ops, RmsNorm, 4), op!(ops, Linear, 8), op!(ops, TopK, 0));
    assert_eq!((norm.rows, dims(&norm.out)), (RowSet::Logits, vec![DRAFTED, HIDDEN]));
    assert!(same(&norm.x, x) && same(&head.x, &norm.out) && head.rows == RowSet::LogitsCompact);
    assert!(Arc::ptr_eq(head.parts[0].weight.inner(), session.head.inner()));
    assert_eq!(dims(&head.parts[0].out), [DRAFTED, VOCAB]);
    assert!(same(&top.logits, &head.parts[0].out) && top.k == SIZES.width);
    assert!(same(&top.ids, &session.proposal.ids) && same(&top.values, &session.proposal.scores));
    assert!(same(top.log_sum_exp.as_ref().unwrap(), &session.proposal.log_sum_exp));
}

#[test]
fn tables_of_its_own_are_used() {
    let session = Session::new();
    let draft = Draft::upstream()
        .tensor("token_embd.weight", &[VOCAB, HIDDEN])
        .tensor("output.weight", &[VOCAB, HIDDEN]);
    let ops = session.drafter(&draft).proposal().unwrap();
    assert!(!Arc::ptr_eq(op!(ops, Embed, 0).table.inner(), session.embedding.inner()));
    assert_eq!(op!(ops, Embed, 0).table.spec.role, WeightRole::Embedding);
    assert!(!Arc::ptr_eq(op!(ops, Linear, 8).parts[0].weight.inner(), session.head.inner()));
}

#[test]
fn memory_is_what_was_planned() {
    let session = Session::new();
    let model = session.model(&Draft::upstream());
    for sizes in [SIZES, DraftSizes { rows: 64, context: 7, kv_type: KvType::F32, ..SIZES }] {
        let mut drafter = DflashDrafter::new(Arc::clone(&model));
        let (planned, before) =
            (drafter.bytes(&sizes, &*session.device).unwrap(), session.device.taken());
        session.attach(&mut drafter, |site| site.sizes = sizes).unwrap();
        assert_eq!(session.device.taken() - before, planned);
        let cache = 2 * 2 * KV * (sizes.context + BLOCK) * sizes.kv_type.dtype().block_bytes();
        assert!(planned > cache as u64);
    }
    let drafter = DflashDrafter::new(Arc::clone(&model));
    let endless = DraftSizes { context: usize::MAX, ..SIZES };
    assert_eq!(detail(drafter.bytes(&endless, &*session.device)), "the context overflows");
    let wide = DraftSizes { context: usize::MAX / 8, ..SIZES };
    assert_eq!(detail(drafter.bytes(&wide, &*session.device)), "the size overflows");
    let mut poor = Session::new();
    poor.device = Arc::new(Counting { most: 1000, ..Counting::new() });
    let mut drafter = DflashDrafter::new(model);
    let error = poor.attach(&mut drafter, |_| {}).unwrap_err();
    assert!(matches!(error, Error::Device(DeviceFault::OutOfMemory { .. })));
}

#[test]
fn a_site_that_does_not_fit_is_refused() {
    let session = Session::new();
    let mut drafter = DflashDrafter::new(session.model(&Draft::upstream()));
    assert_eq!(detail(drafter.context(1)), "the drafter is not attached");
    assert_eq!(detail(drafter.proposal()), "the drafter is not attached");

    let mut other = target();
    other.vocab = 64;
    let refused = session.attach(&mut drafter, |site| site.target = &other);
    assert_eq!(detail(refused), "the draft belongs to another target");
    let small = session.device.weight(VOCAB, HIDDEN / 2, WeightRole::Linear);
    let shape = "embedding table or head of another shape";
    assert_eq!(detail(session.attach(&mut drafter, |site| site.head = &small)), shape);
    assert_eq!(detail(session.attach(&mut drafter, |site| site.embedding = &small)), shape);
    let none = session.attach(&mut drafter, |site| site.ring = None);
    assert_eq!(detail(none), "there is no ring of features");
    for size in [[SIZES.rows - 1, READ.len() * HIDDEN], [64, HIDDEN]] {
        let ring = tensor(&session.device, DType::F32, &size);
        let refused = session.attach(&mut drafter, |site| site.ring = Some(&ring));
        assert_eq!(detail(refused), "a ring of another shape");
    }
    for (rows, width) in [(0, 4), (16, 0), (16, VOCAB + 1)] {
        let sizes = DraftSizes { rows, width, ..SIZES };
        let refused = session.attach(&mut drafter, |site| site.sizes = sizes);
        assert_eq!(detail(refused), "sizes out of range");
    }
    let sizes = DraftSizes { width: 3, ..SIZES };
    let refused = session.attach(&mut drafter, |site| site.sizes = sizes);
    assert_eq!(detail(refused), "a proposal of another shape");
    // Whatever was refused, the drafter still attaches.
    session.attach(&mut drafter, |_| {}).unwrap();
    assert!(drafter.proposal().is_ok());
}
