//! Failures: what is said, and that they last. They take a driver that fails when told
//! to, the stand-in; each test is run in a process of its own by `stand_in`.

use foretoken::device::{DeviceFault, Driver};
use foretoken::kernel::Stamp;
use foretoken::tensor::DType;
use foretoken_cuda::CudaDriver;

use crate::support::{fault, open, tensor};

/// Set for the test that is to see the failure.
fn asked(what: &str) -> bool {
    std::env::var("FORETOKEN_TEST_FAULT").is_ok_and(|value| value == what)
}

fn failed(fault: &DeviceFault) -> (String, String) {
    match fault {
        DeviceFault::Failed { driver: "cuda", call, message } => (call.clone(), message.clone()),
        other => panic!("{other}"),
    }
}

/// What a kernel reports ends the device with the rule's words, and no other device.
#[test]
fn a_report_of_a_kernel_lasts() {
    if !asked("report") {
        return;
    }
    let device = open().unwrap();
    let clock = tensor(&*device, DType::I64, &[1]);
    let kernel = device.prepare(&Stamp { clock: clock.clone(), slot: 0 }.into()).unwrap();
    let mut stream = device.stream().unwrap();
    stream.launch(&*kernel).unwrap();
    let first = fault(stream.synchronize());
    let (call, message) = failed(&first);
    assert_eq!(call, "stamp/I64/globaltimer");
    assert_eq!(message, "the control block names more rows than were recorded (77)");
    assert_eq!(fault(stream.launch(&*kernel)), first);
    assert_eq!(fault(stream.read(clock.buffer(), 0, &mut [0])), first);
    assert_eq!(fault(device.allocate(1, "x")), first);
    assert_eq!(fault(device.stream()), first);
    assert_eq!(device.info().memory_free, 0);
    assert!(open().unwrap().allocate(1, "x").is_ok());
}

/// A failure of asynchronous work names what was launched, and lasts.
#[test]
fn a_failure_of_asynchronous_work_lasts() {
    if !asked("asynchronous") {
        return;
    }
    let device = open().unwrap();
    let clock = tensor(&*device, DType::I64, &[1]);
    let op = Stamp { clock, slot: 0 }.into();
    let kernel = device.prepare(&op).unwrap();
    let graph = device.record(&[kernel.clone(), kernel.clone()]).unwrap();
    let mut stream = device.stream().unwrap();
    stream.launch(&*kernel).unwrap();
    stream.launch_graph(&*graph).unwrap();
    let first = fault(stream.synchronize());
    let (call, message) = failed(&first);
    assert!(call.starts_with("one of 2 launches, stamp/I64/globaltimer to a graph of 2"), "{call}");
    assert_eq!(message, "error 700");
    assert_eq!(fault(stream.synchronize()), first);
    assert_eq!(fault(device.prepare(&op)), first);
    assert_eq!(fault(device.record(&[kernel])), first);
}

/// One by one, the failing kernel itself is named.
#[test]
fn launches_one_by_one_name_the_kernel() {
    if !asked("one_by_one") {
        return;
    }
    let device = open().unwrap();
    let clock = tensor(&*device, DType::I64, &[1]);
    let kernel = device.prepare(&Stamp { clock, slot: 0 }.into()).unwrap();
    let graph = device.record(&[kernel.clone(), kernel]).unwrap();
    let (call, _) = failed(&fault(device.stream().unwrap().launch_graph(&*graph)));
    assert_eq!(call, "stamp/I64/globaltimer");
}

/// Code that the driver will not load is quoted, and the device goes on.
#[test]
fn code_that_does_not_load_is_quoted() {
    if !asked("load") {
        return;
    }
    let device = open().unwrap();
    let clock = tensor(&*device, DType::I64, &[1]);
    let (call, message) = failed(&fault(device.prepare(&Stamp { clock, slot: 0 }.into())));
    assert_eq!(call, "loading sm_90a of stamp");
    assert_eq!(message, "error 222: ptxas fatal; bad version");
    assert!(device.allocate(1, "x").is_ok());
}

/// A kernel whose parameters are others than the arguments is never launched.
#[test]
fn arguments_are_held_against_the_code() {
    if !asked("parameters") {
        return;
    }
    let device = open().unwrap();
    let clock = tensor(&*device, DType::I64, &[1]);
    let refused = fault(device.prepare(&Stamp { clock, slot: 0 }.into()));
    assert!(refused.to_string().contains("the arguments are not those of the kernel"), "{refused}");
}

/// A driver that cannot open the device says so.
#[test]
fn a_device_that_does_not_open_is_quoted() {
    if !asked("open") {
        return;
    }
    let (call, message) = failed(&fault(CudaDriver::new().open(0)));
    assert_eq!((call.as_str(), message.as_str()), ("cuMemHostAlloc", "error 46"));
}
