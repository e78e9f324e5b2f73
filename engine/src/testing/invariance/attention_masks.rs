//! Rows of a tree have the bits of a plain sequence, those of a block their own.

use super::{Bits, HEADS, Heads, by_company, live};
use crate::kernel::{Attention, AttentionMask, KvCommit, KvPair, Regime};
use crate::tensor::DType;
use crate::testing::cases::attention::{CACHES, stored};
use crate::testing::compare;
use crate::testing::fault::CaseFault;
use crate::testing::report::Runner;
use crate::testing::rig::Rig;
use crate::testing::trees::{Kind, Tree, path_on_device};

/// Rows and committed tokens; paths end before, at and after split boundaries.
const SIZES: [(usize, usize); 8] =
    [(1, 127), (7, 0), (5, 126), (16, 125), (24, 128), (33, 100), (64, 250), (64, 65)];

pub(super) fn all(run: &mut Runner<'_>) {
    for (dtype, heads) in CACHES.into_iter().flat_map(|t| HEADS.map(|heads| (t, heads))) {
        let stored = (dtype, heads);
        for kind in [Kind::Random, Kind::Winding] {
            let name = format!("invariance/attention/tree/{kind:?}/{dtype}/{heads:?}");
            run.case(name, |rig| as_chains(rig, stored, kind));
            let name = format!("invariance/attention/committed tree/{kind:?}/{dtype}/{heads:?}");
            run.case(name, |rig| committed(rig, stored, kind));
        }
        let name = format!("invariance/attention/window/{dtype}/{heads:?}");
        run.case(name, |rig| window(rig, stored));
        let name = format!("invariance/attention/block as causal/{dtype}/{heads:?}");
        run.case(name, |rig| block_as_causal(rig, stored));
    }
    run.case("invariance/negative control/tree".into(), blind_tree);
}

/// Queries of some rows, and the bytes of a cache that ends with their keys and values.
struct Rows {
    dtype: DType,
    heads: Heads,
    committed: usize,
    q: Vec<f32>,
    k: Vec<u8>,
    v: Vec<u8>,
}

impl Rows {
    fn new(
        rig: &mut Rig<'_>,
        (dtype, heads): (DType, Heads),
        (rows, committed): (usize, usize),
    ) -> Self {
        let (hq, kv, d) = heads;
        let mut bytes = || stored(dtype, &rig.rng.floats((committed + rows) * kv * d)).1;
        let (k, v) = (bytes(), bytes());
        Self { dtype, heads, committed, q: rig.rng.floats(rows * hq * d), k, v }
    }

    /// Queries of the given rows.
    fn queries(&self, rows: &[usize]) -> Vec<f32> {
        let n = self.heads.0 * self.heads.2;
        rows.iter().flat_map(|row| &self.q[row * n..(row + 1) * n]).copied().collect()
    }

    /// A cache in which the given rows alone have been appended.
    fn cache(&self, rig: &mut Rig<'_>, rows: &[usize]) -> crate::Result<KvPair> {
        let (_, kv, d) = self.heads;
        let slot = kv * d * self.dtype.block_bytes();
        let slots = (0..self.committed).chain(rows.iter().map(|row| self.committed + row));
        let slots: Vec<usize> = slots.collect();
        let mut tensor = |name, bytes: &[u8]| {
            let slots = slots.iter().flat_map(|i| &bytes[i * slot..(i + 1) * slot]);
            let (n, bytes): (usize, Vec<u8>) =
                (self.committed + rows.len(), slots.copied().collect());
            rig.bytes(name, self.dtype, &[n, kv, d], &bytes)
        };
        Ok(KvPair { k: tensor("k cache", &self.k)?, v: tensor("v cache", &self.v)? })
    }

    /// All rows as a tree.
    fn tree(&self, rig: &mut Rig<'_>, tree: &Tree) -> Bits {
        let rows: Vec<usize> = (0..tree.rows()).collect();
        let cache = self.cache(rig, &rows)?;
        let mask = AttentionMask::Tree(tree.on_device(rig, rows.len())?);
        attend(rig, self.heads, cache, mask, &self.q, self.committed)
    }

    /// A tree's path as a sequence: its last row.
    fn chain(&self, rig: &mut Rig<'_>, path: &[usize]) -> Bits {
        let cache = self.cache(rig, path)?;
        let before = self.committed + path.len() - 1;
        let q = self.queries(&path[path.len() - 1..]);
        attend(rig, self.heads, cache, AttentionMask::Causal, &q, before)
    }
}

fn attend(
    rig: &mut Rig<'_>,
    (hq, _, d): Heads,
    cache: KvPair,
    mask: AttentionMask,
    q: &[f32],
    committed: usize,
) -> Bits {
    let rows = q.len() / (hq * d);
    let op = Attention {
        control: rig.control([rows, committed, 0, 0])?,
        regime: Regime::Step,
        mask,
        q: rig.f32("q", &[rows, hq, d], q)?,
        cache,
        scale: 0.125,
        out: rig.blank("out", &[rows, hq, d])?,
    };
    rig.launch(op.clone())?;
    live(rig, &op.out, rows * hq * d)
}

/// Compares each row of a tree's outputs with the row at the end of its path.
fn compare_rows(rig: &mut Rig<'_>, rows: &Rows, tree: &Tree, got: &[u32]) -> Result<(), CaseFault> {
    let n = rows.heads.0 * rows.heads.2;
    for (row, got) in got.chunks_exact(n).enumerate() {
        compare::bits("out", &rows.chain(rig, &tree.path(row))?, got)?;
    }
    Ok(())
}

fn as_chains(rig: &mut Rig<'_>, stored: (DType, Heads), kind: Kind) -> Result<(), CaseFault> {
    for size in SIZES {
        let rows = Rows::new(rig, stored, size);
        let tree = Tree::new(&mut rig.rng, kind, size.0);
        let got = rows.tree(rig, &tree)?;
        compare_rows(rig, &rows, &tree, &got)?;
    }
    Ok(())
}

/// Once a path has been committed, its rows have the bits they had in the tree.
fn committed(rig: &mut Rig<'_>, stored: (DType, Heads), kind: Kind) -> Result<(), CaseFault> {
    let n = stored.1.0 * stored.1.2;
    for size in SIZES {
        let (count, committed) = size;
        let rows = Rows::new(rig, stored, size);
        let tree = Tree::new(&mut rig.rng, kind, count);
        let got = rows.tree(rig, &tree)?;
        let path = tree.path(count - 1);
        let all: Vec<usize> = (0..count).collect();
        let cache = rows.cache(rig, &all)?;
        let op = KvCommit {
            control: rig.control([count, committed, 0, 0])?,
            path: path_on_device(rig, &path, count)?,
            cache: cache.clone(),
        };
        rig.launch(op)?;
        let q = rows.queries(&path);
        let again = attend(rig, stored.1, cache, AttentionMask::Causal, &q, committed)?;
        let of_path = path.iter().flat_map(|row| &got[row * n..(row + 1) * n]);
        let of_path: Vec<u32> = of_path.copied().collect();
        compare::bits("out", &again, &of_path)?;
    }
    Ok(())
}

/// With a causal window, a row has the bits it has alone.
fn window(rig: &mut Rig<'_>, stored: (DType, Heads)) -> Result<(), CaseFault> {
    // Windows start and end in different splits.
    let rows = Rows::new(rig, stored, (64, 230));
    let all: Vec<usize> = (0..64).collect();
    let cache = rows.cache(rig, &all)?;
    let mask = AttentionMask::Block { window: Some(150), causal: true };
    by_company("out", |range| {
        let (q, before) = (rows.queries(&all[range.clone()]), rows.committed + range.start);
        attend(rig, stored.1, cache.clone(), mask.clone(), &q, before)
    })
}

/// A causal block that sees everything is plain causal attention.
fn block_as_causal(rig: &mut Rig<'_>, stored: (DType, Heads)) -> Result<(), CaseFault> {
    for size in SIZES {
        let rows = Rows::new(rig, stored, size);
        let all: Vec<usize> = (0..size.0).collect();
        let cache = rows.cache(rig, &all)?;
        let mut with = |mask| attend(rig, stored.1, cache.clone(), mask, &rows.q, rows.committed);
        let causal = with(AttentionMask::Causal)?;
        for window in [None, Some(usize::MAX), Some(size.0 + size.1)] {
            let block = with(AttentionMask::Block { window, causal: true })?;
            compare::bits("out", &causal, &block)?;
        }
    }
    Ok(())
}

/// A wrong parent of the same depth must show.
fn blind_tree(rig: &mut Rig<'_>) -> Result<(), CaseFault> {
    // Rows 1 and 2 follow row 0; row 3 follows row 1.
    let tree = Tree(vec![-1, 0, 0, 1]);
    let other = Tree(vec![-1, 0, 0, 2]);
    for (i, committed) in [0, 126, 200].into_iter().enumerate() {
        let rows = Rows::new(rig, (DType::F16, HEADS[i]), (4, committed));
        let got = rows.tree(rig, &other)?;
        compare_rows(rig, &rows, &other, &got)?;
        match compare_rows(rig, &rows, &tree, &got) {
            Err(CaseFault::Variant { .. }) => {}
            _ => return Err(CaseFault::Blind("a row with another parent")),
        }
    }
    Ok(())
}
