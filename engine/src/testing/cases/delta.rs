//! Short convolution and gated delta rule.

use std::ops::Range;

use super::{ROWS, SPARE, WIDTHS};
use crate::device::Activations;
use crate::kernel::{GatedDelta, HeadMap, Regime, ShortConv};
use crate::testing::fault::CaseFault;
use crate::testing::reference::{Delta, gated_delta, short_conv};
use crate::testing::report::Runner;
use crate::testing::rig::Rig;

pub(in crate::testing) const EPS: f32 = 1e-6;
/// Key heads, value heads, dk, dv.
pub(super) const SHAPES: [Shape; 5] =
    [(2, 4, 128, 128), (2, 2, 64, 64), (1, 3, 32, 33), (3, 6, 17, 5), (1, 1, 16, 1)];

pub(super) fn all(run: &mut Runner<'_>) {
    for (i, &rows) in ROWS.iter().enumerate() {
        let (channels, width) = (WIDTHS[i], 2 + i % 3);
        let name = format!("short_conv/m={rows}/c={channels}/width={width}");
        run.case(name, |rig| conv(rig, rows, channels, width));
    }
    for (i, &rows) in ROWS.iter().enumerate() {
        let (shape, tiled) = (SHAPES[i % SHAPES.len()], i % 2 == 0);
        let map = if tiled { HeadMap::Tiled } else { HeadMap::Grouped };
        let regime = if rows > 64 { Regime::Prefill } else { Regime::Step };
        let name = format!("gated_delta/m={rows}/{shape:?}/{map:?}/{regime:?}");
        run.case(name, |rig| delta(rig, rows, shape, map, regime));
    }
    for regime in [Regime::Step, Regime::Prefill] {
        let name = format!("gated_delta/m=64/grouped heads/{regime:?}");
        run.case(name, |rig| delta(rig, 64, (2, 6, 128, 128), HeadMap::Grouped, regime));
    }
}

fn conv(rig: &mut Rig<'_>, rows: usize, channels: usize, width: usize) -> Result<(), CaseFault> {
    let (x, w) = (rig.rng.floats(rows * channels), rig.rng.floats(channels * width));
    let past = rig.rng.floats((width - 1) * channels);
    let op = ShortConv {
        control: rig.control([rows, 9, 0, 0])?,
        x: rig.f32("x", &[rows + SPARE, channels], &x)?,
        weight: rig.f32("weight", &[channels, width], &w)?,
        state: rig.f32("state", &[width - 1, channels], &past)?,
        tree: None,
        out: rig.blank("out", &[rows + SPARE, channels])?,
    };
    rig.launch(op.clone())?;
    let (want, state) = short_conv(&x, &w, &past, channels);
    // A sum of up to four products of size up to 64: some units of the largest.
    rig.expect("out", &op.out, &want, |i| 4e-6 * want[i].abs().max(8.0))?;
    let state: Vec<f64> = state.iter().map(|&x| f64::from(x)).collect();
    rig.expect("state", &op.state, &state, |_| 0.0)
}

/// Inputs of the delta rule, of the sizes a model gives them.
#[derive(Clone)]
pub(in crate::testing) struct Inputs {
    pub(in crate::testing) qkv: Vec<f32>,
    pub(in crate::testing) alpha: Vec<f32>,
    pub(in crate::testing) beta: Vec<f32>,
    pub(in crate::testing) a: Vec<f32>,
    pub(in crate::testing) dt_bias: Vec<f32>,
    pub(in crate::testing) state: Vec<f32>,
}

pub(in crate::testing) type Shape = (usize, usize, usize, usize);

impl Inputs {
    pub(in crate::testing) fn new(rig: &mut Rig<'_>, rows: usize, shape: Shape) -> Self {
        let (hk, hv, dk, dv) = shape;
        Self {
            qkv: rig.rng.floats(rows * (2 * hk * dk + hv * dv)),
            alpha: rig.rng.floats_between(rows * hv, -6.0, 6.0),
            beta: rig.rng.floats_between(rows * hv, -4.0, 4.0),
            a: rig.rng.floats_between(hv, -4.0, -0.01),
            dt_bias: rig.rng.floats_between(hv, -6.0, 2.0),
            state: rig.rng.floats_between(hv * dv * dk, -0.5, 0.5),
        }
    }

    /// The operands of the reference, for key heads, dk and dv.
    pub(in crate::testing) fn plain(
        &self,
        (key_heads, dk, dv): (usize, usize, usize),
        map: HeadMap,
    ) -> Delta<'_> {
        let Self { qkv, alpha, beta, a, dt_bias, .. } = self;
        Delta { qkv, alpha, beta, a, dt_bias, key_heads, dk, dv, map, eps: EPS }
    }

    /// The operation on the first `rows` rows of these inputs, from row `from` on.
    pub(in crate::testing) fn op(
        &self,
        rig: &mut Rig<'_>,
        shape: Shape,
        map: HeadMap,
        regime: Regime,
        range: Range<usize>,
    ) -> crate::Result<GatedDelta> {
        let capacity = range.len() + SPARE;
        self.op_of(rig, shape, map, regime, range, capacity)
    }

    /// The same, recorded for `capacity` rows.
    pub(in crate::testing) fn op_of(
        &self,
        rig: &mut Rig<'_>,
        (hk, hv, dk, dv): Shape,
        map: HeadMap,
        regime: Regime,
        range: Range<usize>,
        capacity: usize,
    ) -> crate::Result<GatedDelta> {
        let (rows, width) = (range.len(), 2 * hk * dk + hv * dv);
        let part = |x: &[f32], w: usize| x[range.start * w..range.end * w].to_vec();
        Ok(GatedDelta {
            control: rig.control([rows, 0, 0, 0])?,
            regime,
            activations: Activations::Fast,
            qkv: rig.f32("qkv", &[capacity, width], &part(&self.qkv, width))?,
            alpha: rig.f32("alpha", &[capacity, hv], &part(&self.alpha, hv))?,
            beta: rig.f32("beta", &[capacity, hv], &part(&self.beta, hv))?,
            a: rig.f32("a", &[hv], &self.a)?,
            dt_bias: rig.f32("dt_bias", &[hv], &self.dt_bias)?,
            state: rig.f32("state", &[hv, dv, dk], &self.state)?,
            tree: None,
            out: rig.blank("out", &[capacity, hv, dv])?,
            key_heads: hk,
            head_map: map,
            eps: EPS,
        })
    }
}

/// The tolerance of outputs and states. Values reach 8 and so does what is written to the
/// state; errors of the sums over dk decay with the state, so they do not build up over
/// the rows.
pub(super) fn close(want: &[f64]) -> impl Fn(usize) -> f64 {
    let size = want.iter().fold(0f64, |m, x| m.max(x.abs()));
    move |_| 1e-5 * size
}

/// The tolerance in prefill with fast activations, where products may be of numbers of 11 bits (binary16,
/// TF32): some units of 2^-12 of the largest number of the same class. Decays and
/// corrections keep errors of chunks from building up.
pub(super) fn prefill_close(
    want: &[f64],
    class_of: impl Fn(usize) -> usize,
) -> impl Fn(usize) -> f64 {
    let mut sizes: Vec<f64> = Vec::new();
    for (i, x) in want.iter().enumerate() {
        let class = class_of(i);
        if class >= sizes.len() {
            sizes.resize(class + 1, 0.0);
        }
        sizes[class] = sizes[class].max(x.abs());
    }
    move |i| 2e-3 * sizes[class_of(i)]
}

fn delta(
    rig: &mut Rig<'_>,
    rows: usize,
    shape: Shape,
    map: HeadMap,
    regime: Regime,
) -> Result<(), CaseFault> {
    let inputs = Inputs::new(rig, rows, shape);
    let op = inputs.op(rig, shape, map, regime, 0..rows)?;
    let op = GatedDelta { activations: Activations::F32, ..op };
    rig.launch(op.clone())?;
    let (key_heads, _, dk, dv) = shape;
    let mut state: Vec<f64> = inputs.state.iter().map(|&x| f64::from(x)).collect();
    let want = gated_delta(&inputs.plain((key_heads, dk, dv), map), &mut state);
    rig.expect("out", &op.out, &want, close(&want))?;
    rig.expect("state", &op.state, &state, close(&state))
}
