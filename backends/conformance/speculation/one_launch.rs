//! What a step asks of the device: one graph, one small read-back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::support::{Target, alone, rig, start};
use crate::common::nano;
use crate::driver;
use foretoken::Result;
use foretoken::device::{
    Activations, Buffer, Device, DeviceInfo, Event, Graph, HostTensor, Kernel, Stream, Weight,
    WeightSpec,
};
use foretoken::format::OpenOptions;
use foretoken::generate::{Engine, EngineOptions, SessionOptions, SpeculationRoom, TreeShape};
use foretoken::kernel::Op;
use foretoken::sample::SamplingParams;
use foretoken::speculate::{DflashDrafter, DflashModel};

/// Calls of a stream, and bytes read.
#[derive(Default)]
struct Counts {
    writes: AtomicUsize,
    launches: AtomicUsize,
    reads: AtomicUsize,
    bytes: AtomicUsize,
}

impl Counts {
    /// Writes, launches, reads and bytes read since the last call.
    fn take(&self) -> [usize; 4] {
        [&self.writes, &self.launches, &self.reads, &self.bytes]
            .map(|n| n.swap(0, Ordering::Relaxed))
    }
}

/// A device that counts what its streams are asked for.
struct Counting(Arc<dyn Device>, Arc<Counts>);

struct CountingStream(Box<dyn Stream>, Arc<Counts>);

impl CountingStream {
    fn add(n: &AtomicUsize, more: usize) {
        n.fetch_add(more, Ordering::Relaxed);
    }
}

impl Stream for CountingStream {
    fn write(&mut self, dst: &Buffer, offset: usize, src: &[u8]) -> Result<()> {
        Self::add(&self.1.writes, 1);
        self.0.write(dst, offset, src)
    }

    fn read(&mut self, src: &Buffer, offset: usize, dst: &mut [u8]) -> Result<()> {
        Self::add(&self.1.reads, 1);
        Self::add(&self.1.bytes, dst.len());
        self.0.read(src, offset, dst)
    }

    fn copy(&mut self, d: &Buffer, at: usize, s: &Buffer, from: usize, n: usize) -> Result<()> {
        Self::add(&self.1.writes, 1);
        self.0.copy(d, at, s, from, n)
    }

    fn fill(&mut self, dst: &Buffer, offset: usize, bytes: usize, value: u8) -> Result<()> {
        Self::add(&self.1.writes, 1);
        self.0.fill(dst, offset, bytes, value)
    }

    fn launch(&mut self, kernel: &dyn Kernel) -> Result<()> {
        Self::add(&self.1.launches, 1);
        self.0.launch(kernel)
    }

    fn launch_graph(&mut self, graph: &dyn Graph) -> Result<()> {
        Self::add(&self.1.launches, 1);
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

impl Device for Counting {
    fn id(&self) -> u64 {
        self.0.id()
    }

    fn info(&self) -> DeviceInfo {
        self.0.info()
    }

    fn allocate(&self, bytes: usize, what: &str) -> Result<Buffer> {
        self.0.allocate(bytes, what)
    }

    fn weight_bytes(&self, spec: &WeightSpec) -> Result<u64> {
        self.0.weight_bytes(spec)
    }

    fn load_weight(&self, host: &HostTensor, spec: &WeightSpec) -> Result<Weight> {
        self.0.load_weight(host, spec)
    }

    fn prepare(&self, op: &Op) -> Result<Arc<dyn Kernel>> {
        self.0.prepare(op)
    }

    fn record(&self, kernels: &[Arc<dyn Kernel>]) -> Result<Arc<dyn Graph>> {
        self.0.record(kernels)
    }

    fn stream(&self) -> Result<Box<dyn Stream>> {
        Ok(Box::new(CountingStream(self.0.stream()?, Arc::clone(&self.1))))
    }
}

#[test]
fn a_step_is_one_graph_and_one_small_read() {
    let _alone = alone();
    let Some(plain) = driver::open() else { return };
    let model = nano().join("nano-code-Q4_K_M.gguf");
    let counts = Arc::new(Counts::default());
    let device: Arc<dyn Device> = Arc::new(Counting(plain, Arc::clone(&counts)));
    let engine =
        Engine::load(&model, Arc::clone(&device), &EngineOptions::default(), None, &mut |_| {});
    let engine = engine.unwrap();
    let room = SpeculationRoom { rows: 64, width: 8 };
    let options = SessionOptions { speculation: Some(room), ..SessionOptions::new(256) };
    let Some(rig) = rig(Target::Q4) else { return };
    let draft = DflashModel::load(
        &nano().join("nano-dflash-Q8_0.gguf"),
        &OpenOptions::default(),
        &device,
        engine.config(),
        Activations::Fast,
        &mut |_, _| {},
    );
    let drafter = DflashDrafter::new(draft.unwrap());
    let mut session = engine.session_with_drafter(options, Box::new(drafter)).unwrap();
    let sampling = SamplingParams { temperature: 0.9, seed: 5, ..SamplingParams::default() };
    let draw = sampling.draw(8192).unwrap();
    let mut history = rig.encode("for i in range(10):\n    print(i)\nfor i in range(");

    history.push(start(&mut session, &history));
    for shape in [TreeShape::chain(7), TreeShape::tree(30)] {
        for step in 0..6 {
            counts.take();
            let tokens = session.speculate_sampled(&history, shape, &draw).unwrap().tokens.clone();
            history.extend(tokens);
            let [writes, launches, reads, bytes] = counts.take();
            assert_eq!((launches, reads), (1, 1), "{shape:?}, step {step}");
            assert!(bytes < 512, "{bytes} bytes");
            // Parameters and limits go to the device once.
            assert!(writes == 0 || step == 0, "{shape:?}: {writes} writes in step {step}");
        }
    }
    for _ in 0..3 {
        counts.take();
        let next = session.step_sampled(history[history.len() - 1], &draw).unwrap().unwrap();
        history.push(next);
        let [_, launches, reads, bytes] = counts.take();
        assert_eq!((launches, reads, bytes), (1, 1, 4));
    }
    // What the host has to choose costs more: the count can tell.
    counts.take();
    session.draft(&history, TreeShape::chain(3)).unwrap();
    session.tree_logits(0).unwrap();
    session.commit_path(&[0], 1).unwrap();
    let [_, launches, reads, bytes] = counts.take();
    assert!(launches == 3 && reads > 3 && bytes > 4 * 8192);
}
