//! Trees with more open forks than the delta rule's kernel keeps states for: paths are run
//! again, and a row still has the bits of its path run as a plain sequence.

mod common;

use foretoken::device::{Activations, Device};
use foretoken::kernel::{Control, GatedDelta, HeadMap, Regime, TreeRows};
use foretoken::tensor::{DType, Shape, Tensor};

use common::open;

/// Key heads, value heads, dk, dv: states of 128 keys are kept for three rows, of 256 for
/// one.
const SHAPES: [(usize, usize, usize, usize); 2] = [(1, 2, 128, 20), (1, 1, 256, 17)];

fn tensor(device: &dyn Device, dtype: DType, dims: &[usize], data: &[u8]) -> Tensor {
    let shape = Shape::new(dims).unwrap();
    let buffer = device.allocate(dtype.bytes_for(shape.elements()).unwrap(), "test").unwrap();
    device.stream().unwrap().write(&buffer, 0, data).unwrap();
    Tensor::new(&buffer, 0, dtype, shape).unwrap()
}

fn f32(device: &dyn Device, dims: &[usize], data: &[f32]) -> Tensor {
    let bytes: Vec<u8> = data.iter().flat_map(|x| x.to_le_bytes()).collect();
    tensor(device, DType::F32, dims, &bytes)
}

fn i32(device: &dyn Device, dims: &[usize], data: &[i32]) -> Tensor {
    let bytes: Vec<u8> = data.iter().flat_map(|x| x.to_le_bytes()).collect();
    tensor(device, DType::I32, dims, &bytes)
}

/// Numbers in `-1..1`, the same every time.
fn numbers(count: usize, seed: u32) -> Vec<f32> {
    let mut x = seed;
    let mut next = || {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (x >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// A chain of `forks` rows, each with a second child that has a child; parents by row.
fn nested(forks: usize) -> Vec<usize> {
    let chain = (0..=forks).map(|row| row.saturating_sub(1));
    let second = 0..forks;
    let third = forks + 1..2 * forks + 1;
    chain.chain(second).chain(third).chain([forks]).collect()
}

/// Outputs, as bits, of the given rows of the same inputs.
fn run(
    device: &dyn Device,
    (hk, hv, dk, dv): (usize, usize, usize, usize),
    rows: &[usize],
    parents: Option<&[usize]>,
) -> Vec<u32> {
    let width = 2 * hk * dk + hv * dv;
    let pick = |of: usize, seed| -> Vec<f32> {
        rows.iter().flat_map(|&row| numbers(of, seed + row as u32)).collect()
    };
    let m = rows.len();
    let tree = parents.map(|parents| {
        let mut depths = vec![0; m];
        for row in 1..m {
            depths[row] = depths[parents[row]] + 1;
        }
        let parents: Vec<i32> = parents
            .iter()
            .enumerate()
            .map(|(row, &p)| if row == 0 { -1 } else { p as i32 })
            .collect();
        TreeRows {
            parents: i32(device, &[m], &parents),
            depths: i32(device, &[m], &depths),
            masks: i32(device, &[m, 2], &vec![0; 2 * m]),
        }
    });
    let op = GatedDelta {
        control: Control(i32(device, &[4], &[m as i32, 0, 0, 0])),
        regime: Regime::Step,
        activations: Activations::Fast,
        qkv: f32(device, &[m, width], &pick(width, 100)),
        alpha: f32(device, &[m, hv], &pick(hv, 200)),
        beta: f32(device, &[m, hv], &pick(hv, 300)),
        a: f32(device, &[hv], &vec![-0.3; hv]),
        dt_bias: f32(device, &[hv], &vec![0.1; hv]),
        state: f32(device, &[hv, dv, dk], &numbers(hv * dv * dk, 400)),
        tree,
        out: f32(device, &[m, hv, dv], &vec![f32::NAN; m * hv * dv]),
        key_heads: hk,
        head_map: HeadMap::Tiled,
        eps: 1e-6,
    };
    let kernel = device.prepare(&op.clone().into()).unwrap();
    let mut stream = device.stream().unwrap();
    stream.launch(&*kernel).unwrap();
    let mut bytes = vec![0; op.out.bytes()];
    stream.read(op.out.buffer(), 0, &mut bytes).unwrap();
    bytes.as_chunks().0.iter().map(|b| u32::from_le_bytes(*b)).collect()
}

#[test]
fn paths_run_again_have_the_bits_of_a_sequence() {
    let Some(device) = open() else { return };
    for shape in SHAPES {
        for forks in [1, 2, 3, 4, 7, 20] {
            let parents = nested(forks);
            let rows: Vec<usize> = (0..parents.len()).collect();
            let got = run(&*device, shape, &rows, Some(&parents));
            let n = shape.1 * shape.3;
            for row in rows {
                let above = |&row: &usize| (row > 0).then(|| parents[row]);
                let mut path: Vec<usize> = std::iter::successors(Some(row), above).collect();
                path.reverse();
                let plain = run(&*device, shape, &path, None);
                let got = &got[row * n..(row + 1) * n];
                assert!(plain[(path.len() - 1) * n..] == *got, "row {row}, {forks} forks");
                // Without its parent a row has other bits.
                if path.len() > 2 {
                    path.remove(path.len() - 2);
                    let other = run(&*device, shape, &path, None);
                    assert!(other[(path.len() - 1) * n..] != *got, "row {row}, {forks} forks");
                }
            }
        }
    }
}
