//! The memory plan is what is reserved, device by device, and it is reserved once.

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use foretoken::device::{
    Activations, Buffer, Device, DeviceFault, DeviceInfo, Graph, HostTensor, Kernel, MemoryKind,
    MemoryPlan, Rehearsal, Stream, Weight, WeightSpec,
};
use foretoken::format::OpenOptions;
use foretoken::generate::{
    Engine, GenerateFault, LoadStage, Planner, Session, SessionOptions, SpeculationRoom,
};
use foretoken::kernel::{KernelKey, Op};
use foretoken::model::ModelFile;
use foretoken::speculate::dflash::{DflashFile, DflashPlan};
use foretoken::speculate::{DflashDrafter, Drafter, PromptLookup};
use foretoken::tensor::DType;
use foretoken::{Error, Result};

use device::Counting;

#[allow(dead_code)] // it has more uses elsewhere
#[path = "dflash_support/device.rs"]
mod device;

/// A device that gives memory in pieces of 4096 bytes and whose kernels share scratch
/// memory: some of it for each row of a product, some for each slot of a cache.
struct Sharing {
    counts: Counting,
    index: usize,
    free: u64,
    scratch: AtomicU64,
    /// Times that a kernel found too little scratch memory.
    grown: AtomicU64,
}

const PIECE: u64 = 4096;
const OVERHEAD: u64 = 1000;

impl Sharing {
    fn new(index: usize, free: u64) -> Arc<Self> {
        let (scratch, grown) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Self { counts: Counting::new(), index, free, scratch, grown })
    }

    fn taken(&self) -> u64 {
        self.counts.taken()
    }

    fn take(&self, bytes: u64) {
        self.counts.taken.fetch_add(bytes, Ordering::Relaxed);
    }
}

struct Idle(usize);

impl Kernel for Idle {
    fn key(&self) -> KernelKey {
        KernelKey { op: "idle", dtype: DType::F32, regime: None, variant: "" }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Graph for Idle {
    fn len(&self) -> usize {
        self.0
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Device for Sharing {
    fn id(&self) -> u64 {
        self.counts.id
    }

    fn info(&self) -> DeviceInfo {
        let memory_free = self.free.saturating_sub(self.taken());
        DeviceInfo { index: self.index, memory_free, ..self.counts.info() }
    }

    fn allocate(&self, bytes: usize, what: &str) -> Result<Buffer> {
        let buffer = self.counts.allocate(bytes, what)?;
        self.take(self.allocation_bytes(bytes) - bytes as u64);
        Ok(buffer)
    }

    fn allocation_bytes(&self, bytes: usize) -> u64 {
        (bytes as u64).next_multiple_of(PIECE)
    }

    fn weight_bytes(&self, spec: &WeightSpec) -> Result<u64> {
        Ok(self.counts.weight_bytes(spec)?.next_multiple_of(PIECE))
    }

    fn load_weight(&self, host: &HostTensor, spec: &WeightSpec) -> Result<Weight> {
        let (bytes, inner) = (self.weight_bytes(spec)?, Arc::new(()));
        self.take(bytes);
        Ok(Weight::new(*spec, host.scale, self.id(), bytes, inner))
    }

    fn prepare(&self, op: &Op) -> Result<Arc<dyn Kernel>> {
        if self.scratch_bytes(op)? > self.scratch.load(Ordering::Relaxed) {
            self.grown.fetch_add(1, Ordering::Relaxed);
        }
        Ok(Arc::new(Idle(1)))
    }

    fn scratch_bytes(&self, op: &Op) -> Result<u64> {
        let foreign = |id| {
            let fault = DeviceFault::ForeignBuffer { op: op.name() };
            if id == self.id() { Ok(()) } else { Err(Error::from(fault)) }
        };
        match op {
            Op::Linear(linear) => {
                foreign(linear.x.buffer().device())?;
                for part in &linear.parts {
                    foreign(part.weight.device())?;
                }
                Ok(linear.x.shape().elements() as u64)
            }
            Op::Attention(attention) => Ok(3 * attention.cache.k.shape().elements() as u64),
            _ => Ok(0),
        }
    }

    fn reserve_scratch(&self, bytes: u64) -> Result<()> {
        if self.scratch.fetch_max(bytes, Ordering::Relaxed) < bytes {
            self.take(self.allocation_bytes(bytes as usize));
        }
        Ok(())
    }

    fn overhead_bytes(&self) -> u64 {
        OVERHEAD
    }

    fn record(&self, kernels: &[Arc<dyn Kernel>]) -> Result<Arc<dyn Graph>> {
        Ok(Arc::new(Idle(kernels.len())))
    }

    fn stream(&self) -> Result<Box<dyn Stream>> {
        self.counts.stream()
    }
}

fn nano(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/nano").join(name)
}

fn target() -> ModelFile {
    ModelFile::open(&nano("nano-code-Q4_K_M.gguf"), &OpenOptions::default()).unwrap()
}

fn draft() -> DflashFile {
    DflashFile::open(&nano("nano-dflash-Q8_0.gguf"), &OpenOptions::default()).unwrap()
}

fn planner(device: &Arc<Sharing>) -> Planner {
    Planner::new(target(), Arc::clone(device) as _, Activations::Fast).unwrap()
}

/// Plans with the draft, on a device of its own if one is given.
fn with_draft(planner: &mut Planner, other: Option<&Arc<Sharing>>) -> DflashPlan {
    let config = &planner.file().config;
    let plan = match other {
        None => DflashPlan::new(draft(), &**planner.device(), config, Activations::Fast),
        Some(other) => DflashPlan::apart(draft(), &**other, target(), Activations::Fast),
    };
    let plan = plan.unwrap();
    let on = other.map(|other| Rehearsal::of(Arc::clone(other) as _));
    let model = plan.rehearse(on.as_ref().unwrap_or(planner.stand_in())).unwrap();
    let make = move || Ok(Box::new(DflashDrafter::new(Arc::clone(&model))) as Box<dyn Drafter>);
    planner.draft_with(Box::new(make), on);
    plan
}

fn options(context: usize, rows: Option<usize>) -> SessionOptions {
    let speculation = rows.map(|rows| SpeculationRoom { rows, width: 8 });
    SessionOptions { speculation, ..SessionOptions::new(context) }
}

fn load(planner: Planner, options: &SessionOptions) -> (Arc<Engine>, MemoryPlan) {
    let mut shown = None;
    let engine = planner.load(options, &mut |stage| {
        if let LoadStage::Planned(plan) = stage {
            shown = Some(plan.clone());
        }
    });
    (engine.unwrap(), shown.unwrap())
}

/// The session's plan is the one shown, and no kernel found too little.
fn held(session: &Session, shown: &MemoryPlan, devices: &[&Arc<Sharing>]) {
    assert_eq!(session.plan(), shown);
    assert_eq!(shown.devices().len(), devices.len());
    for device in devices {
        let on = format!("counting:{} (counting)", device.index);
        assert_eq!(device.taken() + OVERHEAD, shown.total_on(&on), "{shown}");
        assert_eq!(device.grown.load(Ordering::Relaxed), 0);
        assert!(device.scratch.load(Ordering::Relaxed) > 0);
    }
}

#[test]
fn what_is_planned_is_reserved() {
    for context in [1, 700, 4096] {
        let device = Sharing::new(0, u64::MAX);
        let options = options(context, None);
        let (engine, shown) = load(planner(&device), &options);
        let session = engine.session(options).unwrap();
        held(&session, &shown, &[&device]);
        assert_eq!(shown.of(MemoryKind::Draft) + shown.of(MemoryKind::Verify), 0);
        assert!(shown.of(MemoryKind::Driver) > OVERHEAD, "{shown}");
    }
}

#[test]
fn a_drafter_on_the_same_device_is_planned() {
    for rows in [2, 23, 64] {
        let device = Sharing::new(0, u64::MAX);
        let (mut planner, options) = (planner(&device), options(1000, Some(rows)));
        let draft = with_draft(&mut planner, None);
        let weights = draft.bytes();
        let (engine, shown) = load(planner, &options);
        let model = draft.load(engine.device(), &mut |_, _| {}).unwrap();
        let drafter = Box::new(DflashDrafter::new(model));
        let session = engine.session_with_drafter(options, drafter).unwrap();
        held(&session, &shown, &[&device]);
        assert!(shown.of(MemoryKind::Draft) > weights && shown.of(MemoryKind::Verify) > 0);
    }
    // One that has no weights.
    let device = Sharing::new(0, u64::MAX);
    let (mut planner, options) = (planner(&device), options(1000, Some(17)));
    planner.draft_with(Box::new(|| Ok(Box::new(PromptLookup::new(16)?) as _)), None);
    let (engine, shown) = load(planner, &options);
    let drafter = Box::new(PromptLookup::new(16).unwrap());
    held(&engine.session_with_drafter(options, drafter).unwrap(), &shown, &[&device]);
}

#[test]
fn a_drafter_on_another_device_is_planned_there() {
    let (device, other) = (Sharing::new(0, u64::MAX), Sharing::new(1, u64::MAX));
    let (mut planner, options) = (planner(&device), options(1000, Some(23)));
    let draft = with_draft(&mut planner, Some(&other));
    let weights = draft.bytes();
    let (engine, shown) = load(planner, &options);
    let model = draft.load(&(Arc::clone(&other) as Arc<dyn Device>), &mut |_, _| {}).unwrap();
    let drafter = Box::new(DflashDrafter::new(model));
    let session = engine.session_with_drafter(options, drafter).unwrap();
    held(&session, &shown, &[&device, &other]);
    assert!(shown.total_on("counting:1 (counting)") > weights);
}

/// Sessions that were not planned at load are planned when they are made.
#[test]
fn another_session_is_planned_before_it_is_made() {
    let device = Sharing::new(0, u64::MAX);
    let (engine, _) = load(planner(&device), &options(64, None));
    let before = device.taken();
    let other = options(4096, Some(17));
    let drafter = Box::new(PromptLookup::new(16).unwrap());
    let session = engine.session_with_drafter(other, drafter).unwrap();
    let weights = session.plan().of(MemoryKind::Weights);
    assert_eq!(device.taken() - before, session.plan().total() - weights - OVERHEAD);
    assert_eq!(device.grown.load(Ordering::Relaxed), 0);
}

/// Of each device a byte too little is refused before anything is reserved, with what is
/// needed, part by part.
#[test]
fn what_does_not_fit_is_refused_part_by_part() {
    let options = options(1000, Some(23));
    let [first, second] = {
        let (device, other) = (Sharing::new(0, u64::MAX), Sharing::new(1, u64::MAX));
        let mut planner = planner(&device);
        with_draft(&mut planner, Some(&other));
        let plan = planner.plan(&options).unwrap();
        ["counting:0 (counting)", "counting:1 (counting)"].map(|on| plan.total_on(on))
    };
    for (less, on) in [([0, 0], None), ([1, 0], Some(0)), ([0, 1], Some(1))] {
        let device = Sharing::new(0, first - less[0]);
        let other = Sharing::new(1, second - less[1]);
        let mut planner = planner(&device);
        with_draft(&mut planner, Some(&other));
        assert_eq!(planner.fits(&options).is_ok(), on.is_none());
        let Some(on) = on else { continue };
        let error = planner.load(&options, &mut |_| panic!("nothing may be loaded")).map(drop);
        let error = error.unwrap_err();
        let Error::Generate(GenerateFault::DoesNotFit { needed, free, device: name, .. }) = &error
        else {
            panic!("{error}")
        };
        assert_eq!((*needed, name.as_str()), (free + 1, format!("counting:{on}").as_str()));
        let said = error.to_string();
        assert!(said.contains("driver ") && said.contains("draft "), "{said}");
        assert!(!said.contains('\n') && said.ends_with("lower --context"), "{said}");
        assert_eq!(said.contains("kv_cache "), on == 0, "{said}");
        assert_eq!(device.taken() + other.taken(), 0);
    }
}

/// The default context is the largest that fits, scratch memory counted.
#[test]
fn the_default_context_counts_scratch_memory() {
    let all = planner(&Sharing::new(0, u64::MAX)).default_context().unwrap();
    let plan = |context| {
        let device = Sharing::new(0, u64::MAX);
        let options = SessionOptions::on(&device.info(), context);
        planner(&device).plan(&options).unwrap()
    };
    let need = plan(all).total();
    let room = |bytes: u64| planner(&Sharing::new(0, bytes)).default_context().unwrap();
    assert_eq!(room(need / 9 * 10 + 100), all);
    // With a fiftieth less it would fit but for the scratch memory.
    assert!(plan(all).of(MemoryKind::Driver) > need / 50);
    assert_eq!(room((need - need / 50) / 9 * 10), all / 2);
}
