//! The device's clock.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::kernel::Stamp;
use crate::tensor::{DType, Tensor};
use crate::testing::fault::CaseFault;
use crate::testing::report::Runner;
use crate::testing::rig::Rig;

const SLOTS: usize = 5;

pub(super) fn all(run: &mut Runner<'_>) {
    run.case("stamp".into(), stamp);
}

/// All slots. They stay out of the digest: no two runs have the same.
fn slots(rig: &mut Rig<'_>, clock: &Tensor) -> crate::Result<Vec<i64>> {
    let bytes = rig.peek(clock)?;
    Ok(bytes.as_chunks().0.iter().map(|b| i64::from_le_bytes(*b)).collect())
}

fn stamp(rig: &mut Rig<'_>) -> Result<(), CaseFault> {
    let clock = rig.bytes("clock", DType::I64, &[SLOTS], &[])?;
    let stamp = |slot| Stamp { clock: clock.clone(), slot };
    let touched = |index| CaseFault::Touched { tensor: "clock", index };
    let earliest = Instant::now();
    rig.launch(stamp(2))?;
    let pause = Instant::now();
    let first = slots(rig, &clock)?;
    // Everything else is poison still, all ones.
    if let Some(index) = (0..SLOTS).find(|&slot| (slot == 2) != (first[slot] != -1)) {
        return Err(touched(index));
    }
    sleep(Duration::from_millis(30));
    let pause = pause.elapsed();
    rig.launch(stamp(0))?;
    let most = earliest.elapsed();
    let second = slots(rig, &clock)?;
    if second[1..] != first[1..] {
        return Err(touched(1));
    }
    // The unit is the nanosecond: the time between the two is at least the pause and
    // at most all of it. Clocks of devices may be coarse and drift a little.
    let (got, slack) = ((second[0] - second[2]) as f64, 2e6 + 0.01 * most.as_nanos() as f64);
    for (want, low) in [(pause, true), (most, false)] {
        let want = want.as_nanos() as f64;
        if if low { got < want - slack } else { got > want + slack } {
            return Err(CaseFault::Mismatch {
                tensor: "clock",
                index: 0,
                got,
                want,
                allowed: slack,
            });
        }
    }
    // It never goes back.
    let mut before = second[0];
    for round in 0..50 {
        let slot = 3 + round % 2;
        rig.launch(stamp(slot))?;
        let now = slots(rig, &clock)?[slot];
        if now < before {
            let (got, want) = (now as f64, before as f64);
            return Err(CaseFault::Mismatch {
                tensor: "clock",
                index: slot,
                got,
                want,
                allowed: 0.0,
            });
        }
        before = now;
    }
    rig.refuses(stamp(SLOTS), "there is no such slot")
}
