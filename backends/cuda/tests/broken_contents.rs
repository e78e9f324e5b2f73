//! Control words, trees and paths in device memory that break the contract end the launch
//! of an operation that reads them, and lead nowhere out of bounds.

mod common;

use foretoken::Error;
use foretoken::device::{Activations, Device, DeviceFault};
use foretoken::kernel::{
    Attention, AttentionMask, Control, ConvCommit, DeltaCommit, GatedDelta, HeadMap, KvPair, Op,
    Path, Regime, ShortConv, TreeRows,
};
use foretoken::tensor::{DType, Shape, Tensor};

use common::open;

fn tensor(device: &dyn Device, dtype: DType, dims: &[usize]) -> Tensor {
    let shape = Shape::new(dims).unwrap();
    let bytes = dtype.bytes_for(shape.elements()).unwrap();
    let buffer = device.allocate(bytes, "test").unwrap();
    device.stream().unwrap().fill(&buffer, 0, bytes, 0).unwrap();
    Tensor::new(&buffer, 0, dtype, shape).unwrap()
}

fn f32(device: &dyn Device, dims: &[usize]) -> Tensor {
    tensor(device, DType::F32, dims)
}

fn words(device: &dyn Device, words: &[i32]) -> Tensor {
    let tensor = tensor(device, DType::I32, &[words.len()]);
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    device.stream().unwrap().write(tensor.buffer(), 0, &bytes).unwrap();
    tensor
}

fn control(device: &dyn Device, rows: i32, committed: i32) -> Control {
    Control(words(device, &[rows, committed, 0, 0]))
}

/// What the launch failed with on a device of its own, if it did.
fn launch(op: impl FnOnce(&dyn Device) -> Op) -> Option<String> {
    let device = open().unwrap();
    let kernel = device.prepare(&op(&*device)).unwrap();
    let mut stream = device.stream().unwrap();
    stream.launch(&*kernel).unwrap();
    match stream.synchronize() {
        Ok(()) => None,
        Err(Error::Device(DeviceFault::Failed { message, .. })) => Some(message),
        Err(other) => panic!("{other}"),
    }
}

fn tree(device: &dyn Device, [parents, depths]: [[i32; 4]; 2]) -> TreeRows {
    let (parents, depths) = (words(device, &parents), words(device, &depths));
    TreeRows { parents, depths, masks: tensor(device, DType::I32, &[4, 2]) }
}

fn attention(device: &dyn Device, control: Control, mask: AttentionMask) -> Op {
    let cache = KvPair { k: f32(device, &[200, 2, 16]), v: f32(device, &[200, 2, 16]) };
    let (q, out) = (f32(device, &[4, 4, 16]), f32(device, &[4, 4, 16]));
    Attention { control, regime: Regime::Step, mask, q, cache, scale: 0.25, out }.into()
}

fn conv(device: &dyn Device, rows: i32) -> ShortConv {
    ShortConv {
        control: control(device, rows, 0),
        x: f32(device, &[4, 10]),
        weight: f32(device, &[10, 4]),
        state: f32(device, &[3, 10]),
        tree: None,
        out: f32(device, &[4, 10]),
    }
}

fn delta(device: &dyn Device, rows: i32) -> GatedDelta {
    GatedDelta {
        control: control(device, rows, 0),
        regime: Regime::Step,
        activations: Activations::Fast,
        qkv: f32(device, &[4, 2 * 16 + 8]),
        alpha: f32(device, &[4, 1]),
        beta: f32(device, &[4, 1]),
        a: f32(device, &[1]),
        dt_bias: f32(device, &[1]),
        state: f32(device, &[1, 8, 16]),
        tree: None,
        out: f32(device, &[4, 1, 8]),
        key_heads: 1,
        head_map: HeadMap::Tiled,
        eps: 1e-6,
    }
}

#[test]
fn trees_have_rows_after_their_parents() {
    if open().is_none() {
        return;
    }
    let all = |rows, nodes| {
        let attention = launch(|device| {
            let mask = AttentionMask::Tree(tree(device, nodes));
            attention(device, control(device, rows, 126), mask)
        });
        let conv = launch(|device| {
            ShortConv { tree: Some(tree(device, nodes)), ..conv(device, rows) }.into()
        });
        let delta = launch(|device| {
            GatedDelta { tree: Some(tree(device, nodes)), ..delta(device, rows) }.into()
        });
        assert!(attention == conv && conv == delta, "{attention:?} {conv:?} {delta:?}");
        delta
    };
    assert_eq!(all(4, [[-1, 0, 0, 2], [0, 1, 1, 2]]), None);
    // Rows that are not live may hold anything.
    assert_eq!(all(2, [[-1, 0, 99, -7], [0, 1, i32::MIN, 2]]), None);
    for nodes in [
        [[0, 0, 0, 2], [0, 1, 1, 2]],
        [[-1, 1, 0, 2], [0, 1, 1, 2]],
        [[-1, 0, 0, i32::MAX], [0, 1, 1, 2]],
        [[-1, 0, i32::MIN, 0], [0, 1, 1, 1]],
        [[-1, 0, 0, 2], [0, 1, 1, 3]],
        [[-1, 0, 0, 2], [1, 2, 2, 3]],
        [[-1, 0, 0, 2], [0, 1, i32::MIN, i32::MIN + 1]],
    ] {
        let said = all(4, nodes).unwrap();
        assert_eq!(said, "a row of the tree comes before its parent (4)", "{nodes:?}");
    }
}

#[test]
fn paths_ascend_from_row_0() {
    if open().is_none() {
        return;
    }
    for (path, good) in [
        ([1, 0, -1, -1, -1], true),
        ([3, 0, 1, 2, -1], true),
        ([0, 0, 1, 2, 3], false),
        ([i32::MIN, 0, 1, 2, 3], false),
        ([i32::MAX, 0, 1, 2, 3], false),
        ([2, 1, 2, -1, -1], false),
        ([3, 0, 2, 1, -1], false),
        ([2, 0, 3, -1, -1], false),
        ([2, 0, i32::MIN, -1, -1], false),
    ] {
        let conv = launch(|device| {
            let path = Path(words(device, &path));
            ConvCommit { path, conv: conv(device, 3) }.into()
        });
        let delta = launch(|device| {
            let path = Path(words(device, &path));
            DeltaCommit { path, delta: delta(device, 3) }.into()
        });
        let said =
            (!good).then(|| format!("the path has no rows, or more than the call ({})", path[0]));
        assert_eq!((&conv, &delta), (&said, &said), "{path:?}");
    }
}

#[test]
fn calls_fit_what_was_recorded() {
    if open().is_none() {
        return;
    }
    let attend = |rows, committed, causal| {
        launch(|device| {
            let mask = AttentionMask::Block { window: Some(3), causal };
            attention(device, control(device, rows, committed), mask)
        })
    };
    assert_eq!((attend(4, 196, false), attend(0, 200, true)), (None, None));
    let past = attend(4, 197, true).unwrap();
    assert_eq!(past, "the call reaches past the end of the cache (197)");
    assert!(attend(1, i32::MAX, false).is_some() && attend(1, -1, true).is_some());
    for rows in [5, -1, i32::MIN, i32::MAX] {
        assert!(attend(rows, 0, true).is_some(), "{rows}");
        assert!(launch(|device| conv(device, rows).into()).is_some(), "{rows}");
        assert!(launch(|device| delta(device, rows).into()).is_some(), "{rows}");
    }
}
