//! Attention over long contexts: a row's bits are the same whatever rows run with it, in a
//! step (where that decides how much of them is left in scratch memory) and in prefill; and
//! both are the same up to rounding.

mod common;

use std::sync::Arc;

use foretoken::device::Device;
use foretoken::kernel::{Attention, AttentionMask, Control, KvPair, Regime};
use foretoken::tensor::{DType, Shape, Tensor};
use half::{bf16, f16};

use common::open;

/// Query heads, key-value heads, head_dim.
const HEADS: (usize, usize, usize) = (24, 4, 256);

/// Rows, and tokens before them: with these heads more than scratch memory has records
/// for, so that all rows together leave chunks, and one row alone splits.
const ROWS: usize = 64;
const COMMITTED: usize = 6130;

fn tensor(device: &dyn Device, dtype: DType, dims: &[usize], data: &[u8]) -> Tensor {
    let shape = Shape::new(dims).unwrap();
    let buffer = device.allocate(dtype.bytes_for(shape.elements()).unwrap(), "test").unwrap();
    device.stream().unwrap().write(&buffer, 0, data).unwrap();
    Tensor::new(&buffer, 0, dtype, shape).unwrap()
}

/// Numbers in `-1..1`, the same every time.
fn numbers(count: usize, seed: u32) -> impl Iterator<Item = f32> {
    let mut x = seed;
    (0..count).map(move |_| {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (x >> 8) as f32 / (1 << 23) as f32 - 1.0
    })
}

struct Case {
    device: Arc<dyn Device>,
    cache: KvPair,
    q: Vec<f32>,
}

impl Case {
    fn new(device: Arc<dyn Device>, dtype: DType) -> Self {
        let (hq, kv, d) = HEADS;
        let dims = [COMMITTED + ROWS, kv, d];
        let cache = |seed| {
            let numbers = numbers(dims.iter().product(), seed);
            let data: Vec<u8> = match dtype {
                DType::F32 => numbers.flat_map(f32::to_le_bytes).collect(),
                DType::F16 => numbers.flat_map(|x| f16::from_f32(x).to_le_bytes()).collect(),
                _ => numbers.flat_map(|x| bf16::from_f32(x).to_le_bytes()).collect(),
            };
            tensor(&*device, dtype, &dims, &data)
        };
        let cache = KvPair { k: cache(1), v: cache(2) };
        let q = numbers(ROWS * hq * d, 3).map(|x| 4.0 * x).collect();
        Self { device, cache, q }
    }

    /// Bits of some rows, computed in one call.
    fn rows(&self, rows: std::ops::Range<usize>, regime: Regime) -> Vec<u8> {
        let ((hq, _, d), device) = (HEADS, &*self.device);
        let n = hq * d;
        let bytes = |x: &[f32]| x.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
        let control = [rows.len() as i32, (COMMITTED + rows.start) as i32, 0, 0];
        let control: Vec<u8> = control.iter().flat_map(|x| x.to_le_bytes()).collect();
        let q = bytes(&self.q[rows.start * n..rows.end * n]);
        let out = tensor(device, DType::F32, &[rows.len(), hq, d], &vec![0xff; 4 * rows.len() * n]);
        let op = Attention {
            control: Control(tensor(device, DType::I32, &[4], &control)),
            regime,
            mask: AttentionMask::Causal,
            q: tensor(device, DType::F32, &[rows.len(), hq, d], &q),
            cache: self.cache.clone(),
            scale: 1.0 / 16.0,
            out: out.clone(),
        };
        let kernel = device.prepare(&op.into()).unwrap();
        let mut stream = device.stream().unwrap();
        stream.launch(&*kernel).unwrap();
        let mut got = vec![0; out.bytes()];
        stream.read(out.buffer(), 0, &mut got).unwrap();
        got
    }
}

#[test]
fn bits_do_not_depend_on_the_rows_of_a_call() {
    let Some(device) = open() else { return };
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        let case = Case::new(Arc::clone(&device), dtype);
        let floats = |bytes: &[u8]| -> Vec<f32> {
            bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
        };
        let [step, prefill] = [Regime::Step, Regime::Prefill].map(|regime| {
            let together = case.rows(0..ROWS, regime);
            let row = together.len() / ROWS;
            for rows in [0..1, 1..2, 13..14, 14..19, 15..48, 62..63, 63..64] {
                let part = case.rows(rows.clone(), regime);
                let same = part == together[rows.start * row..rows.end * row];
                assert!(same, "{dtype} {regime:?} {rows:?}");
            }
            // Some other row's bits would have shown.
            assert!(case.rows(3..4, regime) != together[..row]);
            floats(&together)
        });
        // Means of some thousand values below 1; sums of floats are off by some 1e-7 of
        // the largest terms, those of tensor cores over 6,000 keys by up to 1e-4 of the sum.
        for (a, b) in step.iter().zip(&prefill) {
            assert!((a - b).abs() <= 1e-5 + 1e-4 * a.abs(), "{dtype}: {a} and {b}");
        }
    }
}
