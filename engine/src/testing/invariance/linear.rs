//! Linear operations: neither the rows of a call nor those it was recorded for decide the
//! bits of a row: from 1 to 64 rows of a step, and for any chunk of a prompt.

use super::{Bits, by_company, live};
use crate::device::{Activations, Weight, WeightRole};
use crate::kernel::{Linear, LinearPart, Regime, RowSet};
use crate::tensor::DType;
use crate::testing::cases::linear::MODES;
use crate::testing::compare;
use crate::testing::fault::CaseFault;
use crate::testing::report::Runner;
use crate::testing::rig::Rig;

/// Capacities around which a driver may switch kernels; the last is the reference.
const STEPS: [usize; 11] = [1, 2, 8, 9, 16, 17, 24, 32, 33, 48, 64];

/// The same for prompts.
const CHUNKS: [usize; 9] = [1, 17, 64, 65, 127, 128, 129, 200, 257];

pub(super) fn all(run: &mut Runner<'_>) {
    for dtype in [DType::Q4_K, DType::Q6_K, DType::Q8_0, DType::F16, DType::F32] {
        for mode in MODES {
            let name = format!("invariance/linear/{dtype}/{mode:?}");
            run.case(name, |rig| company(rig, dtype, mode));
        }
    }
    let most = [DType::Q4_0, DType::Q4_K, DType::Q5_K, DType::Q6_K, DType::Q8_0];
    for dtype in most.into_iter().chain([DType::F16, DType::BF16, DType::F32]) {
        for mode in MODES {
            for (regime, capacities) in [(Regime::Step, &STEPS[..]), (Regime::Prefill, &CHUNKS)] {
                let name = format!("invariance/linear/capacity/{regime:?}/{dtype}/{mode:?}");
                run.case(name, |rig| capacity(rig, dtype, mode, regime, capacities));
            }
        }
    }
}

/// Multiplies some rows in a call recorded for `capacity`.
fn call(rig: &mut Rig<'_>, regime: Regime, weight: &Weight, x: &[f32], capacity: usize) -> Bits {
    let (n, k) = (weight.spec.rows, weight.spec.cols);
    let count = x.len() / k;
    let out = rig.blank("out", &[capacity, n])?;
    let part = LinearPart { weight: weight.clone(), out: out.clone(), accumulate: false };
    let op = Linear {
        control: rig.control([count, 0, 0, 0])?,
        regime,
        rows: RowSet::All,
        x: rig.f32("x", &[capacity, k], x)?,
        parts: vec![part],
    };
    rig.launch(op)?;
    live(rig, &out, count * n)
}

fn company(rig: &mut Rig<'_>, dtype: DType, mode: Activations) -> Result<(), CaseFault> {
    let (n, k) = (49, 512);
    let x = rig.rng.floats(64 * k);
    let (weight, _) = rig.weight(dtype, n, k, WeightRole::Linear, mode, 1.0)?;
    by_company("out", |rows| call(rig, Regime::Step, &weight, &x[rows.start * k..rows.end * k], 64))
}

/// Long enough sums that they may be split.
fn capacity(
    rig: &mut Rig<'_>,
    dtype: DType,
    mode: Activations,
    regime: Regime,
    capacities: &[usize],
) -> Result<(), CaseFault> {
    let (n, k, most) = (145, 1536, capacities.iter().copied().max().unwrap_or(1));
    let x = rig.rng.floats(most * k);
    let (weight, _) = rig.weight(dtype, n, k, WeightRole::Linear, mode, 1.0)?;
    let all = call(rig, regime, &weight, &x, most)?;
    for &capacity in capacities {
        // The last rows there are, so that their places change, and one fewer than fit.
        for count in [capacity, (capacity - 1).max(1)] {
            let got = call(rig, regime, &weight, &x[(most - count) * k..], capacity)?;
            compare::bits("out", &all[(most - count) * n..], &got)?;
        }
    }
    Ok(())
}
