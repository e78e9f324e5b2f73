//! Sixteen floats at a time, on each instruction set.
//!
//! A [`Simd`] value is proof that the machine has the instruction set, so code that
//! holds one is safe. All operations are defined to the bit: kernels written over the
//! trait give the same results everywhere. Elementwise loops need none of this; the
//! compiler vectorises them.
//!
//! Vectors must not pass through closures (`array::map` and the like): those are
//! compiled without the instruction set and may not be inlined away.

mod portable;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::Avx512;
#[cfg(target_arch = "aarch64")]
pub(crate) use neon::Neon;
pub(crate) use portable::Portable;

/// Floats in a vector, on every instruction set.
pub(crate) const LANES: usize = 16;

/// Vectors of sixteen floats.
pub(crate) trait Simd: Copy {
    /// A vector.
    type V: Copy;

    /// Registers enough for sixteen running sums.
    const WIDE: bool;

    /// All lanes the same.
    fn splat(self, x: f32) -> Self::V;

    /// From memory.
    fn load(self, x: &[f32; LANES]) -> Self::V;

    /// To memory.
    fn store(self, to: &mut [f32; LANES], x: Self::V);

    /// `a + b`.
    fn add(self, a: Self::V, b: Self::V) -> Self::V;

    /// `a * b`.
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;

    /// `a * b + c`, rounded once.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;

    /// `a` where it is greater, else `b` (also where either is NaN).
    fn max(self, a: Self::V, b: Self::V) -> Self::V;

    /// The sums of the lanes of four vectors. A sum is folded by halves: lane `i` with
    /// lane `i + 8`, then `i + 4`, `i + 2` and `i + 1`.
    fn sums(self, x: [Self::V; 4]) -> [f32; 4];

    /// The sum of the lanes, in the same order.
    #[inline(always)]
    fn sum(self, x: Self::V) -> f32 {
        self.sums([x; 4])[0]
    }

    /// Up to sixteen values, the other lanes zero.
    #[inline(always)]
    fn load_part(self, x: &[f32]) -> Self::V {
        let mut lanes = [0.0; LANES];
        lanes[..x.len()].copy_from_slice(x);
        self.load(&lanes)
    }

    /// The first lanes to memory.
    #[inline(always)]
    fn store_part(self, to: &mut [f32], x: Self::V) {
        let mut lanes = [0.0; LANES];
        self.store(&mut lanes, x);
        to.copy_from_slice(&lanes[..to.len()]);
    }
}

#[cfg(test)]
mod tests {
    use crate::math::per_isa;
    use crate::simd::Isa;
    use proptest::prelude::*;

    per_isa! {
        fn everything[s](x: &[[f32; 16]; 4]) -> Vec<u32> {
            let [a, b, c, d] = [0, 1, 2, 3].map(|i| s.load(&x[i]));
            let results = [
                s.add(a, b), s.mul(a, b), s.max(a, b), s.max(s.splat(f32::NAN), a), s.max(a, s.splat(-f32::NAN)), s.fma(a, b, c), s.splat(x[0][3]), s.load_part(&x[1][..5]),
            ];
            let mut out = s.sums([a, b, c, d]).to_vec();
            out.push(s.sum(d));
            for v in results {
                let mut lanes = [0.0; 16];
                s.store(&mut lanes, v);
                out.extend(lanes);
                let mut part = [7.0; 16];
                s.store_part(&mut part[..3], v);
                out.extend(part);
            }
            out.into_iter().map(f32::to_bits).collect()
        }
    }

    /// The documented order, spelled out.
    fn folded(x: &[f32]) -> f32 {
        match x {
            [one] => *one,
            _ => {
                let (low, high) = x.split_at(x.len() / 2);
                folded(&low.iter().zip(high).map(|(a, b)| a + b).collect::<Vec<_>>())
            }
        }
    }

    proptest! {
        #[test]
        fn all_instruction_sets_agree(v in prop::collection::vec(-1e3f32..1e3, 64)) {
            let mut x = [[0.0; 16]; 4];
            x.as_flattened_mut().copy_from_slice(&v);
            let want = everything(Isa::Portable, &x);
            prop_assert_eq!(want[0], folded(&x[0]).to_bits());
            prop_assert_eq!(want[4], folded(&x[3]).to_bits());
            for &isa in Isa::available() {
                prop_assert_eq!(&everything(isa, &x), &want, "{:?}", isa);
            }
        }
    }
}
