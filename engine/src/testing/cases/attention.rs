//! Writing to the cache, and attention over it.

use half::{bf16, f16};

use super::SPARE;
use crate::kernel::{Attention, AttentionMask, KvAppend, KvPair, Regime};
use crate::tensor::{DType, Tensor};
use crate::testing::compare;
use crate::testing::fault::CaseFault;
use crate::testing::reference::{Heads, attention};
use crate::testing::report::Runner;
use crate::testing::rig::Rig;

/// Types a cache may have.
pub(in crate::testing) const CACHES: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

pub(super) fn all(run: &mut Runner<'_>) {
    for (k, v) in [(0, 0), (1, 1), (2, 2), (1, 0), (2, 1)].map(|(k, v)| (CACHES[k], CACHES[v])) {
        for (rows, committed) in [(1, 0), (3, 5), (17, 100)] {
            let name = format!("kv_append/{k}-{v}/m={rows}/committed={committed}");
            run.case(name, |rig| append(rig, [k, v], rows, committed));
        }
    }
    // Query heads, key-value heads, head_dim, q_stride.
    let shapes = [(4, 2, 256, 512), (6, 1, 128, 128), (3, 3, 64, 64), (4, 2, 40, 48)];
    // Contexts on both sides of one and two splits, and further.
    let sizes = [
        (1, 0),
        (1, 126),
        (1, 127),
        (1, 128),
        (1, 700),
        (2, 0),
        (3, 126),
        (16, 120),
        (17, 255),
        (33, 1),
        (64, 64),
        (65, 300),
        (129, 0),
    ];
    for (i, (rows, committed)) in sizes.into_iter().enumerate() {
        for (j, shape) in shapes.into_iter().enumerate() {
            let types = [CACHES[(i + j) % 3], CACHES[(i + j + i / 3 % 2) % 3]];
            let regime = if rows > 64 { Regime::Prefill } else { Regime::Step };
            let [k, v] = types;
            let name = format!("attention/{k}-{v}/m={rows}/committed={committed}/{shape:?}");
            run.case(name, |rig| attend(rig, types, rows, committed, shape, regime));
        }
    }
    run.case("attention/refused".into(), refused);
}

/// Values as a cache stores them (round to nearest, ties to even), with their bytes.
pub(in crate::testing) fn stored(dtype: DType, x: &[f32]) -> (Vec<f32>, Vec<u8>) {
    let one = |&x: &f32| match dtype {
        DType::F16 => {
            let y = f16::from_f32(x);
            (y.to_f32(), y.to_le_bytes().to_vec())
        }
        DType::BF16 => {
            let y = bf16::from_f32(x);
            (y.to_f32(), y.to_le_bytes().to_vec())
        }
        _ => (x, x.to_le_bytes().to_vec()),
    };
    let (values, bytes): (Vec<f32>, Vec<Vec<u8>>) = x.iter().map(one).unzip();
    (values, bytes.concat())
}

fn append(
    rig: &mut Rig<'_>,
    types: [DType; 2],
    rows: usize,
    committed: usize,
) -> Result<(), CaseFault> {
    let (heads, d, context) = (2, 24, committed + rows + SPARE);
    let n = rows * heads * d;
    let mut inputs = [rig.rng.floats(n), rig.rng.floats(n)];
    // Ties of binary16 and bfloat16, overflow of binary16, denormals, signs of zero.
    let hard = [
        1.0 + f32::EPSILON * 4096.0,
        1.0 + 3.0 * f32::EPSILON * 4096.0,
        1.003_906_3,
        1.011_718_8,
        65_519.996,
        65_520.0,
        -1e30,
        6e-8,
        2.9e-8,
        1e-40,
        -0.0,
        0.0,
    ];
    inputs[0][..hard.len()].copy_from_slice(&hard);
    let old = rig.rng.floats(committed * heads * d);
    let dims = [context, heads, d];
    let cache = |rig: &mut Rig<'_>, name, dtype| -> crate::Result<Tensor> {
        rig.bytes(name, dtype, &dims, &stored(dtype, &old).1)
    };
    let cache = KvPair { k: cache(rig, "k cache", types[0])?, v: cache(rig, "v cache", types[1])? };
    let capacity = [rows + SPARE, heads, d];
    let op = KvAppend {
        control: rig.control([rows, committed, 0, 0])?,
        k: rig.f32("k", &capacity, &inputs[0])?,
        v: rig.f32("v", &capacity, &inputs[1])?,
        cache: cache.clone(),
    };
    rig.launch(op)?;
    for (name, tensor, new) in [("k", cache.k, &inputs[0]), ("v", cache.v, &inputs[1])] {
        let all: Vec<f32> = old.iter().chain(new).copied().collect();
        let mut want = stored(tensor.dtype(), &all).1;
        want.resize(tensor.bytes(), super::super::rig::POISON);
        let word = |bytes: Vec<u8>| bytes.into_iter().map(u32::from).collect::<Vec<_>>();
        compare::bits(name, &word(want), &word(rig.read(&tensor)?))?;
    }
    Ok(())
}

type Shape = (usize, usize, usize, usize);

fn attend(
    rig: &mut Rig<'_>,
    types: [DType; 2],
    rows: usize,
    committed: usize,
    (q_heads, kv, dim, q_stride): Shape,
    regime: Regime,
) -> Result<(), CaseFault> {
    let heads = Heads { q: q_heads, kv, dim, q_stride };
    let context = committed + rows + SPARE;
    let q = rig.rng.floats(rows * q_heads * q_stride);
    let n = (committed + rows) * kv * dim;
    let (k, k_bytes) = stored(types[0], &rig.rng.floats(n));
    let (v, v_bytes) = stored(types[1], &rig.rng.floats(n));
    let dims = [context, kv, dim];
    let scale = 1.0 / (dim as f32).sqrt();
    let op = Attention {
        control: rig.control([rows, committed, 0, 0])?,
        regime,
        mask: AttentionMask::Causal,
        q: rig.f32("q", &[rows + SPARE, q_heads, q_stride], &q)?,
        cache: KvPair {
            k: rig.bytes("k cache", types[0], &dims, &k_bytes)?,
            v: rig.bytes("v cache", types[1], &dims, &v_bytes)?,
        },
        scale,
        out: rig.blank("out", &[rows + SPARE, q_heads, dim])?,
    };
    rig.launch(op.clone())?;
    let want = attention(heads, &q, (&k, &v), rows, committed, scale);
    // Scores are sums of dim products of size up to 64 (outliers), off by some units
    // of 1e-5 after scaling; the exponential turns that into a relative error of the
    // weights, and values reach 8.
    rig.expect("out", &op.out, &want, |i| 1e-5 + 2e-5 * want[i].abs())
}

fn refused(rig: &mut Rig<'_>) -> Result<(), CaseFault> {
    let op = Attention {
        control: rig.control([1, 0, 0, 0])?,
        regime: Regime::Step,
        mask: AttentionMask::Causal,
        q: rig.blank("q", &[1, 4, 32])?,
        cache: KvPair {
            k: rig.blank("k cache", &[8, 3, 32])?,
            v: rig.blank("v cache", &[8, 3, 32])?,
        },
        scale: 1.0,
        out: rig.blank("out", &[1, 4, 32])?,
    };
    rig.refuses(op.clone(), "4 query heads do not share 3 key-value heads")?;
    let out = rig.blank("out", &[1, 4, 31])?;
    rig.refuses(Attention { out, ..op }, "the output is too narrow")
}
