//! Attention over long contexts: a row's bits are the same whether its splits or whole
//! chunks of them are left in scratch memory, and whether it runs in a step or in prefill.

mod common;

use std::sync::Arc;

use foretoken::device::Device;
use foretoken::kernel::{Attention, AttentionMask, Control, KvPair, Regime};
use foretoken::tensor::{DType, Shape, Tensor};

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
    fn new(device: Arc<dyn Device>) -> Self {
        let (hq, kv, d) = HEADS;
        let dims = [COMMITTED + ROWS, kv, d];
        let cache = |seed| {
            // The upper half of a float's bits is bfloat16.
            let data: Vec<u8> = numbers(dims.iter().product(), seed)
                .flat_map(|x| ((x.to_bits() >> 16) as u16).to_le_bytes())
                .collect();
            tensor(&*device, DType::BF16, &dims, &data)
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
fn bits_do_not_depend_on_what_fits_scratch_memory() {
    let Some(device) = open() else { return };
    let case = Case::new(device);
    let together = case.rows(0..ROWS, Regime::Step);
    assert!(together.as_chunks().0.iter().all(|b| f32::from_le_bytes(*b).is_finite()));
    let row = together.len() / ROWS;
    for at in [0, 1, 13, 14, 15, 62, 63] {
        let alone = case.rows(at..at + 1, Regime::Step);
        assert!(alone == together[at * row..(at + 1) * row], "row {at}");
    }
    assert!(case.rows(0..ROWS, Regime::Prefill) == together);
    // Some other row's bits would have shown.
    assert!(case.rows(3..4, Regime::Step) != together[..row]);
}
