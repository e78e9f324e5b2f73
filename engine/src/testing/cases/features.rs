//! The ring of features.

use super::SPARE;
use crate::kernel::{FeatureCommit, FeatureLoad, FeatureStore, TreeRows};
use crate::testing::compare::{self, words};
use crate::testing::fault::CaseFault;
use crate::testing::report::Runner;
use crate::testing::rig::{POISON, Rig};
use crate::testing::trees::{Kind, Tree, path_on_device};

pub(super) fn all(run: &mut Runner<'_>) {
    // Rows, committed tokens and slots of the ring: within it, across its end, full.
    let sizes = [
        (1, 0, 4),
        (3, 4, 6),
        (5, 1003, 8),
        (17, 15, 20),
        (64, 200, 67),
        (64, 255, 128),
        (2, 9, 5),
    ];
    // Columns stored, columns of the ring, first column.
    let widths = [(1, 1, 0), (33, 99, 66), (64, 200, 64), (16, 48, 5)];
    for (i, (rows, committed, slots)) in sizes.into_iter().enumerate() {
        let (place, width) = ((rows, committed, slots), widths[i % widths.len()]);
        let name = format!("m={rows}/committed={committed}/r={slots}/{width:?}");
        run.case(format!("feature_store/{name}"), |rig| store(rig, place, width));
        run.case(format!("feature_load/{name}"), |rig| load(rig, place, width.1));
        for kind in [Kind::Random, Kind::Winding, Kind::Chain] {
            let name = format!("feature_commit/{kind:?}/{name}");
            run.case(name, |rig| commit(rig, place, width.1, kind));
        }
    }
    run.case("feature_store/refused".into(), refused);
}

type Place = (usize, usize, usize);

fn store(
    rig: &mut Rig<'_>,
    (rows, committed, slots): Place,
    (d, width, column): (usize, usize, usize),
) -> Result<(), CaseFault> {
    let x = rig.rng.floats(rows * d);
    let op = FeatureStore {
        control: rig.control([rows, committed, 0, 0])?,
        x: rig.f32("x", &[(rows + SPARE).min(slots), d], &x)?,
        ring: rig.blank("ring", &[slots, width])?,
        column,
    };
    rig.launch(op.clone())?;
    let mut want = vec![u32::from_ne_bytes([POISON; 4]); slots * width];
    for (i, x) in x.chunks_exact(d).enumerate() {
        let at = (committed + i) % slots * width + column;
        want[at..at + d].copy_from_slice(&words(x));
    }
    compare::bits("ring", &want, &rig.words(&op.ring)?)
}

fn load(rig: &mut Rig<'_>, (rows, committed, slots): Place, width: usize) -> Result<(), CaseFault> {
    let ring = rig.rng.floats(slots * width);
    let op = FeatureLoad {
        control: rig.control([rows, committed, 0, 0])?,
        ring: rig.f32("ring", &[slots, width], &ring)?,
        out: rig.blank("out", &[rows + SPARE, width])?,
    };
    rig.launch(op.clone())?;
    let slot = |i: usize| (committed + i) % slots * width;
    let want: Vec<u32> = (0..rows).flat_map(|i| words(&ring[slot(i)..slot(i) + width])).collect();
    let got = rig.words(&op.out)?;
    compare::untouched("out", &got, want.len())?;
    compare::bits("out", &want, &got[..want.len()])
}

fn commit(
    rig: &mut Rig<'_>,
    (rows, committed, slots): Place,
    width: usize,
    kind: Kind,
) -> Result<(), CaseFault> {
    let ring = rig.rng.floats(slots * width);
    let path = Tree::new(&mut rig.rng, kind, rows).path(rows - 1);
    let op = FeatureCommit {
        control: rig.control([rows, committed, 0, 0])?,
        path: path_on_device(rig, &path, (rows + SPARE).min(slots).min(TreeRows::MAX))?,
        ring: rig.f32("ring", &[slots, width], &ring)?,
    };
    rig.launch(op.clone())?;
    let got = rig.words(&op.ring)?;
    let mut want = words(&ring);
    let slot = |i: usize| (committed + i) % slots * width;
    for (i, &row) in path.iter().enumerate() {
        want[slot(i)..slot(i) + width].copy_from_slice(&words(&ring[slot(row)..slot(row) + width]));
    }
    // Rows after the path are given up.
    for i in path.len()..rows {
        want[slot(i)..slot(i) + width].copy_from_slice(&got[slot(i)..slot(i) + width]);
    }
    compare::bits("ring", &want, &got)
}

fn refused(rig: &mut Rig<'_>) -> Result<(), CaseFault> {
    let ring = rig.blank("ring", &[4, 32])?;
    let store = FeatureStore {
        control: rig.control([1, 0, 0, 0])?,
        x: rig.blank("x", &[4, 16])?,
        ring: ring.clone(),
        column: 17,
    };
    rig.refuses(store.clone(), "the columns end outside the ring")?;
    let far = FeatureStore { column: usize::MAX, ..store.clone() };
    rig.refuses(far, "the columns lie outside the ring")?;
    let x = rig.blank("x", &[5, 16])?;
    rig.refuses(FeatureStore { x, column: 0, ..store.clone() }, "two rows share a slot")?;
    let x = ring.clone();
    rig.refuses(FeatureStore { x, column: 0, ..store.clone() }, "input and ring are one")?;
    let (control, path) = (store.control, path_on_device(rig, &[0], 5)?);
    let commit = FeatureCommit { control: control.clone(), path, ring: ring.clone() };
    rig.refuses(commit, "the path has more rows than the ring slots")?;
    let out = rig.blank("out", &[4, 31])?;
    rig.refuses(FeatureLoad { control, ring, out }, "the output is too narrow")
}
