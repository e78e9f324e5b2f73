//! Kernels, graphs, and who owns them: with the one operation that needs no model.

use std::sync::Arc;

use foretoken::device::{Device, DeviceFault, Stream};
use foretoken::kernel::{Op, Stamp};
use foretoken::tensor::{DType, Tensor};
use foretoken::testing::{OpTable, run_op_table};

use crate::support::{fault, is_foreign, open, tensor};

fn stamp(clock: &Tensor, slot: usize) -> Op {
    Stamp { clock: clock.clone(), slot }.into()
}

fn clock(device: &dyn Device, slots: usize) -> Tensor {
    tensor(device, DType::I64, &[slots])
}

fn times(stream: &mut dyn Stream, clock: &Tensor) -> Vec<i64> {
    let mut bytes = vec![0; clock.bytes()];
    stream.read(clock.buffer(), 0, &mut bytes).unwrap();
    bytes.as_chunks().0.iter().map(|b| i64::from_le_bytes(*b)).collect()
}

#[test]
fn the_table_s_case_for_stamps_passes() {
    let Some(device) = open() else { return };
    let report = run_op_table(&*device, &OpTable { seed: 1, filter: Some("stamp".into()) });
    assert!(report.is_ok(), "{report}");
    assert_eq!(report.passed.len(), 1);
}

#[test]
fn a_graph_runs_its_kernels_in_order_and_again() {
    let Some(device) = open() else { return };
    let (slots, mut stream) = (100, device.stream().unwrap());
    let clock = clock(&*device, slots);
    let kernels: Vec<_> =
        (0..slots).map(|slot| device.prepare(&stamp(&clock, slot)).unwrap()).collect();
    assert_eq!(kernels[0].key().op, "stamp");
    let graph = device.record(&kernels).unwrap();
    assert_eq!((graph.len(), graph.is_empty()), (slots, false));
    let mut before = 0;
    for _ in 0..20 {
        stream.fill(clock.buffer(), 0, clock.bytes(), 0).unwrap();
        stream.launch_graph(&*graph).unwrap();
        let times = times(&mut *stream, &clock);
        assert!(times[0] >= before && times[0] > 0, "{before} {times:?}");
        assert!(times.is_sorted(), "{times:?}");
        before = times[slots - 1];
    }
    // In another order the times are not sorted: the check can fail.
    let reversed: Vec<_> = kernels.iter().rev().cloned().collect();
    stream.launch_graph(&*device.record(&reversed).unwrap()).unwrap();
    let times = times(&mut *stream, &clock);
    assert!(!times.is_sorted() && times.iter().rev().is_sorted(), "{times:?}");
    let empty = device.record(&[]).unwrap();
    assert!(empty.is_empty());
    stream.launch_graph(&*empty).unwrap();
    stream.synchronize().unwrap();
}

#[test]
fn kernels_and_operands_belong_to_one_device() {
    let (Some(device), Some(other)) = (open(), open()) else { return };
    let clock = clock(&*device, 3);
    assert!(is_foreign(fault(other.prepare(&stamp(&clock, 0)))));
    let kernel = device.prepare(&stamp(&clock, 0)).unwrap();
    assert!(is_foreign(fault(other.record(&[Arc::clone(&kernel)]))));
    assert!(is_foreign(fault(other.stream().unwrap().launch(&*kernel))));
    let graph = device.record(&[kernel]).unwrap();
    assert!(is_foreign(fault(other.stream().unwrap().launch_graph(&*graph))));
}

#[test]
fn operands_are_checked() {
    let Some(device) = open() else { return };
    let bad = |f| matches!(f, DeviceFault::BadOperands { op: "stamp", .. });
    let clock = clock(&*device, 3);
    assert!(bad(fault(device.prepare(&stamp(&clock, 3)))));
    assert!(bad(fault(device.prepare(&stamp(&tensor(&*device, DType::I64, &[2, 2]), 0)))));
    let floats = fault(device.prepare(&stamp(&tensor(&*device, DType::F32, &[3]), 0)));
    assert!(matches!(floats, DeviceFault::Unsupported { dtype: DType::F32, .. }), "{floats}");
}

#[test]
fn handles_outlive_the_device_and_threads_take_turns() {
    let Some(device) = open() else { return };
    let clock = clock(&*device, 4);
    let kernel = device.prepare(&stamp(&clock, 1)).unwrap();
    let graph = device.record(&vec![kernel; 10]).unwrap();
    let streams: Vec<_> = (0..4).map(|_| device.stream().unwrap()).collect();
    drop(device);
    std::thread::scope(|scope| {
        for mut stream in streams {
            let (graph, clock) = (&graph, &clock);
            scope.spawn(move || {
                for _ in 0..50 {
                    stream.write(clock.buffer(), 0, &1i64.to_le_bytes()).unwrap();
                    stream.launch_graph(&**graph).unwrap();
                    let times = times(&mut *stream, clock);
                    assert!(times[0] == 1 && times[1] > 1, "{times:?}");
                }
            });
        }
    });
    // Dropped with work in flight.
}
