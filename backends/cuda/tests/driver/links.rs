//! Copies between devices, and between two contexts of one GPU.

use std::sync::Arc;

use foretoken::Result;
use foretoken::device::{
    Buffer, Device, DeviceFault, DeviceInfo, Driver, End, Graph, HostTensor, Kernel, Link, Stream,
    Weight, WeightSpec, verified_link,
};
use foretoken::kernel::Op;
use foretoken_cuda::{CudaDriver, CudaOptions};

use crate::support::{fault, is_foreign, open, pattern};

/// Settings of the stand-in that this test is run again with.
fn case() -> String {
    std::env::var("FORETOKEN_TEST_FAULT").unwrap_or_default()
}

/// The second GPU.
fn second() -> Option<Arc<dyn Device>> {
    let driver = CudaDriver::new();
    let devices = driver.devices().unwrap();
    devices
        .get(1)
        .filter(|info| driver.score(info) > 0)
        .map(|info| driver.open(info.index).unwrap())
}

/// The first GPU, in a context of its own; a stand-in has none to give.
fn own_context() -> Option<Arc<dyn Device>> {
    let options = CudaOptions { own_context: true, ..CudaOptions::from_environment() };
    let opened = CudaDriver::with_options(options).open(0);
    if open()?.info().name.starts_with("Fake") {
        let said = fault(opened).to_string();
        assert!(said.contains("cuCtxCreate"), "{said}");
        return None;
    }
    Some(opened.unwrap())
}

/// Devices to copy to and from the first: the same opened again, the same in another
/// context, another GPU; as far as there are.
fn others() -> Vec<Arc<dyn Device>> {
    [open(), own_context(), second()].into_iter().flatten().collect()
}

#[test]
fn copies_between_devices_arrive_in_order() {
    let Some(device) = open() else { return };
    for other in others() {
        let link = verified_link(&*device, &*other).unwrap();
        // There and back, round after round, the host never waiting in between.
        let bytes = (3 << 20) + 7;
        let (mut here, mut there) = (device.stream().unwrap(), other.stream().unwrap());
        let [a, b] = [&device, &device].map(|d| d.allocate(bytes + 9, "here").unwrap());
        let c = other.allocate(bytes + 9, "there").unwrap();
        for round in 0..8u8 {
            let sent: Vec<u8> = pattern(bytes).iter().map(|byte| byte ^ round).collect();
            here.write(&a, 3, &sent).unwrap();
            let from = End { stream: &mut *here, buffer: &a, offset: 3 };
            link.copy(from, End { stream: &mut *there, buffer: &c, offset: 5 }, bytes).unwrap();
            // Overwritten behind the copy, and ahead of the next.
            here.fill(&a, 0, bytes + 9, 0xee).unwrap();
            there.fill(&c, 5, 1, round).unwrap();
            let from = End { stream: &mut *there, buffer: &c, offset: 5 };
            link.copy(from, End { stream: &mut *here, buffer: &b, offset: 1 }, bytes).unwrap();
            there.fill(&c, 0, bytes + 9, 0xdd).unwrap();
            let mut got = vec![0; bytes];
            here.read(&b, 1, &mut got).unwrap();
            assert_eq!(got[0], round);
            assert!(got[1..] == sent[1..], "round {round}");
        }
    }
}

#[test]
fn ends_are_checked() {
    let (Some(device), Some(other), Some(third)) = (open(), open(), open()) else { return };
    let link = device.link(&*other).unwrap();
    let [a, b, c] = [&device, &other, &third].map(|d| d.allocate(64, "end").unwrap());
    let streams = || [&device, &other, &third].map(|d| d.stream().unwrap());
    let copy = |from: usize, to: usize, buffers: [&Buffer; 2], offset, bytes| {
        let mut streams = streams();
        let mut ends = streams.iter_mut().enumerate();
        let (mut source, mut place) = (None, None);
        for (i, stream) in &mut ends {
            if i == from {
                source = Some(stream);
            } else if i == to {
                place = Some(stream);
            }
        }
        let from = End { stream: &mut **source.unwrap(), buffer: buffers[0], offset };
        let to = End { stream: &mut **place.unwrap(), buffer: buffers[1], offset: 0 };
        link.copy(from, to, bytes)
    };
    copy(0, 1, [&a, &b], 0, 64).unwrap();
    copy(1, 0, [&b, &a], 64, 0).unwrap();
    assert!(is_foreign(fault(copy(0, 2, [&a, &c], 0, 1))));
    assert!(is_foreign(fault(copy(2, 1, [&c, &b], 0, 1))));
    assert!(is_foreign(fault(copy(0, 1, [&b, &b], 0, 1))));
    assert!(is_foreign(fault(copy(0, 1, [&a, &a], 0, 1))));
    let outside = |f| matches!(f, DeviceFault::OutOfBounds { .. });
    assert!(outside(fault(copy(0, 1, [&a, &b], 1, 64))));
    assert!(outside(fault(copy(0, 1, [&a, &b], 0, usize::MAX))));
}

/// On a stand-in with two devices: what the library refuses, or copies wrong, is found and
/// told, and both devices go on.
#[test]
fn copies_that_do_not_arrive_are_found_out() {
    let words = match case().as_str() {
        "torn" => "a copy of 4095 bytes arrived wrong at byte 4094",
        "peers" => "cuda:0 can not reach the memory of cuda:1",
        "refused" => "cuMemcpyPeerAsync: error 999",
        "whole" => "",
        _ => return,
    };
    let (device, other) = (open().unwrap(), second().unwrap());
    for _ in 0..2 {
        match verified_link(&*device, &*other) {
            Ok(_) => assert_eq!(words, ""),
            Err(error) => {
                let said = error.to_string();
                assert!(!words.is_empty() && said.ends_with(words), "{said}");
                assert!(said.starts_with("no peer copies between cuda:0 and cuda:1"), "{said}");
            }
        }
    }
    for device in [device, other] {
        device.stream().unwrap().synchronize().unwrap();
    }
}

/// A device whose links spoil a byte of what they copy.
struct Spoiling(Arc<dyn Device>);

struct Spoilt(Arc<dyn Link>);

impl Link for Spoilt {
    fn copy(&self, from: End<'_>, to: End<'_>, bytes: usize) -> Result<()> {
        let End { stream, buffer, offset } = to;
        self.0.copy(from, End { stream: &mut *stream, buffer, offset }, bytes)?;
        if bytes > 4096 { stream.fill(buffer, offset + 4096, 1, 0xa5) } else { Ok(()) }
    }
}

impl Device for Spoiling {
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

    fn link(&self, other: &dyn Device) -> Result<Arc<dyn Link>> {
        Ok(Arc::new(Spoilt(self.0.link(other)?)))
    }

    fn stream(&self) -> Result<Box<dyn Stream>> {
        self.0.stream()
    }
}

/// A pattern that arrives spoilt is detected, on the device itself.
#[test]
fn a_spoilt_byte_is_found() {
    let Some(device) = open() else { return };
    let spoiling = Spoiling(Arc::clone(&device));
    for other in others() {
        let said = fault(verified_link(&spoiling, &*other)).to_string();
        assert!(said.ends_with("a copy of 65537 bytes arrived wrong at byte 4096"), "{said}");
        verified_link(&*device, &*other).unwrap();
    }
}
