//! Comparing with a reference.

use super::fault::CaseFault;

const POISON: u32 = u32::MAX;
/// What integers hold before they are written, where -1 is a value.
pub(super) const STALE: i32 = 0x5a5a_5a5a;

/// Compares the first elements of an F32 tensor with `want`; those after must hold
/// poison. Bits rather than values go in, so that poison can be told from NaN.
pub(super) fn floats(
    tensor: &'static str,
    got: &[u32],
    want: &[f64],
    allowed: impl Fn(usize) -> f64,
) -> Result<(), CaseFault> {
    for (index, (&bits, &want)) in got.iter().zip(want).enumerate() {
        if bits == POISON {
            return Err(CaseFault::Unwritten { tensor, index });
        }
        let (got, allowed) = (f64::from(f32::from_bits(bits)), allowed(index));
        // False for a NaN on either side.
        let near = (got - want).abs() <= allowed;
        if !near {
            return Err(CaseFault::Mismatch { tensor, index, got, want, allowed });
        }
    }
    untouched(tensor, got, want.len())
}

/// Compares the first elements of an I32 tensor with `want`; those after must hold
/// [`STALE`].
pub(super) fn integers(tensor: &'static str, got: &[i32], want: &[i32]) -> Result<(), CaseFault> {
    for (index, (&got, &want)) in got.iter().zip(want).enumerate() {
        if got == STALE {
            return Err(CaseFault::Unwritten { tensor, index });
        }
        if got != want {
            let (got, want) = (f64::from(got), f64::from(want));
            return Err(CaseFault::Mismatch { tensor, index, got, want, allowed: 0.0 });
        }
    }
    if got.len() < want.len() {
        return Err(CaseFault::Unwritten { tensor, index: got.len() });
    }
    match got.iter().skip(want.len()).position(|&x| x != STALE) {
        Some(past) => Err(CaseFault::Touched { tensor, index: want.len() + past }),
        None => Ok(()),
    }
}

/// Elements from `live` on must hold poison.
pub(super) fn untouched(tensor: &'static str, got: &[u32], live: usize) -> Result<(), CaseFault> {
    match got.iter().skip(live).position(|&bits| bits != POISON) {
        Some(past) => Err(CaseFault::Touched { tensor, index: live + past }),
        None => Ok(()),
    }
}

/// The bits of values.
pub(super) fn words(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// Elements must be the same bits.
pub(super) fn bits(tensor: &'static str, one: &[u32], other: &[u32]) -> Result<(), CaseFault> {
    let differs = |(a, b): (&u32, &u32)| a != b;
    match one.iter().zip(other).position(differs) {
        Some(index) => {
            let (one, other) = (one[index], other[index]);
            Err(CaseFault::Variant { tensor, index, one, other })
        }
        None if one.len() != other.len() => {
            Err(CaseFault::Unwritten { tensor, index: one.len().min(other.len()) })
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_values_unwritten_places_and_stray_writes_are_caught() {
        let want = [1.0, 2.0];
        let mut got = words(&[1.0, 2.0]);
        got.push(POISON);
        assert!(floats("x", &got, &want, |_| 0.0).is_ok());
        let near = words(&[1.0, 2.0 + 1e-6]);
        assert!(floats("x", &near, &want, |_| 1e-5).is_ok());
        let fault = floats("x", &near, &want, |_| 1e-8);
        assert!(matches!(fault, Err(CaseFault::Mismatch { index: 1, .. })));
        let fault = floats("x", &[got[0], POISON], &want, |_| 1e9);
        assert!(matches!(fault, Err(CaseFault::Unwritten { index: 1, .. })));
        let fault = floats("x", &words(&[1.0, 2.0, 0.0]), &want, |_| 0.0);
        assert!(matches!(fault, Err(CaseFault::Touched { index: 2, .. })));
        let fault = floats("x", &words(&[f32::NAN, 2.0]), &want, |_| 1e9);
        assert!(matches!(fault, Err(CaseFault::Mismatch { index: 0, .. })));
    }

    #[test]
    fn integers_are_compared_exactly() {
        assert!(integers("x", &[1, -1, STALE], &[1, -1]).is_ok());
        let fault = integers("x", &[1, -1], &[1, 0]);
        assert!(matches!(fault, Err(CaseFault::Mismatch { index: 1, .. })));
        let fault = integers("x", &[1, STALE], &[1, STALE]);
        assert!(matches!(fault, Err(CaseFault::Unwritten { index: 1, .. })));
        let fault = integers("x", &[1], &[1, 2]);
        assert!(matches!(fault, Err(CaseFault::Unwritten { index: 1, .. })));
        let fault = integers("x", &[1, STALE, 0], &[1]);
        assert!(matches!(fault, Err(CaseFault::Touched { index: 2, .. })));
    }

    #[test]
    fn one_bit_is_a_difference() {
        let a = words(&[1.0, -0.0]);
        assert!(bits("x", &a, &a).is_ok());
        let fault = bits("x", &a, &words(&[1.0, 0.0]));
        assert!(matches!(fault, Err(CaseFault::Variant { index: 1, .. })));
        assert!(bits("x", &a, &a[..1]).is_err());
    }
}
