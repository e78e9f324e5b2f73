//! Codes and scales of sub-blocks.

use crate::linear::lanes::Lanes;
use crate::linear::layout::{Codes, Layout, PANEL, Scales, VECTOR};

/// `field` of one vector at several places.
macro_rules! fields {
    ($l:ident, $v:expr, $mask:literal, $($right:literal)*) => {
        [$($l::field::<$right, $mask>($v)),*]
    };
}

/// Eight code vectors of a sub-block, one per group of four inputs.
///
/// # Safety
/// `p` is valid for the codes of a sub-block.
#[inline(always)]
pub(super) unsafe fn codes<L: Lanes>(layout: Layout, p: *const u8) -> [L::B; 8] {
    // SAFETY: vectors of the sub-block, by contract.
    unsafe {
        match layout.codes {
            Codes::Bits2 => pairs::<L>(p),
            Codes::Bits3 => {
                let thirds = fields!(L, L::bytes(p.add(2 * VECTOR)), 4, -2 -1 0 1 2 3 4 5);
                or::<L>(pairs::<L>(p), thirds)
            }
            Codes::Bits4 => nibbles::<L>(p),
            Codes::Table(table, _) => {
                let mut v = nibbles::<L>(p);
                for v in &mut v {
                    *v = L::lookup(table, *v);
                }
                v
            }
            Codes::Bits5 => {
                let fifths = fields!(L, L::bytes(p.add(4 * VECTOR)), 16, -4 -3 -2 -1 0 1 2 3);
                or::<L>(nibbles::<L>(p), fifths)
            }
            Codes::Bits6 => {
                let low = fields!(L, L::bytes(p.add(4 * VECTOR)), 48, -4 -2 0 2);
                let high = fields!(L, L::bytes(p.add(5 * VECTOR)), 48, -4 -2 0 2);
                or::<L>(nibbles::<L>(p), concat::<L, 4>(&[low, high]))
            }
            Codes::Bits8 => {
                let mut v = [L::bytes(p); 8];
                for (i, v) in v.iter_mut().enumerate() {
                    *v = L::bytes(p.add(i * VECTOR));
                }
                v
            }
        }
    }
}

/// # Safety
/// `p` is valid for four vectors.
#[inline(always)]
unsafe fn nibbles<L: Lanes>(p: *const u8) -> [L::B; 8] {
    // SAFETY: passed on.
    unsafe {
        concat::<L, 2>(&[
            fields!(L, L::bytes(p), 15, 0 4),
            fields!(L, L::bytes(p.add(VECTOR)), 15, 0 4),
            fields!(L, L::bytes(p.add(2 * VECTOR)), 15, 0 4),
            fields!(L, L::bytes(p.add(3 * VECTOR)), 15, 0 4),
        ])
    }
}

/// # Safety
/// `p` is valid for two vectors.
#[inline(always)]
unsafe fn pairs<L: Lanes>(p: *const u8) -> [L::B; 8] {
    // SAFETY: passed on.
    unsafe {
        concat::<L, 4>(&[
            fields!(L, L::bytes(p), 3, 0 2 4 6),
            fields!(L, L::bytes(p.add(VECTOR)), 3, 0 2 4 6),
        ])
    }
}

#[inline(always)]
fn concat<L: Lanes, const N: usize>(parts: &[[L::B; N]]) -> [L::B; 8] {
    let mut all = [parts[0][0]; 8];
    for (i, v) in all.iter_mut().enumerate() {
        *v = parts[i / N][i % N];
    }
    all
}

/// # Safety
/// The machine has the instruction set of `L`.
#[inline(always)]
unsafe fn or<L: Lanes>(mut a: [L::B; 8], b: [L::B; 8]) -> [L::B; 8] {
    for (a, b) in a.iter_mut().zip(b) {
        // SAFETY: passed on.
        *a = unsafe { L::or(*a, b) };
    }
    a
}

/// The scales of a sub-block, and what is added to every value (minus the offsets).
pub(super) struct SubScales<L: Lanes> {
    pub(super) scales: [L::F; 2],
    pub(super) shifts: [L::F; 2],
}

/// # Safety
/// `head` is the head of a chunk that has a sub-block `sub`; `factors` are the chunk's.
#[inline(always)]
pub(super) unsafe fn scales<L: Lanes>(
    layout: Layout,
    head: *const u8,
    factors: [L::F; 2],
    sub: usize,
) -> SubScales<L> {
    // SAFETY: inside the head, by contract.
    unsafe {
        let first = head.add(layout.factor_bytes() + sub * layout.scale_bytes());
        let scales = sets::<L>(layout, first, factors[0]);
        let shifts = match layout.zero {
            Some(_) => [L::zero(); 2],
            None => sets::<L>(layout, first.add(layout.sets * layout.set_bytes()), factors[1]),
        };
        SubScales { scales, shifts }
    }
}

/// One set of scales or both; the same twice when there is one.
///
/// # Safety
/// `p` is valid for the sets.
#[inline(always)]
unsafe fn sets<L: Lanes>(layout: Layout, p: *const u8, factor: L::F) -> [L::F; 2] {
    // SAFETY: passed on.
    unsafe {
        let first = set::<L>(layout, p, factor);
        match layout.sets {
            1 => [first; 2],
            _ => [first, set::<L>(layout, p.add(layout.set_bytes()), factor)],
        }
    }
}

/// # Safety
/// `p` is valid for a set of scales.
#[inline(always)]
unsafe fn set<L: Lanes>(layout: Layout, p: *const u8, factor: L::F) -> L::F {
    // SAFETY: passed on.
    unsafe {
        match layout.scales {
            Scales::F16 => L::load_f16(p),
            Scales::Bf16 => L::load_bf16(p),
            Scales::Super { signed: true, .. } => L::mul(factor, L::load_i8(p)),
            Scales::Super { signed: false, .. } => L::mul(factor, L::load_u8(p)),
        }
    }
}

/// The factors at the start of a chunk's head: for scales and for shifts.
///
/// # Safety
/// `head` is the head of a chunk.
#[inline(always)]
pub(super) unsafe fn factors<L: Lanes>(layout: Layout, head: *const u8) -> [L::F; 2] {
    // SAFETY: inside the head, by contract.
    unsafe {
        match (layout.scales, layout.zero) {
            (Scales::Super { .. }, None) => [L::load_f16(head), L::load_f16(head.add(2 * PANEL))],
            (Scales::Super { .. }, Some(_)) => [L::load_f16(head); 2],
            _ => [L::zero(); 2],
        }
    }
}

/// Walks the sub-blocks of a panel: number, scales and codes of each. A macro, not a
/// function with a closure: a closure could end up outside the code that is compiled
/// for the instruction set. To be used where a panel of `$subs` sub-blocks is vouched for.
macro_rules! each_sub {
    ($l:ident, $layout:ident, $panel:ident, $subs:expr, |$sub:ident, $scales:ident, $codes:ident| $work:block) => {
        let (mut head, mut left) = ($panel, $subs);
        let mut $sub = 0;
        while left > 0 {
            let count = left.min(CHUNK_SUBS);
            let factors = sub_block::factors::<$l>($layout, head);
            let mut $codes = head.add($layout.head_bytes(count));
            for i in 0..count {
                let $scales = sub_block::scales::<$l>($layout, head, factors, i);
                $work
                $codes = $codes.add($layout.code_bytes());
                $sub += 1;
            }
            head = head.add($layout.chunk_bytes(count));
            left -= count;
        }
    };
}
pub(super) use each_sub;
