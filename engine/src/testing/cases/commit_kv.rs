//! Moving the keys and values of an accepted path together.

use super::SPARE;
use super::attention::{CACHES, stored};
use crate::kernel::{KvCommit, KvPair, TreeRows};
use crate::tensor::DType;
use crate::testing::compare;
use crate::testing::fault::CaseFault;
use crate::testing::report::Runner;
use crate::testing::rig::{POISON, Rig};
use crate::testing::trees::{Kind, Tree, path_on_device};

pub(super) fn all(run: &mut Runner<'_>) {
    // Rows and committed tokens.
    let sizes = [(1, 0), (2, 5), (3, 126), (17, 255), (33, 1), (64, 100), (64, 0)];
    // Heads and head_dim.
    let shapes = [(2, 24), (1, 5), (3, 64), (1, 256)];
    for (i, (rows, committed)) in sizes.into_iter().enumerate() {
        for (j, kind) in Kind::ALL.into_iter().enumerate() {
            let types = [CACHES[(i + j) % 3], CACHES[(i + j + i / 3) % 3]];
            let shape = shapes[(i + j) % shapes.len()];
            let [k, v] = types;
            let place = format!("m={rows}/committed={committed}/{shape:?}");
            let name = format!("kv_commit/{kind:?}/{k}-{v}/{place}");
            run.case(name, |rig| commit(rig, types, kind, (rows, committed), shape));
        }
    }
    run.case("kv_commit/refused".into(), refused);
}

fn commit(
    rig: &mut Rig<'_>,
    types: [DType; 2],
    kind: Kind,
    (rows, committed): (usize, usize),
    (heads, d): (usize, usize),
) -> Result<(), CaseFault> {
    let tree = Tree::new(&mut rig.rng, kind, rows);
    // The path to the last row of a tree leaves the most rows out.
    let path = tree.path(rows - 1);
    let context = committed + rows + SPARE;
    let mut cache = |name, dtype: DType| -> crate::Result<_> {
        let bytes = stored(dtype, &rig.rng.floats((committed + rows) * heads * d)).1;
        Ok((rig.bytes(name, dtype, &[context, heads, d], &bytes)?, bytes))
    };
    let (k, k_bytes) = cache("k cache", types[0])?;
    let (v, v_bytes) = cache("v cache", types[1])?;
    let op = KvCommit {
        control: rig.control([rows, committed, 0, 0])?,
        path: path_on_device(rig, &path, (rows + SPARE).min(TreeRows::MAX))?,
        cache: KvPair { k: k.clone(), v: v.clone() },
    };
    rig.launch(op)?;
    for (name, tensor, bytes) in [("k", k, k_bytes), ("v", v, v_bytes)] {
        let slot = heads * d * tensor.dtype().block_bytes();
        let got = rig.read(&tensor)?;
        let mut want = bytes.clone();
        want.resize(got.len(), POISON);
        for (i, row) in path.iter().enumerate() {
            let (from, to) = ((committed + row) * slot, (committed + i) * slot);
            want[to..to + slot].copy_from_slice(&bytes[from..from + slot]);
        }
        // Rows after the path are given up: what their slots hold is nobody's business.
        let rest = (committed + path.len()) * slot..(committed + rows) * slot;
        want[rest.clone()].copy_from_slice(&got[rest]);
        let words = |bytes: Vec<u8>| bytes.into_iter().map(u32::from).collect::<Vec<_>>();
        compare::bits(name, &words(want), &words(got))?;
    }
    Ok(())
}

fn refused(rig: &mut Rig<'_>) -> Result<(), CaseFault> {
    let op = KvCommit {
        control: rig.control([1, 0, 0, 0])?,
        path: path_on_device(rig, &[0], 4)?,
        cache: KvPair {
            k: rig.blank("k cache", &[8, 2, 16])?,
            v: rig.blank("v cache", &[8, 2, 16])?,
        },
    };
    for (capacity, why) in [(0, "the path has no room"), (65, "the path has room for 65 rows")] {
        let path = path_on_device(rig, &[], capacity)?;
        rig.refuses(KvCommit { path, ..op.clone() }, why)?;
    }
    let v = rig.blank("v cache", &[8, 2, 17])?;
    let cache = KvPair { v, ..op.cache.clone() };
    rig.refuses(KvCommit { cache, ..op.clone() }, "keys and values differ in shape")?;
    let cache = KvPair { v: op.cache.k.clone(), ..op.cache.clone() };
    rig.refuses(KvCommit { cache, ..op }, "keys and values share memory")
}
