//! Rows of logits as long as a vocabulary.

use foretoken::device::Device;
use foretoken::kernel::TopK;

use super::support::{Words, control, device, f32, floats, ints, launch, words_of};

const VOCABULARY: usize = 248_320;

/// Random logits; few distinct ones in row 1, so that ties abound; row 2 holds a NaN.
fn logits(rows: usize) -> Vec<f32> {
    let mut random = Words(3);
    let one = |i: usize| match i / VOCABULARY {
        1 => (random.next() % 50) as f32 * 0.25,
        2 if i % VOCABULARY == VOCABULARY - 1 => f32::NAN,
        _ => (random.next() as f32 / u32::MAX as f32) * 30.0 - 15.0,
    };
    (0..rows * VOCABULARY).map(one).collect()
}

fn run(device: &dyn Device, logits: &[f32], rows: usize, k: usize) -> (Vec<u32>, TopK) {
    let op = TopK {
        control: control(device, rows as i32, 0),
        logits: floats(device, &[rows, VOCABULARY], logits),
        k,
        ids: ints(device, &[rows, k]),
        values: f32(device, &[rows, k]),
        log_sum_exp: Some(f32(device, &[rows])),
    };
    assert_eq!(launch(device, op.clone()), None);
    (words_of(device, &op.ids), op)
}

fn best(row: &[f32], k: usize) -> Vec<u32> {
    let mut ids: Vec<u32> = (0..row.len() as u32).collect();
    let order = |a: &u32, b: &u32| row[*b as usize].total_cmp(&row[*a as usize]).then(a.cmp(b));
    ids.sort_by(order);
    ids.truncate(k);
    ids
}

#[test]
fn the_best_of_a_whole_vocabulary() {
    let Some(device) = device() else { return };
    let rows = 5;
    let mut logits = logits(rows);
    let order: Vec<_> = logits.chunks_exact(VOCABULARY).map(|row| best(row, 300)).collect();
    // Found one by one, by sorting, copied to shared memory or not.
    for k in [1, 2, 8, 9, 40, 64, 300] {
        let (ids, op) = run(&*device, &logits, rows, k);
        let values = words_of(&*device, &op.values);
        let sums = words_of(&*device, op.log_sum_exp.as_ref().unwrap());
        for (row, x) in logits.chunks_exact(VOCABULARY).enumerate() {
            let (ids, values) = (&ids[row * k..][..k], &values[row * k..][..k]);
            let sum = f32::from_bits(sums[row]);
            if row == 2 {
                assert!(ids.iter().all(|&id| id == u32::MAX) && sum.is_nan(), "k = {k}");
                continue;
            }
            assert_eq!(ids, &order[row][..k], "k = {k}, row {row}");
            let own = ids.iter().map(|&id| x[id as usize].to_bits());
            assert!(own.eq(values.iter().copied()), "k = {k}, row {row}: values");
            let exact: f64 = x.iter().map(|&x| f64::from(x).exp()).sum::<f64>().ln();
            // Sums of 2048 terms, off by some units; the logarithm by as much, and rounded.
            let allowed = f64::from(f32::EPSILON) * (32.0 + exact.abs());
            assert!((f64::from(sum) - exact).abs() <= allowed, "k = {k}, row {row}: {sum}");
        }
    }
    // The comparison sees one logit raised to the top.
    logits[VOCABULARY - 1] = 99.0;
    assert_ne!(run(&*device, &logits, rows, 8).0[..8], order[0][..8]);
}

/// A row's ids and sum are the same bits in any company.
#[test]
fn rows_do_not_depend_on_each_other() {
    let Some(device) = device() else { return };
    let logits = logits(4);
    for k in [1, 8, 22] {
        let (ids, op) = run(&*device, &logits, 4, k);
        let sums = words_of(&*device, op.log_sum_exp.as_ref().unwrap());
        for row in [0, 1, 3] {
            let own = &logits[row * VOCABULARY..][..VOCABULARY];
            let (alone, op) = run(&*device, own, 1, k);
            assert_eq!(alone, ids[row * k..][..k]);
            assert_eq!(words_of(&*device, op.log_sum_exp.as_ref().unwrap()), sums[row..=row]);
        }
    }
}
