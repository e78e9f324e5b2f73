//! A drafter on another device than its target, by way of copies from device to device: what
//! is verified is used and changes nothing, what is not is left alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use foretoken::Result;
use foretoken::device::{
    Activations, Buffer, Device, DeviceInfo, End, Graph, HostTensor, Kernel, Link, Stream, Weight,
    WeightSpec,
};
use foretoken::format::OpenOptions;
use foretoken::generate::{
    Engine, EngineOptions, Session, SessionOptions, SpeculationRoom, TreeShape, WantLogits,
};
use foretoken::kernel::Op;
use foretoken::model::ModelFile;
use foretoken::speculate::DflashDrafter;
use foretoken::speculate::dflash::{DflashFile, DflashPlan};

use super::support::{Rig, Target, alone, bits, rig, start};
use crate::common::nano;
use crate::driver;

/// A device with a link to any other: through the host, so that it is there with any driver,
/// counted, and perhaps spoilt.
struct Linked {
    inner: Arc<dyn Device>,
    copies: Arc<AtomicUsize>,
    /// Copies of so many bytes or more lose their last one.
    spoilt_from: usize,
}

struct Counted {
    copies: Arc<AtomicUsize>,
    spoilt_from: usize,
}

impl Link for Counted {
    fn copy(&self, from: End<'_>, to: End<'_>, bytes: usize) -> Result<()> {
        self.copies.fetch_add(1, Ordering::Relaxed);
        let mut content = vec![0; bytes];
        from.stream.read(from.buffer, from.offset, &mut content)?;
        content.truncate(bytes - usize::from(bytes >= self.spoilt_from));
        to.stream.write(to.buffer, to.offset, &content)
    }
}

impl Device for Linked {
    fn id(&self) -> u64 {
        self.inner.id()
    }

    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }

    fn allocate(&self, bytes: usize, what: &str) -> Result<Buffer> {
        self.inner.allocate(bytes, what)
    }

    fn weight_bytes(&self, spec: &WeightSpec) -> Result<u64> {
        self.inner.weight_bytes(spec)
    }

    fn load_weight(&self, host: &HostTensor, spec: &WeightSpec) -> Result<Weight> {
        self.inner.load_weight(host, spec)
    }

    fn prepare(&self, op: &Op) -> Result<Arc<dyn Kernel>> {
        self.inner.prepare(op)
    }

    fn record(&self, kernels: &[Arc<dyn Kernel>]) -> Result<Arc<dyn Graph>> {
        self.inner.record(kernels)
    }

    fn link(&self, _: &dyn Device) -> Result<Arc<dyn Link>> {
        let (copies, spoilt_from) = (Arc::clone(&self.copies), self.spoilt_from);
        Ok(Arc::new(Counted { copies, spoilt_from }))
    }

    fn stream(&self) -> Result<Box<dyn Stream>> {
        self.inner.stream()
    }
}

fn options() -> SessionOptions {
    let room = SpeculationRoom { rows: 64, width: 24 };
    SessionOptions { speculation: Some(room), chunk: 128, ..SessionOptions::new(400) }
}

/// A session on a linked device, its drafter on another; and the copies it makes.
fn apart(spoilt_from: usize) -> (Session, Arc<AtomicUsize>) {
    let copies = Arc::new(AtomicUsize::new(0));
    let linked =
        Linked { inner: driver::open().unwrap(), copies: Arc::clone(&copies), spoilt_from };
    let (path, open) = (nano().join("nano-code-Q4_K_M.gguf"), OpenOptions::default());
    let engine =
        Engine::load(&path, Arc::new(linked), &EngineOptions::default(), None, &mut |_| {});
    let other = driver::open().unwrap();
    let file = DflashFile::open(&nano().join("nano-dflash-Q8_0.gguf"), &open).unwrap();
    let target = ModelFile::open(&path, &open).unwrap();
    let plan = DflashPlan::apart(file, &*other, target, Activations::Fast).unwrap();
    let model = plan.load(&other, &mut |_, _| {}).unwrap();
    let drafter = Box::new(DflashDrafter::new(model));
    (engine.unwrap().session_with_drafter(options(), drafter).unwrap(), copies)
}

/// Both sessions draft and commit the same, step after step.
fn same_steps(rig: &Rig, here: &mut Session, there: &mut Session) {
    let text = "for i in range(10):\n    print(i)\nfor i in range(10):\n    print(i)\n";
    // Longer than a ring, so that it is gone round.
    let mut history = rig.encode(&text.repeat(9));
    let first = start(here, &history);
    assert_eq!(first, start(there, &history));
    history.push(first);
    for step in 0..12 {
        let shape = [TreeShape::tree(30), TreeShape::chain(9)][step % 2];
        let run = |session: &mut Session| {
            let tokens = session.speculate(&history, shape).unwrap().tokens.clone();
            let (ids, scores) = session.read_proposal().unwrap();
            (tokens, ids, bits(&scores), bits(&session.read_state().unwrap()))
        };
        let (a, b) = (run(here), run(there));
        assert_eq!(a.0, b.0, "step {step}");
        assert!(a == b, "step {step}");
        history.extend(a.0);
        if step == 5 {
            for session in [&mut *here, &mut *there] {
                session.step(&history[history.len() - 1..], WantLogits::Last).unwrap();
            }
            history.push(here.argmax(0).unwrap());
        }
    }
}

#[test]
fn verified_copies_are_used_and_change_nothing() {
    let _alone = alone();
    let Some(rig) = rig(Target::Q4) else { return };
    let mut here = rig.speculative(400, rig.dflash());
    assert!(here.drafter_link().is_none());
    let (mut there, copies) = apart(usize::MAX);
    assert_eq!(there.drafter_link(), Some(Ok(())));
    let trials = copies.load(Ordering::Relaxed);
    same_steps(rig, &mut here, &mut there);
    assert!(there.last_step().unwrap().draft > std::time::Duration::ZERO);
    // Features and a proposal for each step.
    assert!(copies.load(Ordering::Relaxed) >= trials + 24);
}

#[test]
fn copies_that_arrive_wrong_are_not_used() {
    let _alone = alone();
    let Some(rig) = rig(Target::Q4) else { return };
    let mut here = rig.speculative(400, rig.dflash());
    for spoilt_from in [1, 17, 1 << 20] {
        let (mut there, copies) = apart(spoilt_from);
        let reason = there.drafter_link().unwrap().unwrap_err().to_owned();
        assert!(reason.contains("arrived wrong"), "{reason}");
        let trials = copies.load(Ordering::Relaxed);
        same_steps(rig, &mut here, &mut there);
        assert_eq!(copies.load(Ordering::Relaxed), trials);
    }
}

/// The driver's own copies, where it has some: between two handles of a device.
#[test]
fn a_driver_that_has_no_copies_says_so() {
    let (Some(one), Some(other)) = (driver::open(), driver::open()) else { return };
    let has = one.info().driver == "cuda";
    match foretoken::device::verified_link(&*one, &*other) {
        Ok(_) => assert!(has),
        Err(error) => {
            let said = error.to_string();
            assert!(!has && said.contains("has none"), "{said}");
        }
    }
}
