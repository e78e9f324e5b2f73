//! Control blocks, cursors and paths that break the contract fail the launch with words of
//! their own, and lead nowhere out of bounds.

use foretoken::device::Device;
use foretoken::kernel::{
    Advance, Control, Cursor, DraftBlock, DraftContext, FeatureCommit, FeatureLoad, FeatureStore,
    KvAppend, KvCommit, Op, Path, RmsNorm, RopeAngles, RowSet, SwiGlu, TopK, TreeBuild, TreeLimits,
    TreeRows, TreeWalk,
};

use super::support::{cache, control, device, f32, ints, launch, words};

const MANY: &str = "the control block names more rows than were recorded";
const NEGATIVE: &str = "a control word is negative";
const PATH: &str = "the path has no rows, or more than the call";
const CURSOR: &str = "the cursor is out of order";
const POSITIONS: &str = "a position is past 31 bits";

/// Runs an operation on a device of its own, since a refusal is its end. `None` where there
/// is no GPU.
fn run(op: impl FnOnce(&dyn Device) -> Op) -> Option<Option<String>> {
    let device = device()?;
    let op = op(&*device);
    Some(launch(&*device, op))
}

/// The launch is refused with `words`, or not at all.
fn expect(what: &str, words: Option<&str>, op: impl FnOnce(&dyn Device) -> Op) -> bool {
    let Some(refused) = run(op) else { return false };
    let starts = match (&refused, words) {
        (Some(refused), Some(words)) => refused.starts_with(words),
        (None, None) => true,
        _ => false,
    };
    assert!(starts, "{what}: {refused:?}, not {words:?}");
    true
}

#[test]
fn no_more_rows_than_were_recorded() {
    let bad = [(4, None), (5, Some(MANY)), (i32::MAX, Some(MANY)), (-1, Some(NEGATIVE))];
    for (rows, words) in bad {
        let there = expect("swiglu", words, |device| {
            let [gate, up, out] = [(); 3].map(|()| f32(device, &[4, 40]));
            SwiGlu { control: control(device, rows, 0), gate, up, out }.into()
        });
        if !there {
            return;
        }
        for set in [RowSet::All, RowSet::LogitsCompact, RowSet::Logits] {
            expect("rms_norm", words, |device| {
                let (x, weight) = (f32(device, &[6, 40]), f32(device, &[40]));
                let (control, out) = (control(device, rows, 0), f32(device, &[4, 40]));
                RmsNorm { control, rows: set, x, weight, eps: 1e-6, out }.into()
            });
        }
        expect("rope_angles", words, |device| {
            let (positions, out) = (ints(device, &[4]), f32(device, &[4, 64]));
            RopeAngles { control: control(device, rows, 0), positions, theta: 1e4, out }.into()
        });
        expect("top_k", words, |device| {
            TopK {
                control: control(device, rows, 0),
                logits: f32(device, &[4, 99]),
                k: 3,
                ids: ints(device, &[4, 3]),
                values: f32(device, &[4, 3]),
                log_sum_exp: None,
            }
            .into()
        });
    }
    for (first, count) in [(3, 4), (i32::MAX, 1), (1, i32::MAX), (6, 1)] {
        expect("rms_norm", Some(MANY), |device| {
            let control = Control(words(device, &[4, 0, first, count]));
            let (x, weight) = (f32(device, &[6, 40]), f32(device, &[40]));
            let out = f32(device, &[6, 40]);
            RmsNorm { control, rows: RowSet::Logits, x, weight, eps: 1e-6, out }.into()
        });
    }
}

#[test]
fn rows_fit_the_cache() {
    let past = Some("the call reaches past the end of the cache");
    let cases = [
        (4, 196, None),
        (0, 200, None),
        (4, 197, past),
        (1, i32::MAX, past),
        (1, -1, Some(NEGATIVE)),
        (-1, 0, Some(NEGATIVE)),
    ];
    for (rows, committed, words) in cases {
        let there = expect("kv_append", words, |device| {
            let (k, v) = (f32(device, &[4, 2, 16]), f32(device, &[4, 2, 16]));
            let control = control(device, rows, committed);
            KvAppend { control, k, v, cache: cache(device, 200) }.into()
        });
        if !there {
            return;
        }
    }
    expect("kv_commit", past, |device| {
        let path = Path(words(device, &[1, 0, 0, 0, 0]));
        KvCommit { control: control(device, 3, 6), path, cache: cache(device, 8) }.into()
    });
}

/// Paths of four rows, three of them live, and whether they are good.
const PATHS: [([i32; 5], bool); 11] = [
    ([1, 0, -1, -1, -1], true),
    ([2, 0, 2, -1, -1], true),
    ([3, 0, 1, 2, -1], true),
    ([0, 0, 1, 2, 3], false),
    ([-1, 0, 1, 2, 3], false),
    ([5, 0, 1, 2, 3], false),
    ([i32::MAX, 0, 1, 2, 3], false),
    ([2, 1, 2, -1, -1], false),
    ([3, 0, 2, 1, -1], false),
    ([2, 0, 3, -1, -1], false),
    ([2, 0, i32::MIN, -1, -1], false),
];

#[test]
fn commits_need_a_path() {
    for (path, good) in PATHS {
        let bad = (!good).then_some(PATH);
        let there = expect("kv_commit", bad, |device| {
            let path = Path(words(device, &path));
            KvCommit { control: control(device, 3, 5), path, cache: cache(device, 8) }.into()
        });
        if !there {
            return;
        }
        expect("feature_commit", bad, |device| {
            let (path, ring) = (Path(words(device, &path)), f32(device, &[4, 40]));
            FeatureCommit { control: control(device, 3, 5), path, ring }.into()
        });
    }
}

#[test]
fn a_ring_holds_the_rows_of_a_call() {
    let ring = Some("the call has more rows than the ring has slots");
    let cases = [
        (4, 3, None),
        (1, i32::MAX, None),
        (5, 0, ring),
        (9, 0, Some(MANY)),
        (1, -1, Some(NEGATIVE)),
    ];
    for (rows, committed, words) in cases {
        let there = expect("feature_load", words, |device| {
            let (ring, out) = (f32(device, &[4, 40]), f32(device, &[8, 40]));
            FeatureLoad { control: control(device, rows, committed), ring, out }.into()
        });
        if !there {
            return;
        }
    }
    for (rows, committed, words) in
        [(2, 3, None), (2, i32::MAX, None), (3, 0, Some(MANY)), (1, -1, Some(NEGATIVE))]
    {
        expect("feature_store", words, |device| {
            let (x, ring) = (f32(device, &[2, 16]), f32(device, &[4, 40]));
            let control = control(device, rows, committed);
            FeatureStore { control, x, ring, column: 24 }.into()
        });
    }
}

#[test]
fn a_cursor_is_in_order() {
    let cases: [(&[i32; 4], Option<&str>); 7] = [
        (&[109, 1, 100, 0], None),
        (&[110, 1, 100, 0], Some(MANY)),
        (&[i32::MAX, 1, 0, 0], Some(MANY)),
        (&[100, 1, 101, 0], Some(CURSOR)),
        (&[0, 1, i32::MAX, 0], Some(CURSOR)),
        (&[-1, 1, 0, 0], Some(CURSOR)),
        (&[100, 1, i32::MIN, 0], Some(CURSOR)),
    ];
    for (cursor, refused) in cases {
        let there = expect("draft_context", refused, |device| {
            let cursor = Cursor(words(device, cursor));
            let (control, positions) = (Control(ints(device, &[4])), ints(device, &[9]));
            DraftContext { cursor, control, positions }.into()
        });
        if !there {
            return;
        }
    }
    for (committed, refused) in
        [(i32::MAX - 15, None), (i32::MAX - 14, Some(POSITIONS)), (-1, Some(CURSOR))]
    {
        expect("draft_block", refused, |device| {
            let (tokens, positions) = (ints(device, &[16]), ints(device, &[16]));
            let cursor = Cursor(words(device, &[committed, 0, 0, 0]));
            let control = Control(ints(device, &[4]));
            DraftBlock { cursor, mask_token: 7, control, tokens, positions }.into()
        });
    }
    for (committed, refused) in
        [(i32::MAX - 2, None), (i32::MAX - 1, Some(POSITIONS)), (i32::MIN, Some(CURSOR))]
    {
        expect("tree_build", refused, |device| {
            TreeBuild {
                cursor: Cursor(words(device, &[committed, 0, 0, 0])),
                limits: TreeLimits(words(device, &[4, 2, 2, 2])),
                ids: ints(device, &[2, 3]),
                scores: f32(device, &[2, 3]),
                log_sum_exp: None,
                vocab: 9,
                control: Control(ints(device, &[4])),
                tokens: ints(device, &[8]),
                positions: ints(device, &[8]),
                tree: tree(device, 8),
            }
            .into()
        });
    }
}

fn tree(device: &dyn Device, rows: usize) -> TreeRows {
    TreeRows {
        parents: ints(device, &[rows]),
        depths: ints(device, &[rows]),
        masks: ints(device, &[rows, 2]),
    }
}

#[test]
fn walks_and_advances_have_rows() {
    for (rows, refused) in
        [(1, None), (0, Some("there are no rows")), (9, Some(MANY)), (-1, Some(NEGATIVE))]
    {
        let there = expect("tree_walk", refused, |device| {
            TreeWalk {
                control: control(device, rows, 0),
                tokens: ints(device, &[8]),
                tree: tree(device, 8),
                choices: ints(device, &[8, 1]),
                path: Path(ints(device, &[9])),
                result: ints(device, &[12]),
            }
            .into()
        });
        if !there {
            return;
        }
    }
    let cases = [
        (3, 5, 3, None),
        (3, 5, 4, Some(PATH)),
        (3, 5, 0, Some(PATH)),
        (3, 5, i32::MIN, Some(PATH)),
        (3, i32::MAX - 2, 3, Some(POSITIONS)),
        (9, 5, 3, Some(MANY)),
        (3, -5, 3, Some(NEGATIVE)),
    ];
    for (rows, committed, accepted, refused) in cases {
        expect("advance", refused, |device| {
            Advance {
                control: control(device, rows, committed),
                path: Path(words(device, &[accepted, 0, 1, 2, 3, 4, 5, 6, 7])),
                result: ints(device, &[12]),
                cursor: Cursor(ints(device, &[4])),
            }
            .into()
        });
    }
}
