//! Trees, paths and rings in device memory that break the contract end the launch.

use std::sync::Arc;

use foretoken::Error;
use foretoken::device::{Device, DeviceFault, Driver};
use foretoken::kernel::{
    Attention, AttentionMask, Control, FeatureCommit, FeatureLoad, FeatureStore, KvCommit, KvPair,
    Op, Path, Regime, TreeRows,
};
use foretoken::tensor::{DType, Shape, Tensor};
use foretoken_cpu::{CpuDriver, CpuOptions};

fn open() -> Arc<dyn Device> {
    let options = CpuOptions { threads: Some(2), ..CpuOptions::default() };
    CpuDriver::new(options).open(0).unwrap()
}

fn tensor(device: &dyn Device, dtype: DType, dims: &[usize]) -> Tensor {
    let shape = Shape::new(dims).unwrap();
    let buffer = device.allocate(dtype.bytes_for(shape.elements()).unwrap(), "test").unwrap();
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

/// Runs an operation on a device of its own; what the launch was refused for, if it was.
fn launch(op: impl FnOnce(&dyn Device) -> Op) -> Option<String> {
    let device = open();
    let kernel = device.prepare(&op(&*device)).unwrap();
    match device.stream().unwrap().launch(&*kernel) {
        Ok(()) => None,
        Err(Error::Device(DeviceFault::Failed { message, .. })) => Some(message),
        Err(other) => panic!("{other}"),
    }
}

fn cache(device: &dyn Device, context: usize) -> KvPair {
    KvPair { k: f32(device, &[context, 2, 16]), v: f32(device, &[context, 2, 16]) }
}

fn attention(device: &dyn Device, control: Control, mask: AttentionMask) -> Op {
    Attention {
        control,
        regime: Regime::Step,
        mask,
        q: f32(device, &[4, 4, 16]),
        cache: cache(device, 200),
        scale: 0.25,
        out: f32(device, &[4, 4, 16]),
    }
    .into()
}

#[test]
fn attention_needs_a_tree() {
    let tree = |rows, parents: [i32; 4], depths: [i32; 4]| {
        launch(|device| {
            let tree = TreeRows {
                parents: words(device, &parents),
                depths: words(device, &depths),
                masks: tensor(device, DType::I32, &[4, 2]),
            };
            attention(device, control(device, rows, 126), AttentionMask::Tree(tree))
        })
    };
    assert_eq!(tree(4, [-1, 0, 0, 2], [0, 1, 1, 2]), None);
    // Rows that are not live may hold anything.
    assert_eq!(tree(2, [-1, 0, 99, -7], [0, 1, i32::MIN, 2]), None);
    let root = "row 0 of a tree must be its root";
    let earlier = "the parent of a tree row must be an earlier row";
    let level = "a tree row must lie one level below its parent";
    for (parents, depths, why) in [
        ([0, 0, 0, 2], [0, 1, 1, 2], root),
        ([-1, 0, 0, 2], [1, 2, 2, 3], root),
        ([-1, 1, 0, 2], [0, 1, 1, 2], earlier),
        ([-1, 0, 3, 0], [0, 1, 2, 1], earlier),
        ([-1, 0, -1, 2], [0, 1, 0, 1], earlier),
        ([-1, 0, 0, i32::MAX], [0, 1, 1, 2], earlier),
        ([-1, 0, 0, i32::MIN], [0, 1, 1, 2], earlier),
        ([-1, 0, 0, 2], [0, 1, 1, 3], level),
        ([-1, 0, 0, 2], [0, 1, 1, -2], level),
    ] {
        assert_eq!(tree(4, parents, depths).as_deref(), Some(why), "{parents:?} {depths:?}");
    }
}

#[test]
fn rows_of_every_mask_fit_the_cache() {
    let with = |rows, committed, causal| {
        launch(|device| {
            let mask = AttentionMask::Block { window: Some(3), causal };
            attention(device, control(device, rows, committed), mask)
        })
    };
    assert_eq!(with(4, 196, false), None);
    assert_eq!(with(0, 200, true), None);
    for (rows, committed) in [(4, 197), (1, i32::MAX), (5, 0), (-1, 0), (1, -1)] {
        assert!(with(rows, committed, true).is_some(), "{rows} rows after {committed}");
    }
}

const NO_ROWS: &str = "a path must have at least one row, and no more than it holds";
const UNORDERED: &str = "the rows of a path must ascend from row 0";
const DEAD: &str = "a path names a row that is not live";

/// Paths of four rows, three of them live, and why they are refused.
const PATHS: [([i32; 5], Option<&str>); 9] = [
    ([1, 0, -1, -1, -1], None),
    ([2, 0, 2, -1, -1], None),
    ([3, 0, 1, 2, -1], None),
    ([0, 0, 1, 2, 3], Some(NO_ROWS)),
    ([-1, 0, 1, 2, 3], Some(NO_ROWS)),
    ([i32::MAX, 0, 1, 2, 3], Some(NO_ROWS)),
    ([2, 1, 2, -1, -1], Some(UNORDERED)),
    ([3, 0, 2, 1, -1], Some(UNORDERED)),
    ([2, 0, 3, -1, -1], Some(DEAD)),
];

#[test]
fn commits_need_a_path() {
    for (path, why) in PATHS {
        let kv = launch(|device| {
            let path = Path(words(device, &path));
            let cache = cache(device, 8);
            KvCommit { control: control(device, 3, 5), path, cache }.into()
        });
        let feature = launch(|device| {
            let path = Path(words(device, &path));
            let ring = f32(device, &[4, 40]);
            FeatureCommit { control: control(device, 3, 5), path, ring }.into()
        });
        assert_eq!((kv.as_deref(), feature.as_deref()), (why, why), "{path:?}");
    }
    let past = launch(|device| {
        let path = Path(words(device, &[1, 0, 0, 0, 0]));
        KvCommit { control: control(device, 3, 6), path, cache: cache(device, 8) }.into()
    });
    assert_eq!(past.as_deref(), Some("the call reaches past the end of the cache"));
}

#[test]
fn a_ring_holds_the_rows_of_a_call() {
    let load = |rows, committed| {
        launch(|device| {
            let (ring, out) = (f32(device, &[4, 40]), f32(device, &[8, 40]));
            FeatureLoad { control: control(device, rows, committed), ring, out }.into()
        })
    };
    assert_eq!((load(4, 3), load(1, i32::MAX)), (None, None));
    let refused = load(5, 0);
    assert_eq!(refused.as_deref(), Some("the call has more rows than the ring has slots"));
    assert!(load(9, 0).is_some() && load(1, -1).is_some());
    let store = |rows, committed| {
        launch(|device| {
            let (x, ring) = (f32(device, &[2, 16]), f32(device, &[4, 40]));
            let control = control(device, rows, committed);
            FeatureStore { control, x, ring, column: 24 }.into()
        })
    };
    assert_eq!((store(2, 3), store(2, i32::MAX)), (None, None));
    assert!(store(3, 0).is_some() && store(1, -1).is_some());
}
