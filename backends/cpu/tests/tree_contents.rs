//! Trees and paths in device memory that break their contract end the launch; operands
//! that can not be a tree are refused before.

use std::sync::Arc;

use foretoken::Error;
use foretoken::device::{Activations, Device, DeviceFault, Driver};
use foretoken::kernel::{
    Control, ConvCommit, DeltaCommit, GatedDelta, HeadMap, Op, Path, Regime, ShortConv, TreeRows,
};
use foretoken::tensor::{DType, Shape, Tensor};
use foretoken_cpu::{CpuDriver, CpuOptions};

/// Rows that the operands hold.
const CAPACITY: usize = 6;

fn device() -> Arc<dyn Device> {
    let options = CpuOptions { threads: Some(2), ..CpuOptions::default() };
    CpuDriver::new(options).open(0).unwrap()
}

fn fault<T>(result: foretoken::Result<T>) -> DeviceFault {
    match result.err() {
        Some(Error::Device(fault)) => fault,
        other => panic!("not a device fault: {other:?}"),
    }
}

fn f32(device: &dyn Device, dims: &[usize]) -> Tensor {
    tensor(device, DType::F32, dims)
}

fn tensor(device: &dyn Device, dtype: DType, dims: &[usize]) -> Tensor {
    let shape = Shape::new(dims).unwrap();
    let buffer = device.allocate(dtype.bytes_for(shape.elements()).unwrap(), "test").unwrap();
    Tensor::new(&buffer, 0, dtype, shape).unwrap()
}

fn words(device: &dyn Device, dims: &[usize], words: &[i32]) -> Tensor {
    let tensor = tensor(device, DType::I32, dims);
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    device.stream().unwrap().write(tensor.buffer(), 0, &bytes).unwrap();
    tensor
}

/// The live rows' parents and depths.
fn tree(device: &dyn Device, nodes: &[(i32, i32)]) -> TreeRows {
    let (parents, depths): (Vec<_>, Vec<_>) = nodes.iter().copied().unzip();
    TreeRows {
        parents: words(device, &[CAPACITY], &parents),
        depths: words(device, &[CAPACITY], &depths),
        masks: words(device, &[CAPACITY, 2], &[]),
    }
}

fn conv(device: &dyn Device, rows: usize, tree: Option<TreeRows>) -> ShortConv {
    ShortConv {
        control: Control(words(device, &[4], &[rows as i32, 0, 0, 0])),
        x: f32(device, &[CAPACITY, 40]),
        weight: f32(device, &[40, 4]),
        state: f32(device, &[3, 40]),
        tree,
        out: f32(device, &[CAPACITY, 40]),
    }
}

fn delta(device: &dyn Device, rows: usize, tree: Option<TreeRows>) -> GatedDelta {
    GatedDelta {
        control: Control(words(device, &[4], &[rows as i32, 0, 0, 0])),
        regime: Regime::Step,
        activations: Activations::Fast,
        qkv: f32(device, &[CAPACITY, 2 * 16 + 2 * 40]),
        alpha: f32(device, &[CAPACITY, 2]),
        beta: f32(device, &[CAPACITY, 2]),
        a: f32(device, &[2]),
        dt_bias: f32(device, &[2]),
        state: f32(device, &[2, 40, 16]),
        tree,
        out: f32(device, &[CAPACITY, 2, 40]),
        key_heads: 1,
        head_map: HeadMap::Grouped,
        eps: 1e-6,
    }
}

fn launch(device: &dyn Device, op: Op) -> foretoken::Result<()> {
    let kernel = device.prepare(&op)?;
    device.stream()?.launch(&*kernel)
}

/// Launches on a device of their own what `ops` makes, and expects each to fail with a
/// message that contains `says`, or to succeed.
fn check(ops: impl Fn(&dyn Device) -> [Op; 2], says: Option<&str>, what: &str) {
    for i in 0..2 {
        let device = device();
        let op = ops(&*device)[i].clone();
        let name = op.name();
        let result = launch(&*device, op);
        match says {
            None => result.unwrap(),
            Some(says) => match fault(result) {
                DeviceFault::Failed { call, message, .. } => {
                    assert!(call.contains(name) && message.contains(says), "{what}: {message}");
                }
                other => panic!("{what}: {other}"),
            },
        }
    }
}

#[test]
fn malformed_trees_fail_the_launch() {
    for (nodes, says) in [
        (&[(-1, 0), (0, 1), (0, 1), (2, 2)][..], None),
        (&[(0, 0), (0, 1)], Some("root")),
        (&[(-1, 3), (0, 4)], Some("root")),
        (&[(-1, 0), (1, 1)], Some("earlier")),
        (&[(-1, 0), (2, 1), (0, 1)], Some("earlier")),
        (&[(-1, 0), (-1, 0)], Some("earlier")),
        (&[(-1, 0), (i32::MAX, 1)], Some("earlier")),
        (&[(-1, 0), (i32::MIN, 1)], Some("earlier")),
        (&[(-1, 0), (0, 1), (1, 1)], Some("level")),
    ] {
        let ops = |device: &dyn Device| {
            let tree = || Some(tree(device, nodes));
            let rows = nodes.len();
            [conv(device, rows, tree()).into(), delta(device, rows, tree()).into()]
        };
        check(ops, says, &format!("{nodes:?}"));
    }
    // Rows past the live ones may hold anything.
    let nodes = [(-1, 0), (0, 1), (99, -5)];
    let ops = |device: &dyn Device| {
        let tree = || Some(tree(device, &nodes));
        [conv(device, 2, tree()).into(), delta(device, 2, tree()).into()]
    };
    check(ops, None, "a dead row");
    let ops = |device: &dyn Device| {
        let tree = || Some(tree(device, &nodes));
        [conv(device, 7, tree()).into(), delta(device, 7, tree()).into()]
    };
    check(ops, Some("more rows than were recorded"), "too many rows");
}

#[test]
fn malformed_paths_fail_the_launch() {
    for (path, says) in [
        (&[3, 0, 2, 3][..], None),
        (&[1, 0, 9, -4], None),
        (&[0, 0], Some("at least one row")),
        (&[-1, 0], Some("at least one row")),
        (&[7, 0, 1, 2, 3], Some("no more than it holds")),
        (&[i32::MAX, 0], Some("no more than it holds")),
        (&[1, 1], Some("ascend from row 0")),
        (&[3, 0, 2, 2], Some("ascend")),
        (&[3, 0, 2, 1], Some("ascend")),
        (&[2, 0, 4], Some("not live")),
        (&[2, 0, i32::MAX], Some("not live")),
        (&[2, 0, -1], Some("not live")),
    ] {
        let ops = |device: &dyn Device| {
            let words = || Path(words(device, &[1 + CAPACITY], path));
            [
                ConvCommit { path: words(), conv: conv(device, 4, None) }.into(),
                DeltaCommit { path: words(), delta: delta(device, 4, None) }.into(),
            ]
        };
        check(ops, says, &format!("{path:?}"));
    }
}

#[test]
fn mistyped_and_overlapping_trees_and_paths_are_refused() {
    let device = device();
    let refused = |op: Op| fault(device.prepare(&op));
    let good = tree(&*device, &[(-1, 0)]);
    let float = |dims: &[usize]| f32(&*device, dims);
    for tree in [
        TreeRows { parents: float(&[CAPACITY]), ..good.clone() },
        TreeRows { depths: float(&[CAPACITY]), ..good.clone() },
        TreeRows { masks: float(&[CAPACITY, 2]), ..good.clone() },
    ] {
        let ops: [Op; 2] =
            [conv(&*device, 1, Some(tree.clone())).into(), delta(&*device, 1, Some(tree)).into()];
        for op in ops {
            let fault = refused(op);
            let float = matches!(fault, DeviceFault::Unsupported { dtype: DType::F32, .. });
            assert!(float, "{fault}");
        }
    }
    let path = || Path(float(&[1 + CAPACITY]));
    for op in [
        Op::from(ConvCommit { path: path(), conv: conv(&*device, 1, None) }),
        DeltaCommit { path: path(), delta: delta(&*device, 1, None) }.into(),
    ] {
        assert!(matches!(refused(op), DeviceFault::Unsupported { dtype: DType::F32, .. }));
    }
    // Memory that the operation writes.
    let part = |of: &Tensor, dims: &[usize]| {
        Tensor::new(of.buffer(), 0, DType::I32, Shape::new(dims).unwrap()).unwrap()
    };
    let bad = |op: Op| matches!(refused(op), DeviceFault::BadOperands { .. });
    let op = conv(&*device, 1, None);
    let parents = part(&op.out, &[CAPACITY]);
    let tree = Some(TreeRows { parents, ..good.clone() });
    let path = Path(part(&op.state, &[1 + CAPACITY]));
    assert!(bad(ShortConv { tree, ..op.clone() }.into()));
    assert!(bad(ConvCommit { path, conv: op }.into()));
    let op = delta(&*device, 1, None);
    let depths = part(&op.out, &[CAPACITY]);
    let path = Path(part(&op.state, &[1 + CAPACITY]));
    assert!(bad(GatedDelta { tree: Some(TreeRows { depths, ..good }), ..op.clone() }.into()));
    assert!(bad(DeltaCommit { path, delta: op }.into()));
}
