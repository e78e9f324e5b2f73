//! Scalar weights times `f32` rows.

use std::marker::PhantomData;

use foretoken::device::Activations;

use super::{AHEAD, Job, Panel, unroll};
use crate::linear::lanes::Lanes;
use crate::linear::layout::PANEL;

/// A scalar type known at compile time.
pub(in crate::linear) trait Scalar: 'static {
    const BYTES: usize;

    /// Sixteen values as `f32`.
    ///
    /// # Safety
    /// `p` is valid for `16 * BYTES` bytes.
    unsafe fn load<L: Lanes>(p: *const u8) -> L::F;
}

/// Scalar weights, `[k][16]`, times `f32` activations.
pub(in crate::linear) struct Plain<S>(PhantomData<S>);

impl<S: Scalar> Panel for Plain<S> {
    const ACTIVATIONS: Activations = Activations::F32;

    #[inline(always)]
    unsafe fn tile<L: Lanes, const T: usize>(
        job: &Job,
        panel: *const u8,
        acts: *const u8,
    ) -> [L::F; T] {
        // SAFETY: `k` vectors of the panel and a whole tile of inputs, by contract.
        unsafe {
            let mut sums = [L::zero(); T];
            let x = acts.cast::<f32>();
            for i in 0..job.k {
                let p = panel.add(i * PANEL * S::BYTES);
                L::prefetch(p.wrapping_add(AHEAD));
                let w = S::load::<L>(p);
                let x = x.add(i * T);
                unroll!(T, M, { sums[M] = L::fma(w, L::splat(x.add(M)), sums[M]) });
            }
            sums
        }
    }
}
