//! What the device promises besides right numbers: typed refusals, ordered copies,
//! a failure that stays, handles that outlive the device.

use std::sync::Arc;

use foretoken::Error;
use foretoken::device::{
    Activations, Buffer, Device, DeviceFault, Driver, HostTensor, WeightRole, WeightSpec,
};
use foretoken::format::SharedBytes;
use foretoken::kernel::{
    Attention, AttentionMask, Control, Embed, KvAppend, KvPair, Op, Regime, RmsNorm, RowSet,
};
use foretoken::tensor::{DType, Shape, Tensor};
use foretoken_cpu::simd::Isa;
use foretoken_cpu::{CpuDriver, CpuOptions};

fn open(options: CpuOptions) -> Arc<dyn Device> {
    CpuDriver::new(options).open(0).unwrap()
}

fn two_threads() -> Arc<dyn Device> {
    open(CpuOptions { threads: Some(2), ..CpuOptions::default() })
}

fn fault<T>(result: foretoken::Result<T>) -> DeviceFault {
    match result.err() {
        Some(Error::Device(fault)) => fault,
        other => panic!("not a device fault: {other:?}"),
    }
}

fn tensor(device: &dyn Device, dtype: DType, dims: &[usize]) -> Tensor {
    let shape = Shape::new(dims).unwrap();
    let buffer = device.allocate(dtype.bytes_for(shape.elements()).unwrap(), "test").unwrap();
    Tensor::new(&buffer, 0, dtype, shape).unwrap()
}

fn control(device: &dyn Device, words: [i32; 4]) -> Control {
    let control = Control(tensor(device, DType::I32, &[4]));
    set(device, &control, words);
    control
}

fn set(device: &dyn Device, control: &Control, words: [i32; 4]) {
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    device.stream().unwrap().write(control.0.buffer(), 0, &bytes).unwrap();
}

fn norm(device: &dyn Device, rows: usize) -> RmsNorm {
    let x = tensor(device, DType::F32, &[rows, 32]);
    RmsNorm {
        control: control(device, [1, 0, 0, 1]),
        rows: RowSet::All,
        out: x.clone(),
        x,
        weight: tensor(device, DType::F32, &[32]),
        eps: 1e-6,
    }
}

#[test]
fn the_device_describes_itself() {
    let driver = CpuDriver::default();
    let listed = driver.devices().unwrap();
    assert_eq!(listed.len(), 1);
    let device = driver.open(0).unwrap();
    let info = device.info();
    assert_eq!((info.driver, info.index, info.warp_width), ("cpu", 0, 1));
    assert_eq!(info.arch, std::env::consts::ARCH);
    assert_eq!(info.features, [Isa::detect().name()]);
    assert!(info.units >= 1 && !info.name.is_empty());
    assert!(info.memory_free <= info.memory_total);
    assert_eq!(driver.score(&info), 1);
    assert_ne!(device.id(), driver.open(0).unwrap().id());
    assert!(matches!(fault(driver.open(1)), DeviceFault::NoSuchDevice { .. }));
}

#[test]
fn impossible_options_are_refused() {
    for threads in [0, CpuDriver::MAX_THREADS + 1] {
        let options = CpuOptions { threads: Some(threads), ..CpuOptions::default() };
        assert!(matches!(fault(CpuDriver::new(options).open(0)), DeviceFault::Failed { .. }));
    }
    for isa in [Isa::Avx2, Isa::Avx512, Isa::Neon] {
        let options = CpuOptions { isa: Some(isa), ..CpuOptions::default() };
        assert_eq!(CpuDriver::new(options).open(0).is_ok(), isa.is_available(), "{isa}");
    }
}

#[test]
fn the_memory_limit_holds_and_memory_comes_back() {
    let device = open(CpuOptions { memory_limit: Some(1 << 20), ..CpuOptions::default() });
    let first = device.allocate(700 << 10, "the cache").unwrap();
    match fault(device.allocate(400 << 10, "scratch")) {
        DeviceFault::OutOfMemory { what, asked, free, device } => {
            assert_eq!((what.as_str(), asked, free), ("scratch", 400 << 10, 324 << 10));
            assert_eq!(device, "cpu:0");
        }
        other => panic!("{other}"),
    }
    drop(first);
    assert!(device.allocate(1 << 20, "all of it").is_ok());
    for bytes in [usize::MAX, isize::MAX as usize, 1 << 60] {
        assert!(matches!(fault(device.allocate(bytes, "x")), DeviceFault::OutOfMemory { .. }));
    }
    // No limit of ours: the system's.
    let device = open(CpuOptions { memory_limit: Some(u64::MAX), ..CpuOptions::default() });
    assert!(matches!(fault(device.allocate(1 << 60, "x")), DeviceFault::OutOfMemory { .. }));
}

#[test]
fn weights_count_against_the_limit() {
    let device = open(CpuOptions { memory_limit: Some(10_000), ..CpuOptions::default() });
    for role in [WeightRole::Linear, WeightRole::Embedding] {
        let (rows, cols, dtype) = (32, 64, DType::F32);
        let spec = WeightSpec { dtype, rows, cols, role, activations: Activations::F32 };
        let bytes = SharedBytes::from(vec![0; 8192]);
        let host = HostTensor { dtype, rows, cols, bytes, scale: 1.0 };
        let weight = device.load_weight(&host, &spec).unwrap();
        assert_eq!(weight.bytes(), device.weight_bytes(&spec).unwrap());
        let second = fault(device.load_weight(&host, &spec));
        assert!(matches!(second, DeviceFault::OutOfMemory { .. }));
        drop(weight);
        assert!(device.load_weight(&host, &spec).is_ok());
        // What was planned and what comes must be the same thing.
        let other = WeightSpec { rows: 31, ..spec };
        assert!(matches!(
            fault(device.load_weight(&host, &other)),
            DeviceFault::BadOperands { .. }
        ));
        let short = HostTensor { bytes: SharedBytes::from(vec![0; 8191]), ..host };
        assert!(matches!(
            fault(device.load_weight(&short, &spec)),
            DeviceFault::BadOperands { .. }
        ));
    }
    let spec = WeightSpec {
        dtype: DType::IQ1_S,
        rows: 1,
        cols: 256,
        role: WeightRole::Embedding,
        activations: Activations::Fast,
    };
    let unsupported = fault(device.weight_bytes(&spec));
    assert!(matches!(unsupported, DeviceFault::Unsupported { dtype: DType::IQ1_S, .. }));
}

#[test]
fn copies_are_checked_and_ordered() {
    let (device, other) = (two_threads(), two_threads());
    let mut stream = device.stream().unwrap();
    let a = device.allocate(16, "a").unwrap();
    let b = device.allocate(16, "b").unwrap();
    stream.write(&a, 0, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    stream.fill(&a, 8, 8, 9).unwrap();
    stream.copy(&b, 4, &a, 6, 4).unwrap();
    stream.copy(&a, 0, &a, 8, 8).unwrap();
    let mut read = [0; 4];
    stream.read(&b, 4, &mut read).unwrap();
    assert_eq!(read, [7, 8, 9, 9]);
    stream.read(&a, 0, &mut read).unwrap();
    assert_eq!(read, [9; 4]);

    let outside = |f| matches!(f, DeviceFault::OutOfBounds { .. });
    assert!(outside(fault(stream.write(&a, 9, &[0; 8]))));
    assert!(outside(fault(stream.read(&a, usize::MAX, &mut read))));
    assert!(outside(fault(stream.fill(&a, 0, 17, 0))));
    assert!(outside(fault(stream.copy(&a, 0, &b, 15, 2))));
    assert!(matches!(fault(stream.copy(&a, 0, &a, 4, 8)), DeviceFault::BadOperands { .. }));
    let foreign: Buffer = other.allocate(16, "c").unwrap();
    let stranger = |f| matches!(f, DeviceFault::ForeignBuffer { .. });
    assert!(stranger(fault(stream.write(&foreign, 0, &[0]))));
    assert!(stranger(fault(stream.copy(&a, 0, &foreign, 0, 1))));

    let event = stream.record_event().unwrap();
    event.wait().unwrap();
    device.stream().unwrap().wait_event(&*event).unwrap();
    assert!(stranger(fault(other.stream().unwrap().wait_event(&*event))));
}

#[test]
fn kernels_and_operands_belong_to_one_device() {
    let (device, other) = (two_threads(), two_threads());
    let op: Op = norm(&*device, 4).into();
    let stranger = |f| matches!(f, DeviceFault::ForeignBuffer { .. });
    assert!(stranger(fault(other.prepare(&op))));
    let kernel = device.prepare(&op).unwrap();
    assert_eq!(kernel.key().op, "rms_norm");
    assert!(stranger(fault(other.record(&[Arc::clone(&kernel)]))));
    assert!(stranger(fault(other.stream().unwrap().launch(&*kernel))));
    let graph = device.record(&[kernel]).unwrap();
    assert_eq!((graph.len(), graph.is_empty()), (1, false));
    assert!(stranger(fault(other.stream().unwrap().launch_graph(&*graph))));
    assert!(device.record(&[]).unwrap().is_empty());
}

#[test]
fn overlapping_and_mistyped_operands_are_refused() {
    let device = two_threads();
    let op = norm(&*device, 4);
    let buffer = op.x.buffer();
    let part = Tensor::new(buffer, 128, DType::F32, Shape::new(&[3, 32]).unwrap()).unwrap();
    let shifted = RmsNorm { out: part.clone(), ..op.clone() };
    assert!(matches!(fault(device.prepare(&shifted.into())), DeviceFault::BadOperands { .. }));
    let weight = Tensor::new(buffer, 0, DType::F32, Shape::new(&[32]).unwrap()).unwrap();
    let own_weight = RmsNorm { weight, ..op.clone() };
    assert!(matches!(fault(device.prepare(&own_weight.into())), DeviceFault::BadOperands { .. }));
    let weight = tensor(&*device, DType::F16, &[32]);
    let mistyped = fault(device.prepare(&RmsNorm { weight, ..op }.into()));
    assert!(matches!(mistyped, DeviceFault::Unsupported { dtype: DType::F16, .. }), "{mistyped}");
    let cache = tensor(&*device, DType::Q8_0, &[8, 1, 32]);
    let attention = Attention {
        control: control(&*device, [1, 0, 0, 1]),
        regime: Regime::Step,
        mask: AttentionMask::Causal,
        q: tensor(&*device, DType::F32, &[1, 1, 32]),
        cache: KvPair { k: cache.clone(), v: cache },
        scale: 1.0,
        out: tensor(&*device, DType::F32, &[1, 1, 32]),
    };
    let unsupported = fault(device.prepare(&attention.into())).to_string();
    let want = format!("{} has no kernel for attention with Q8_0 operands", std::env::consts::ARCH);
    assert_eq!(unsupported, want);
}

#[test]
fn a_table_for_linear_operations_can_not_be_gathered_from() {
    let device = two_threads();
    let (dtype, rows, cols) = (DType::F32, 4, 32);
    let role = WeightRole::Linear;
    let spec = WeightSpec { dtype, rows, cols, role, activations: Activations::Fast };
    let bytes = SharedBytes::from(vec![0; 512]);
    let host = HostTensor { dtype, rows, cols, bytes, scale: 1.0 };
    let op = Embed {
        control: control(&*device, [1, 0, 0, 1]),
        tokens: tensor(&*device, DType::I32, &[1]),
        table: device.load_weight(&host, &spec).unwrap(),
        out: tensor(&*device, DType::F32, &[1, 32]),
    };
    assert!(matches!(fault(device.prepare(&op.into())), DeviceFault::BadOperands { .. }));
}

/// Values that break the contract end the launch, and the device with it.
#[test]
fn a_bad_control_block_fails_the_device_for_good() {
    for words in [[5, 0, 0, 1], [-1, 0, 0, 1]] {
        let device = two_threads();
        let op = norm(&*device, 4);
        let block = op.control.clone();
        let kernel = device.prepare(&op.into()).unwrap();
        let mut stream = device.stream().unwrap();
        stream.launch(&*kernel).unwrap();
        set(&*device, &block, words);
        let first = fault(stream.launch(&*kernel));
        assert!(matches!(&first, DeviceFault::Failed { call, .. } if call.contains("rms_norm")));
        set_is_refused(&*device, &block);
        assert_eq!(fault(stream.launch(&*kernel)), first);
        assert_eq!(fault(stream.synchronize()), first);
        // A new device is not affected.
        let device = two_threads();
        let kernel = device.prepare(&norm(&*device, 4).into()).unwrap();
        device.stream().unwrap().launch(&*kernel).unwrap();
    }
}

fn set_is_refused(device: &dyn Device, control: &Control) {
    let result = device.stream().unwrap().write(control.0.buffer(), 0, &[0; 16]);
    assert!(matches!(fault(result), DeviceFault::Failed { .. }));
}

#[test]
fn the_cache_has_an_end() {
    let device = two_threads();
    let cache = tensor(&*device, DType::F32, &[8, 1, 16]);
    let op = KvAppend {
        control: control(&*device, [2, 6, 0, 1]),
        k: tensor(&*device, DType::F32, &[2, 1, 16]),
        v: tensor(&*device, DType::F32, &[2, 1, 16]),
        cache: KvPair { k: cache, v: tensor(&*device, DType::F32, &[8, 1, 16]) },
    };
    let block = op.control.clone();
    let kernel = device.prepare(&op.into()).unwrap();
    let mut stream = device.stream().unwrap();
    stream.launch(&*kernel).unwrap();
    set(&*device, &block, [2, 7, 0, 1]);
    assert!(matches!(fault(stream.launch(&*kernel)), DeviceFault::Failed { .. }));
}

#[test]
fn handles_outlive_the_device_and_threads_take_turns() {
    let device = two_threads();
    let op = norm(&*device, 4);
    let kernel = device.prepare(&op.clone().into()).unwrap();
    let graph = device.record(&vec![kernel; 10]).unwrap();
    let streams: Vec<_> = (0..4).map(|_| device.stream().unwrap()).collect();
    drop(device);
    std::thread::scope(|scope| {
        for mut stream in streams {
            let (graph, buffer) = (&graph, op.x.buffer());
            scope.spawn(move || {
                for _ in 0..50 {
                    stream.write(buffer, 0, &1f32.to_le_bytes()).unwrap();
                    stream.launch_graph(&**graph).unwrap();
                    stream.read(buffer, 0, &mut [0; 4]).unwrap();
                }
            });
        }
    });
}
