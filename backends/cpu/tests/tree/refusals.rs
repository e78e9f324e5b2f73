//! Values in device memory that break the contract fail the launch, as an error.

use foretoken::Error;
use foretoken::device::{Device, DeviceFault};
use foretoken::kernel::{
    Advance, Control, Cursor, DraftBlock, DraftContext, Op, Path, TreeBuild, TreeLimits, TreeRows,
    TreeWalk,
};
use foretoken::tensor::{DType, Tensor};

use super::driver::with_threads;
use super::tree::builder::{tensor, write};

/// Runs an operation with words that are good and then with each of the bad ones,
/// every time on a new device. `make` gives the operation and the tensor to set.
fn refused(make: fn(&dyn Device) -> (Op, Tensor), good: &[i32], bad: &[(&[i32], &str)]) {
    for (bad, message) in bad {
        let device = with_threads(2);
        let (op, block) = make(&*device);
        let kernel = device.prepare(&op).unwrap();
        let mut stream = device.stream().unwrap();
        write(&mut *stream, block.buffer(), good);
        stream.launch(&*kernel).unwrap();
        write(&mut *stream, block.buffer(), bad);
        let Err(Error::Device(fault)) = stream.launch(&*kernel) else {
            panic!("{} took {bad:?}", op.name());
        };
        assert!(matches!(fault, DeviceFault::Failed { .. }), "{fault}");
        let text = fault.to_string();
        assert!(text.contains(op.name()) && text.contains(message), "{bad:?}: {text}");
    }
}

fn ints(device: &dyn Device, dims: &[usize]) -> Tensor {
    tensor(device, DType::I32, dims)
}

fn words(device: &dyn Device, words: &[i32]) -> Tensor {
    let tensor = tensor(device, DType::I32, &[words.len()]);
    write(&mut *device.stream().unwrap(), tensor.buffer(), words);
    tensor
}

fn shape(device: &dyn Device, rows: usize) -> TreeRows {
    TreeRows {
        parents: ints(device, &[rows]),
        depths: ints(device, &[rows]),
        masks: ints(device, &[rows, 2]),
    }
}

#[test]
fn draft_context() {
    let make = |device: &dyn Device| {
        let cursor = Cursor(ints(device, &[4]));
        let (control, block) = (Control(ints(device, &[4])), cursor.0.clone());
        (DraftContext { cursor, control, positions: ints(device, &[9]) }.into(), block)
    };
    let (many, seen) = ("more new tokens", "has seen more tokens");
    let bad: [(&[i32], &str); 6] = [
        (&[110, 1, 100], many),
        (&[i32::MAX, 1, 0], many),
        (&[100, 1, 101], seen),
        (&[0, 1, i32::MAX], seen),
        (&[-1, 1, 0], "negative"),
        (&[100, 1, i32::MIN], "negative"),
    ];
    refused(make, &[109, 1, 100], &bad);
}

#[test]
fn draft_block() {
    let make = |device: &dyn Device| {
        let cursor = Cursor(ints(device, &[4]));
        let block = cursor.0.clone();
        let (tokens, positions) = (ints(device, &[16]), ints(device, &[16]));
        let control = Control(ints(device, &[4]));
        (DraftBlock { cursor, mask_token: 7, control, tokens, positions }.into(), block)
    };
    let bad: [(&[i32], &str); 3] =
        [(&[-1], "negative"), (&[i32::MIN], "negative"), (&[i32::MAX - 14], "31 bits")];
    refused(make, &[i32::MAX - 15], &bad);
}

#[test]
fn tree_build() {
    let make = |device: &dyn Device| {
        let cursor = Cursor(ints(device, &[4]));
        let block = cursor.0.clone();
        let op = TreeBuild {
            cursor,
            limits: TreeLimits(words(device, &[20, 3, 3, 3])),
            ids: ints(device, &[3, 2]),
            scores: tensor(device, DType::F32, &[3, 2]),
            log_sum_exp: None,
            vocab: 10,
            control: Control(ints(device, &[4])),
            tokens: ints(device, &[32]),
            positions: ints(device, &[32]),
            tree: shape(device, 32),
        };
        (op.into(), block)
    };
    let bad: [(&[i32], &str); 2] = [(&[-1], "negative"), (&[i32::MAX - 2], "31 bits")];
    refused(make, &[i32::MAX - 3], &bad);
}

#[test]
fn tree_walk() {
    let make = |device: &dyn Device| {
        let control = Control(ints(device, &[4]));
        let block = control.0.clone();
        let op = TreeWalk {
            control,
            tokens: ints(device, &[8]),
            tree: shape(device, 8),
            choices: ints(device, &[8, 1]),
            path: Path(ints(device, &[9])),
            result: ints(device, &[TreeWalk::HEADER + 8]),
        };
        (op.into(), block)
    };
    let bad: [(&[i32], &str); 4] =
        [(&[0], "without rows"), (&[9], "more rows"), (&[-1], "negative"), (&[i32::MAX], "more")];
    refused(make, &[8], &bad);
}

/// The path is at fault, then the control block.
#[test]
fn advance() {
    fn op(device: &dyn Device, path: &[i32], control: &[i32]) -> Advance {
        Advance {
            control: Control(words(device, control)),
            path: Path(words(device, path)),
            result: ints(device, &[TreeWalk::HEADER + 8]),
            cursor: Cursor(ints(device, &[4])),
        }
    }
    let make = |device: &dyn Device| {
        let op = op(device, &[0; 9], &[5, 0, 0, 5]);
        let block = op.path.0.clone();
        (op.into(), block)
    };
    let bad: [&[i32]; 5] = [&[0], &[6], &[-1], &[i32::MAX], &[i32::MIN]];
    refused(make, &[5], &bad.map(|words| (words, "path")));
    let make = |device: &dyn Device| {
        let op = op(device, &[3; 9], &[0; 4]);
        let block = op.control.0.clone();
        (op.into(), block)
    };
    let bad: [(&[i32], &str); 4] = [
        (&[8, i32::MAX - 2], "31 bits"),
        (&[8, -1], "negative"),
        (&[9, 0], "more rows"),
        (&[2, 0], "path"),
    ];
    refused(make, &[8, i32::MAX - 3], &bad);
}
