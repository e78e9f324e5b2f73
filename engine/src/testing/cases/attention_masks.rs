//! Attention over token trees, and of drafters' blocks.

use super::SPARE;
use super::attention::{CACHES, stored};
use crate::kernel::{Attention, AttentionMask, KvPair, Regime, TreeRows};
use crate::tensor::DType;
use crate::testing::fault::CaseFault;
use crate::testing::reference::{Heads, attention_to};
use crate::testing::report::Runner;
use crate::testing::rig::Rig;
use crate::testing::trees::{Kind, Tree};

/// Query heads, key-value heads, head_dim, q_stride.
type Shape = (usize, usize, usize, usize);

const SHAPES: [Shape; 4] = [(4, 2, 256, 512), (6, 1, 128, 128), (3, 3, 64, 64), (4, 2, 40, 48)];

pub(super) fn all(run: &mut Runner<'_>) {
    // Rows and committed tokens: on both sides of split boundaries, and across them.
    let sizes = [
        (1, 0),
        (1, 127),
        (2, 126),
        (3, 127),
        (4, 255),
        (5, 382),
        (16, 120),
        (17, 128),
        (33, 1),
        (64, 64),
        (64, 129),
        (63, 256),
    ];
    for (i, (rows, committed)) in sizes.into_iter().enumerate() {
        for (j, kind) in Kind::ALL.into_iter().enumerate() {
            let (types, shape) = choose(i + j, i);
            let [k, v] = types;
            let place = format!("m={rows}/committed={committed}/{shape:?}");
            let name = format!("attention/tree/{kind:?}/{k}-{v}/{place}");
            run.case(name, |rig| tree(rig, types, kind, (rows, committed), shape));
        }
    }
    for rows in 1..=TreeRows::MAX {
        let committed = rows * 37 % 260;
        let types = [CACHES[rows % 3]; 2];
        let name = format!("attention/tree/every count/m={rows}/committed={committed}");
        let shape = (2, 1, 16, 16);
        run.case(name, |rig| tree(rig, types, Kind::Random, (rows, committed), shape));
    }
    let sizes = [
        (1, 0),
        (16, 0),
        (16, 120),
        (8, 126),
        (16, 128),
        (17, 255),
        (64, 257),
        (16, 2100),
        (3, 700),
    ];
    for (i, (rows, committed)) in sizes.into_iter().enumerate() {
        let windows = [None, Some(1), Some(5), Some(128), Some(2048)];
        for (j, window) in windows.into_iter().enumerate() {
            for causal in [false, true] {
                let (types, shape) = choose(i + j, i + usize::from(causal));
                let [k, v] = types;
                let place = format!("m={rows}/committed={committed}/{shape:?}");
                let name = format!("attention/block/{window:?}/causal={causal}/{k}-{v}/{place}");
                run.case(name, |rig| block(rig, types, (window, causal), (rows, committed), shape));
            }
        }
    }
    run.case("attention/masks refused".into(), refused);
}

/// Cache types and head counts of a case.
fn choose(i: usize, j: usize) -> ([DType; 2], Shape) {
    ([CACHES[i % 3], CACHES[(i + j % 2) % 3]], SHAPES[(i + j / 3) % SHAPES.len()])
}

fn tree(
    rig: &mut Rig<'_>,
    types: [DType; 2],
    kind: Kind,
    (rows, committed): (usize, usize),
    shape: Shape,
) -> Result<(), CaseFault> {
    let tree = Tree::new(&mut rig.rng, kind, rows);
    let capacity = (rows + SPARE).min(TreeRows::MAX);
    let mask = AttentionMask::Tree(tree.on_device(rig, capacity)?);
    let seen = |row: usize| {
        let path = tree.path(row).into_iter().map(|row| committed + row);
        (0..committed).chain(path).collect()
    };
    attend(rig, types, mask, (rows, committed, capacity), shape, seen)
}

fn block(
    rig: &mut Rig<'_>,
    types: [DType; 2],
    (window, causal): (Option<usize>, bool),
    (rows, committed): (usize, usize),
    shape: Shape,
) -> Result<(), CaseFault> {
    let mask = AttentionMask::Block { window, causal };
    let seen = |row: usize| {
        let own = committed + row;
        let sees = |key: &usize| {
            !(causal && *key > own) && window.is_none_or(|window| key.abs_diff(own) < window)
        };
        (0..committed + rows).filter(sees).collect()
    };
    attend(rig, types, mask, (rows, committed, rows + SPARE), shape, seen)
}

fn attend(
    rig: &mut Rig<'_>,
    types: [DType; 2],
    mask: AttentionMask,
    (rows, committed, capacity): (usize, usize, usize),
    (q_heads, kv, dim, q_stride): Shape,
    seen: impl Fn(usize) -> Vec<usize>,
) -> Result<(), CaseFault> {
    let q = rig.rng.floats(rows * q_heads * q_stride);
    let n = (committed + rows) * kv * dim;
    let (k, k_bytes) = stored(types[0], &rig.rng.floats(n));
    let (v, v_bytes) = stored(types[1], &rig.rng.floats(n));
    let dims = [committed + rows + SPARE, kv, dim];
    let scale = 1.0 / (dim as f32).sqrt();
    let op = Attention {
        control: rig.control([rows, committed, 0, 0])?,
        regime: Regime::Step,
        mask,
        q: rig.f32("q", &[capacity, q_heads, q_stride], &q)?,
        cache: KvPair {
            k: rig.bytes("k cache", types[0], &dims, &k_bytes)?,
            v: rig.bytes("v cache", types[1], &dims, &v_bytes)?,
        },
        scale,
        out: rig.blank("out", &[capacity, q_heads, dim])?,
    };
    rig.launch(op.clone())?;
    let seen: Vec<Vec<usize>> = (0..rows).map(seen).collect();
    let heads = Heads { q: q_heads, kv, dim, q_stride };
    let want = attention_to(heads, &q, (&k, &v), &seen, scale);
    // As for causal attention: scores are off by some units of 1e-5, which the
    // exponential turns into a relative error of the weights; values reach 8.
    rig.expect("out", &op.out, &want, |i| 1e-5 + 2e-5 * want[i].abs())
}

fn refused(rig: &mut Rig<'_>) -> Result<(), CaseFault> {
    let mut tensors = |rows: usize| -> crate::Result<TreeRows> {
        Ok(TreeRows {
            parents: rig.i32("parents", &[rows], &[])?,
            depths: rig.i32("depths", &[rows], &[])?,
            masks: rig.i32("masks", &[rows, 2], &[])?,
        })
    };
    let (good, few, many) = (tensors(4)?, tensors(3)?, tensors(65)?);
    let cache = |rig: &mut Rig<'_>, name| rig.blank(name, &[8, 2, 32]);
    let op = Attention {
        control: rig.control([1, 0, 0, 0])?,
        regime: Regime::Step,
        mask: AttentionMask::Tree(good.clone()),
        q: rig.blank("q", &[4, 4, 32])?,
        cache: KvPair { k: cache(rig, "k cache")?, v: cache(rig, "v cache")? },
        scale: 1.0,
        out: rig.blank("out", &[4, 4, 32])?,
    };
    let block = |window, causal| AttentionMask::Block { window, causal };
    let prefill = Attention { regime: Regime::Prefill, ..op.clone() };
    rig.refuses(prefill.clone(), "a tree is no part of a prompt")?;
    let prefill = Attention { mask: block(None, true), ..prefill };
    rig.refuses(prefill, "a block is no part of a prompt")?;
    for causal in [false, true] {
        let empty = Attention { mask: block(Some(0), causal), ..op.clone() };
        rig.refuses(empty, "the window is empty")?;
    }
    let odd = rig.i32("masks", &[4, 3], &[])?;
    for (tree, why) in [
        (few.clone(), "the tree holds fewer rows than the queries"),
        (many, "the tree has more than 64 rows"),
        (TreeRows { parents: few.parents, ..good.clone() }, "parents are too few"),
        (TreeRows { depths: few.depths, ..good.clone() }, "depths are too few"),
        (TreeRows { masks: few.masks, ..good.clone() }, "masks are too few"),
        (TreeRows { masks: odd, ..good }, "a mask has three words"),
    ] {
        rig.refuses(Attention { mask: AttentionMask::Tree(tree), ..op.clone() }, why)?;
    }
    Ok(())
}
