//! The entries of one piece of a row of logits.

use super::top_k::PIECE;
use crate::math::{LANES, exp1, largest, per_isa, sum};

/// What is known of a piece.
#[derive(Clone, Copy, Debug)]
pub(super) struct Summary {
    /// No NaN and no infinity.
    pub(super) finite: bool,
    /// Largest logit, when finite.
    pub(super) max: f32,
    /// Sum of exponentials relative to the largest.
    pub(super) sum: f32,
}

/// Up to this many entries, a piece is scanned with a sorted list; beyond, sorted.
const SCAN: usize = 32;

/// Entries looked at together by a scan.
const BLOCK: usize = 64;

/// The place of an entry in the wanted order, smaller first: larger logit, then
/// lower id. The two zeros count as equal. Not for NaN.
fn key(logit: f32, id: usize) -> u64 {
    let bits = (logit + 0.0).to_bits();
    // Ascending with the logit as an unsigned number, then turned around.
    let ascending = if bits >> 31 == 0 { bits | 1 << 31 } else { !bits };
    u64::from(!ascending) << 32 | id as u64
}

per_isa! {
    /// Finiteness, maximum and, when wanted, the sum of exponentials.
    pub(super) fn summary[s](logits: &[f32], with_sum: bool) -> Summary {
        // Zero times anything finite is zero; times anything else it is NaN.
        let (parts, rest) = logits.as_chunks::<LANES>();
        let mut check = s.splat(0.0);
        for part in parts {
            check = s.fma(s.load(part), s.splat(0.0), check);
        }
        check = s.fma(s.load_part(rest), s.splat(0.0), check);
        let finite = !s.sum(check).is_nan();
        let max = largest(s, logits);
        let mut total = 0.0;
        if with_sum && finite {
            let mut powers = [0.0; PIECE];
            let powers = &mut powers[..logits.len()];
            for (p, x) in powers.iter_mut().zip(logits) {
                *p = exp1(x - max);
            }
            total = sum(s, powers);
        }
        Summary { finite, max, sum: total }
    }
}

/// The key of the first entry equal to the maximum.
pub(super) fn first_largest(logits: &[f32], first_id: usize, max: f32) -> u64 {
    let at = logits.iter().position(|x| *x == max).unwrap_or(0);
    key(max, first_id + at)
}

/// The keys of the best entries, as many as there is place for, in any order; places
/// left over stay as they are. `room` holds a key for each entry.
pub(super) fn best(logits: &[f32], first_id: usize, keys: &mut [u64], room: &mut [u64]) {
    let n = keys.len().min(logits.len());
    if n <= SCAN {
        return scan(logits, first_id, &mut keys[..n]);
    }
    let room = &mut room[..logits.len()];
    for (i, (place, x)) in room.iter_mut().zip(logits).enumerate() {
        *place = key(*x, first_id + i);
    }
    if n < room.len() {
        room.select_nth_unstable(n - 1);
    }
    keys[..n].copy_from_slice(&room[..n]);
}

/// Keeps the best in ascending order of their keys while walking the piece.
fn scan(logits: &[f32], first_id: usize, keys: &mut [u64]) {
    let last = keys.len() - 1;
    keys.fill(u64::MAX);
    let mut bar = f32::NEG_INFINITY;
    for (block, xs) in logits.chunks(BLOCK).enumerate() {
        // Ids ascend, so an equal logit comes too late. Most blocks hold none above.
        let mut above = block * BLOCK <= last;
        for x in xs {
            above |= *x > bar;
        }
        if !above {
            continue;
        }
        for (i, x) in xs.iter().enumerate() {
            let id = first_id + block * BLOCK + i;
            let new = key(*x, id);
            let at = keys.partition_point(|k| *k < new);
            if at <= last {
                keys.copy_within(at..last, at + 1);
                keys[at] = new;
            }
        }
        if let Some(x) = logits.get((keys[last] & 0xffff_ffff) as usize - first_id) {
            bar = *x;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn keys_order_logits_then_ids() {
        let order = [(3.0, 9), (3.0, 10), (0.0, 1), (-0.0, 2), (0.0, 3), (-1e-40, 0), (-2.0, 0)];
        let keys: Vec<u64> = order.iter().map(|&(x, id)| key(x, id)).collect();
        assert!(keys.is_sorted(), "{keys:?}");
    }

    proptest! {
        #[test]
        fn both_ways_find_the_best(
            // Few distinct values, so that ties abound.
            v in prop::collection::vec(-4i8..4, 1..300),
            k in 1usize..80,
        ) {
            let logits: Vec<f32> = v.iter().map(|&x| f32::from(x)).collect();
            let k = k.min(logits.len());
            let mut want: Vec<usize> = (0..logits.len()).collect();
            want.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
            let mut keys = vec![u64::MAX; k];
            best(&logits, 7, &mut keys, &mut vec![0; logits.len()]);
            keys.sort_unstable();
            let got: Vec<usize> = keys.iter().map(|k| (k & 0xffff_ffff) as usize - 7).collect();
            prop_assert_eq!(&got, &want[..k]);
            prop_assert_eq!(first_largest(&logits, 7, logits[want[0]]), keys[0]);
        }
    }
}
