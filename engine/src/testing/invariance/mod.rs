//! A row's bits must not depend on its company.
//!
//! In a step, each row computed alone must have the bits it has among 2 to 64 rows;
//! in prefill, outputs and state must be the same for every chunk size on the grid.
//! Both checks are also run on a sum that does depend on the row count: they must
//! notice. `attention_masks` does the same for token trees, whose rows must have the
//! bits of a plain sequence, and for windows; `linear` looks at recorded capacities, too.

mod attention_masks;
mod linear;

use std::ops::Range;

use crate::kernel::{
    Attention, AttentionMask, GatedDelta, HeadMap, KvPair, Regime, RmsNorm, RowSet, ShortConv, TopK,
};
use crate::sample::SamplingParams;
use crate::tensor::DType;
use crate::testing::cases::attention::{CACHES, stored};
use crate::testing::cases::delta::{EPS, Inputs};
use crate::testing::cases::sample::draw;
use crate::testing::compare;
use crate::testing::fault::CaseFault;
use crate::testing::report::Runner;
use crate::testing::rig::Rig;

/// Row counts around which a driver may switch kernels.
const COMPANY: [usize; 9] = [2, 3, 4, 8, 9, 16, 17, 33, 64];
/// Chunk sizes on the 64-token grid; the last holds the whole prompt.
const CHUNKS: [usize; 4] = [64, 128, 192, 256];
/// Tokens of the prompt: whole chunks and a partial one.
const PROMPT: usize = 230;

type Bits = Result<Vec<u32>, CaseFault>;

pub(super) fn all(run: &mut Runner<'_>) {
    linear::all(run);
    run.case("invariance/rms_norm".into(), rms_norm);
    run.case("invariance/top_k".into(), top_k);
    run.case("invariance/sample".into(), sample);
    for dtype in CACHES {
        for heads in HEADS {
            let name = format!("invariance/attention/step/{dtype}/{heads:?}");
            run.case(name, |rig| step_attention(rig, dtype, heads));
            let name = format!("invariance/attention/prefill/{dtype}/{heads:?}");
            run.case(name, |rig| prefill_attention(rig, dtype, heads));
        }
    }
    for map in [HeadMap::Grouped, HeadMap::Tiled] {
        run.case(format!("invariance/gated_delta/step/{map:?}"), |rig| step_delta(rig, map));
        let name = format!("invariance/gated_delta/prefill/{map:?}");
        run.case(name, |rig| prefill_delta(rig, map));
    }
    run.case("invariance/short_conv/step".into(), |rig| conv(rig, &[1, 2, 5, 17, 64]));
    run.case("invariance/short_conv/prefill".into(), |rig| conv(rig, &CHUNKS));
    attention_masks::all(run);
    run.case("invariance/negative control/step".into(), |_| blind_step());
    run.case("invariance/negative control/prefill".into(), |_| blind_prefill());
}

/// Runs rows `0..64` alone and in calls of every size of [`COMPANY`]. `call` computes
/// the given rows in one call.
fn by_company(
    tensor: &'static str,
    mut call: impl FnMut(Range<usize>) -> Bits,
) -> Result<(), CaseFault> {
    let mut alone = Vec::new();
    for row in 0..64 {
        alone.push(call(row..row + 1)?);
    }
    for size in COMPANY {
        // From the front, and from further on, so that a row's place changes too.
        for first in [0, 64 - size] {
            let want = alone[first..first + size].concat();
            compare::bits(tensor, &want, &call(first..first + size)?)?;
        }
    }
    Ok(())
}

/// Runs a prompt in chunks of every given size. `chunk` computes the given rows,
/// carrying state from call to call; it is told to start over at row 0.
fn by_chunks(
    tensor: &'static str,
    sizes: &[usize],
    rows: usize,
    mut chunk: impl FnMut(Range<usize>) -> Bits,
) -> Result<(), CaseFault> {
    let mut first: Option<Vec<u32>> = None;
    for &size in sizes {
        let mut all = Vec::new();
        for start in (0..rows).step_by(size) {
            all.extend(chunk(start..rows.min(start + size))?);
        }
        match &first {
            Some(first) => compare::bits(tensor, first, &all)?,
            None => first = Some(all),
        }
    }
    Ok(())
}

fn live(rig: &mut Rig<'_>, tensor: &crate::tensor::Tensor, elements: usize) -> Bits {
    let mut words = rig.words(tensor)?;
    words.truncate(elements);
    Ok(words)
}

fn rms_norm(rig: &mut Rig<'_>) -> Result<(), CaseFault> {
    let d = 1000;
    let (x, w) = (rig.rng.floats(64 * d), rig.rng.floats(d));
    by_company("out", |rows| {
        let op = RmsNorm {
            control: rig.control([rows.len(), 0, 0, 0])?,
            rows: RowSet::All,
            x: rig.f32("x", &[64, d], &x[rows.start * d..rows.end * d])?,
            weight: rig.f32("weight", &[d], &w)?,
            eps: EPS,
            out: rig.blank("out", &[64, d])?,
        };
        rig.launch(op.clone())?;
        live(rig, &op.out, rows.len() * d)
    })
}

fn top_k(rig: &mut Rig<'_>) -> Result<(), CaseFault> {
    let v = 5000;
    let logits = rig.rng.floats_between(64 * v, -20.0, 20.0);
    by_company("log_sum_exp", |rows| {
        let sum = rig.blank("log_sum_exp", &[64])?;
        let op = TopK {
            control: rig.control([rows.len(), 0, 0, rows.len()])?,
            logits: rig.f32("logits", &[64, v], &logits[rows.start * v..rows.end * v])?,
            k: 2,
            ids: rig.i32("ids", &[64, 2], &[])?,
            values: rig.blank("values", &[64, 2])?,
            log_sum_exp: Some(sum.clone()),
        };
        rig.launch(op)?;
        live(rig, &sum, rows.len())
    })
}

/// Query heads, key-value heads, head_dim.
type Heads = (usize, usize, usize);

/// Sizes that a driver may have different kernels for.
const HEADS: [Heads; 4] = [(6, 2, 32), (2, 2, 64), (3, 1, 128), (6, 1, 256)];

/// Each row keeps its position, so that it draws the same number wherever it lies.
fn sample(rig: &mut Rig<'_>) -> Result<(), CaseFault> {
    let v = 3000;
    let logits = rig.rng.floats_between(64 * v, -3.0, 3.0);
    let params = SamplingParams { temperature: 1.3, seed: 7, ..SamplingParams::default() };
    by_company("choices", |rows| {
        let positions: Vec<i32> = rows.clone().map(|row| row as i32).collect();
        let count = rows.len();
        let part = &logits[rows.start * v..rows.end * v];
        let (_, choices) = draw(rig, part, &positions, 64, 0, &params)?;
        live(rig, &choices, count)
    })
}

/// Caches, queries and the call both attention checks share.
struct Attend {
    heads: Heads,
    cache: KvPair,
    q: Vec<f32>,
    committed: usize,
    regime: Regime,
}

impl Attend {
    fn new(
        rig: &mut Rig<'_>,
        dtype: DType,
        heads: Heads,
        (rows, committed): (usize, usize),
        regime: Regime,
    ) -> crate::Result<Self> {
        let (hq, kv, d) = heads;
        let slots = committed + rows;
        let mut tensor = |name| {
            let bytes = stored(dtype, &rig.rng.floats(slots * kv * d)).1;
            rig.bytes(name, dtype, &[slots, kv, d], &bytes)
        };
        let cache = KvPair { k: tensor("k cache")?, v: tensor("v cache")? };
        Ok(Self { heads, cache, q: rig.rng.floats(rows * hq * d), committed, regime })
    }

    fn call(&self, rig: &mut Rig<'_>, rows: Range<usize>) -> Bits {
        let (hq, _, d) = self.heads;
        let n = hq * d;
        let op = Attention {
            control: rig.control([rows.len(), self.committed + rows.start, 0, 0])?,
            regime: self.regime,
            mask: AttentionMask::Causal,
            q: rig.f32("q", &[rows.len(), hq, d], &self.q[rows.start * n..rows.end * n])?,
            cache: self.cache.clone(),
            scale: 0.125,
            out: rig.blank("out", &[rows.len(), hq, d])?,
        };
        rig.launch(op.clone())?;
        live(rig, &op.out, rows.len() * n)
    }
}

fn step_attention(rig: &mut Rig<'_>, dtype: DType, heads: Heads) -> Result<(), CaseFault> {
    // The rows cross split boundaries, at slots 128 and 256.
    for committed in [100, 230] {
        let attend = Attend::new(rig, dtype, heads, (64, committed), Regime::Step)?;
        by_company("out", |rows| attend.call(rig, rows))?;
    }
    Ok(())
}

fn prefill_attention(rig: &mut Rig<'_>, dtype: DType, heads: Heads) -> Result<(), CaseFault> {
    let attend = Attend::new(rig, dtype, heads, (PROMPT, 0), Regime::Prefill)?;
    by_chunks("out", &CHUNKS, PROMPT, |rows| attend.call(rig, rows))
}

/// Runs one call of the delta rule on state that the caller keeps.
fn delta_call(
    rig: &mut Rig<'_>,
    (inputs, state): (&Inputs, &mut Vec<u32>),
    map: HeadMap,
    regime: Regime,
    rows: Range<usize>,
) -> Bits {
    let shape = (2, 4, 64, 48);
    if rows.start == 0 {
        *state = compare::words(&inputs.state);
    }
    let carried = state.iter().map(|&x| f32::from_bits(x)).collect();
    let last = Inputs { state: carried, ..inputs.clone() };
    let op: GatedDelta = last.op(rig, shape, map, regime, rows.clone())?;
    rig.launch(op.clone())?;
    *state = rig.words(&op.state)?;
    live(rig, &op.out, rows.len() * 4 * 48)
}

fn step_delta(rig: &mut Rig<'_>, map: HeadMap) -> Result<(), CaseFault> {
    let inputs = Inputs::new(rig, 64, (2, 4, 64, 48));
    delta_chunks(rig, &inputs, map, Regime::Step, &[1, 2, 3, 7, 16, 33, 64], 64)
}

fn prefill_delta(rig: &mut Rig<'_>, map: HeadMap) -> Result<(), CaseFault> {
    let inputs = Inputs::new(rig, PROMPT, (2, 4, 64, 48));
    delta_chunks(rig, &inputs, map, Regime::Prefill, &CHUNKS, PROMPT)
}

/// Outputs and, at the end, the state.
fn delta_chunks(
    rig: &mut Rig<'_>,
    inputs: &Inputs,
    map: HeadMap,
    regime: Regime,
    sizes: &[usize],
    rows: usize,
) -> Result<(), CaseFault> {
    let mut state = Vec::new();
    by_chunks("out and state", sizes, rows, |part| {
        let end = part.end == rows;
        let mut out = delta_call(rig, (inputs, &mut state), map, regime, part)?;
        if end {
            out.extend(&state);
        }
        Ok(out)
    })
}

fn conv(rig: &mut Rig<'_>, sizes: &[usize]) -> Result<(), CaseFault> {
    let (c, width) = (70, 4);
    let rows = if sizes[0] == 1 { 64 } else { PROMPT };
    let (x, w) = (rig.rng.floats(rows * c), rig.rng.floats(c * width));
    let past = rig.rng.floats((width - 1) * c);
    let mut state = Vec::new();
    by_chunks("out and state", sizes, rows, |part| {
        if part.start == 0 {
            state.clone_from(&past);
        }
        let op = ShortConv {
            control: rig.control([part.len(), part.start, 0, 0])?,
            x: rig.f32("x", &[part.len(), c], &x[part.start * c..part.end * c])?,
            weight: rig.f32("weight", &[c, width], &w)?,
            state: rig.f32("state", &[width - 1, c], &state)?,
            tree: None,
            out: rig.blank("out", &[part.len(), c])?,
        };
        rig.launch(op.clone())?;
        let words = rig.words(&op.state)?;
        state = words.iter().map(|&x| f32::from_bits(x)).collect();
        let mut out = live(rig, &op.out, part.len() * c)?;
        if part.end == rows {
            out.extend(words);
        }
        Ok(out)
    })
}

/// Sums of rows in an order that depends on how many there are: what a kernel that
/// splits the sum by the row count would do.
fn crooked(rows: Range<usize>) -> Bits {
    let parts = rows.len().clamp(1, 7);
    let sum = |row: usize| {
        let x = |i: usize| 1.0 / (1 + i + row) as f32;
        let part = |p: usize| (p..1000).step_by(parts).map(x).sum::<f32>();
        (0..parts).map(part).sum::<f32>().to_bits()
    };
    Ok(rows.map(sum).collect())
}

fn blind_step() -> Result<(), CaseFault> {
    match by_company("control", crooked) {
        Err(CaseFault::Variant { .. }) => Ok(()),
        _ => Err(CaseFault::Blind("a sum whose order depends on the row count")),
    }
}

fn blind_prefill() -> Result<(), CaseFault> {
    // One sum per token, in as many parts as the chunk has blocks of 64.
    let chunk = |rows: Range<usize>| {
        let blocks = rows.len().div_ceil(64);
        let sum = |row| crooked(row..row + blocks).map(|sums| sums[0]);
        rows.map(sum).collect::<Bits>()
    };
    match by_chunks("control", &CHUNKS, PROMPT, chunk) {
        Err(CaseFault::Variant { .. }) => Ok(()),
        _ => Err(CaseFault::Blind("a sum whose order depends on the chunk size")),
    }
}
