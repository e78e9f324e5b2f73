//! The linear operation: several products of the same rows.
//!
//! - `kernels`: the kernels for each weight type;
//! - `plan`: how sums and grids are cut up;
//! - `bricks`: steps of weights in bricks, several parts at once;
//! - `dense`: prompts on sm_90a; `dense_launch`: their launches.
//!
//! With fast activations the rows are packed once for each order that the parts want
//! (`linear_pack`), then multiplied on tensor cores: up to 64 rows of a step by a kernel that
//! streams weights, others by one that decodes them once for 128 rows, or on sm_90a, when
//! there are many, by one that multiplies weights decoded before. These two take a row's sums
//! in the same order. With f32 activations, and for F32 weights, `linear_f32` does it all.

mod bricks;
mod dense;
mod dense_launch;
mod kernels;
mod plan;

use std::sync::Arc;

use foretoken::device::{Activations, DeviceFault, WeightRole};
use foretoken::kernel::{KernelKey, Linear, LinearPart, Regime};

use self::kernels::{Mma, Order, mma, plain};
use self::plan::{
    PREFILL_THREADS, PREFILL_TILE, STEP_ROWS, Slices, StepShape, order, prefill_shared,
};
use super::{Bind, pack_threads, row_set};
use crate::device::CudaWeight;
use crate::launch::{CudaKernel, Launch, Scratch};
use crate::launch_fused::Packing;
use crate::memory::View;

type Checked<T> = Result<T, DeviceFault>;

/// What is the same for all parts.
struct Shared<'a> {
    bind: &'a Bind<'a>,
    control: View<i32>,
    set: u32,
    x: View<f32>,
    /// Rows of `x` and of the outputs.
    inputs: i32,
    outputs: i32,
    /// Rows there can be.
    live: usize,
    /// Rows that are packed, on tensor cores: those of the step kernels, or whole tiles of
    /// the prefill kernel.
    padded: usize,
    k: usize,
    route: Route,
}

/// Which kernels multiply on tensor cores. The regime and the rows that there can be decide
/// it; bits of a regime do not depend on it, but for steps of more than 64 rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    /// Few rows, as weights stream by.
    Step,
    /// Many rows, with weights decoded by each block.
    Prefill,
    /// Many rows, with weights decoded before.
    Dense,
}

/// One product.
struct Part {
    weight: Arc<CudaWeight>,
    out: View<f32>,
    accumulate: bool,
    /// On tensor cores; none with f32 activations.
    mma: Option<(Mma, Order, Slices)>,
}

/// Activations packed in one order, and where in the scratch memory.
struct Packed {
    order: Order,
    pairs: usize,
    at: usize,
    bytes: usize,
}

/// Packs the activations, then multiplies part by part.
pub(super) fn prepare(bind: &Bind<'_>, op: &Linear) -> Checked<CudaKernel> {
    let [inputs, k] = bind.dims(&op.x, "x must be [M, K]")?;
    let first = op.parts.first().ok_or(bind.bad("there must be at least one part"))?;
    let [outputs, _] = bind.dims(&first.out, "out must be [M, N]")?;
    let outs: Vec<_> = op.parts.iter().map(|part| &part.out).collect();
    bind.apart(&outs, &[&op.x, &op.control.0])?;
    let live = inputs.min(outputs);
    let route = match live {
        ..=STEP_ROWS if op.regime == Regime::Step => Route::Step,
        _ if dense::is_dense(bind.target(), live) => Route::Dense,
        _ => Route::Prefill,
    };
    let whole = if route == Route::Dense { dense::ROWS } else { PREFILL_TILE };
    let mut shared = Shared {
        bind,
        control: bind.control(&op.control)?,
        set: row_set(op.rows),
        x: bind.view(&op.x)?,
        inputs: bind.int(inputs)?,
        outputs: bind.int(outputs)?,
        live,
        padded: live.next_multiple_of(whole),
        k,
        route,
    };
    let parts = op.parts.iter().map(|part| shared.part(part, outputs));
    let parts = parts.collect::<Checked<Vec<_>>>()?;
    if shared.is_step() {
        // Parts share what is packed, so all take the widest kernel that one of them needs.
        let mma = parts.iter().filter_map(|part| part.mma.as_ref());
        let columns = mma.filter_map(|(mma, ..)| mma.columns(shared.live)).max();
        shared.padded = columns.unwrap_or(STEP_ROWS);
    }

    let (packed, planes_at, scratch) = shared.room(&parts)?;
    let mut launches = Vec::new();
    for packed in &packed {
        launches.push(match route {
            Route::Dense => shared.pack_dense(packed, &scratch)?,
            _ => shared.pack(packed, &scratch)?,
        });
    }
    for group in shared.groups(&parts) {
        launches.push(shared.step(&group, &packed, planes_at, &scratch)?);
    }
    for part in parts.iter().filter(|part| !shared.is_grouped(part)) {
        match part.mma {
            Some(_) if route == Route::Dense => {
                launches.extend(shared.multiply_dense(part, &packed, planes_at, &scratch)?);
            }
            Some(_) => launches.extend(shared.multiply(part, &packed, planes_at, &scratch)?),
            None => launches.push(shared.plain(part)?),
        }
    }
    let variant = match parts.iter().any(|part| part.mma.is_some()) {
        true => match route {
            Route::Step => "mma",
            Route::Prefill => "mma-prefill",
            Route::Dense => "wgmma",
        },
        false => "f32",
    };
    let dtype = first.weight.spec.dtype;
    let key = KernelKey { op: "linear", dtype, regime: Some(op.regime), variant };
    let packing = match &packed[..] {
        [only] if shared.is_step() => Some(shared.packing(op, only, &scratch)?),
        _ => None,
    };
    let weights = parts.into_iter().map(|part| part.weight).collect();
    Ok(bind.kernel(key, launches, weights)?.packing_first(packing))
}

impl Shared<'_> {
    fn is_step(&self) -> bool {
        self.route == Route::Step
    }

    /// Checks one part.
    fn part(&self, part: &LinearPart, rows: usize) -> Checked<Part> {
        let bind = self.bind;
        let weight = bind.weight(&part.weight)?;
        let spec = weight.spec;
        let linear = spec.role == WeightRole::Linear;
        bind.ensure(linear, "a weight was loaded as an embedding table")?;
        bind.ensure(spec.cols == self.k, "x and a weight differ in width")?;
        let dims = bind.dims(&part.out, "out must be [M, N]")?;
        bind.ensure(dims == [rows, spec.rows], "an output is not [M, N]")?;
        let mma = mma(spec.dtype).filter(|_| spec.activations == Activations::Fast);
        let mma = mma.map(|mma| {
            let slices = Slices::of(&mma, spec.rows, spec.cols);
            (mma, order(spec.dtype, bind.target()), slices)
        });
        Ok(Part { weight, out: bind.view(&part.out)?, accumulate: part.accumulate, mma })
    }

    /// Scratch memory: the packed activations, each with the factors of the rows behind,
    /// then the planes, or the decoded weight, of the part that has most. Returns where
    /// these begin, too.
    fn room(&self, parts: &[Part]) -> Checked<(Vec<Packed>, usize, Scratch)> {
        let (mut packed, mut planes) = (Vec::<Packed>::new(), Some(0usize));
        let mut end = Some(0usize);
        for part in parts {
            let Some((mma, order, slices)) = &part.mma else { continue };
            if !packed.iter().any(|packed| packed.order == *order) {
                let pairs = self.k.div_ceil(mma.unit) * mma.pairs;
                let bytes = pairs.checked_mul(self.padded * 64);
                let (at, bytes) = end
                    .zip(bytes)
                    .ok_or(self.bind.bad("the size of the scratch memory overflows"))?;
                packed.push(Packed { order: *order, pairs, at, bytes });
                let behind = bytes.checked_add(self.padded * size_of::<f32>());
                let next = behind.and_then(|bytes| at.checked_add(bytes));
                end = next.and_then(|next| next.checked_next_multiple_of(256));
            }
            if self.is_step() && !mma.bricks && slices.count > 1 {
                let rows = self.live * slices.count * size_of::<f32>();
                let bytes = rows.checked_mul(part.weight.spec.rows);
                planes = planes.zip(bytes).map(|(a, b)| a.max(b));
            }
            if self.route == Route::Dense {
                let bytes = self.dense(mma, part).bytes();
                planes = planes.zip(bytes).map(|(a, b)| a.max(b));
            }
        }
        for group in self.groups(parts) {
            planes = planes.zip(group.planes(self.padded)).map(|(a, b)| a.max(b));
        }
        let all = end.zip(planes).and_then(|(end, planes)| end.checked_add(planes));
        let scratch = self.bind.scratch(all)?;
        Ok((packed, end.unwrap_or(0), scratch))
    }

    /// Scratch memory from a place on.
    fn within(&self, scratch: &Scratch, at: usize) -> Checked<Scratch> {
        let bytes = scratch.0.len().saturating_sub(at);
        let part = self.bind.part(scratch.0.buffer(), at, bytes);
        Ok(Scratch(part.ok_or(self.bind.bad("the size of the scratch memory overflows"))?))
    }

    /// The parameters that every kernel begins with.
    fn launch(&self, launch: Launch) -> Launch {
        launch.arg(&self.control).arg(self.set).arg(self.inputs).arg(self.outputs)
    }

    /// Packs the activations in one order.
    fn pack(&self, packed: &Packed, scratch: &Scratch) -> Checked<Launch> {
        let bind = self.bind;
        let function = bind.function("linear", "linear_pack")?;
        let blocks = bind.blocks(self.padded, 1)?;
        let threads = pack_threads(self.k);
        Ok(self
            .launch(Launch::new(&function, [blocks, 1, 1], [threads, 1, 1]))
            .arg(&self.x)
            .arg(bind.int(self.k)?)
            .arg(packed.order as u32)
            .arg(bind.int(packed.pairs)?)
            .arg(bind.int(if self.is_step() { self.padded } else { PREFILL_TILE } / 8)?)
            .arg(&self.within(scratch, packed.at)?)
            .arg(&self.within(scratch, packed.at + packed.bytes)?))
    }

    /// What `pack` launches, for an operation before that can do it on its way.
    fn packing(&self, op: &Linear, packed: &Packed, scratch: &Scratch) -> Checked<Packing> {
        let bind = self.bind;
        Ok(Packing {
            x: self.x.address(),
            control: self.control.address(),
            rows: op.rows,
            padded: bind.blocks(self.padded, 1)?,
            order: packed.order as u32,
            pairs: bind.int(packed.pairs)?,
            tiles: bind.int(self.padded / 8)?,
            packed: self.within(scratch, packed.at)?,
            factors: self.within(scratch, packed.at + packed.bytes)?,
        })
    }

    /// A product on tensor cores, and the sum of its slices.
    fn multiply(
        &self,
        part: &Part,
        packed: &[Packed],
        planes_at: usize,
        scratch: &Scratch,
    ) -> Checked<Vec<Launch>> {
        let (bind, spec) = (self.bind, part.weight.spec);
        let bound = part.mma.as_ref().and_then(|(mma, order, slices)| {
            let packed = packed.iter().find(|packed| packed.order == *order)?;
            Some((mma, slices, packed))
        });
        let Some((mma, slices, packed)) = bound else { return Err(bind.unsupported(spec.dtype)) };
        let target = bind.target();
        let step = StepShape::of(mma, target);
        let (name, grid, threads, shared, slots) = if self.is_step() {
            let name = mma.step(self.padded).ok_or(bind.unsupported(spec.dtype))?.name;
            let features = bind.blocks(spec.rows, step.features)?;
            (name, [features, bind.blocks(slices.count, 1)?, 1], 128, step.shared, 0)
        } else {
            let most = bind.limits().shared_per_block as usize;
            let (shared, slots) = prefill_shared(mma, target, most);
            let rows = bind.blocks(self.live, PREFILL_TILE)?;
            let grid = [rows, bind.blocks(spec.rows, PREFILL_TILE)?, 1];
            (mma.prefill, grid, PREFILL_THREADS, shared, slots)
        };
        let function = bind.function(mma.family, name)?;
        let shared = u32::try_from(shared).map_err(|_| bind.unsupported(spec.dtype))?;
        let launch = self
            .launch(Launch::new(&function, grid, [threads, 1, 1]).shared(shared))
            .arg(&self.within(scratch, packed.at)?)
            .arg(&self.within(scratch, packed.at + packed.bytes)?)
            .arg(&part.weight.data)
            .arg(part.weight.row_bytes as u64)
            .arg(bind.int(spec.rows)?)
            .arg(bind.int(self.k)?)
            .arg(bind.int(slices.units)?)
            .arg(part.weight.scale)
            .arg(u32::from(part.accumulate))
            .arg(&part.out);
        if !self.is_step() {
            return Ok(vec![launch.arg(bind.int(slots)?)]);
        }
        if slices.count == 1 {
            return Ok(vec![launch.arg(None::<&View<f32>>)]);
        }
        let planes = self.within(scratch, planes_at)?;
        let function = bind.function("linear", "linear_sum")?;
        let grid = [bind.blocks(spec.rows, 256)?, bind.blocks(self.live, 1)?, 1];
        let sum = self
            .launch(Launch::new(&function, grid, [256, 1, 1]))
            .arg(&planes)
            .arg(&self.within(scratch, packed.at + packed.bytes)?)
            .arg(bind.int(slices.count)?)
            .arg(bind.int(spec.rows)?)
            .arg(part.weight.scale)
            .arg(u32::from(part.accumulate))
            .arg(&part.out);
        Ok(vec![launch.arg(&planes), sum])
    }

    /// A product in f32.
    fn plain(&self, part: &Part) -> Checked<Launch> {
        let (bind, spec) = (self.bind, part.weight.spec);
        let name = plain(spec.dtype).ok_or(bind.unsupported(spec.dtype))?;
        let function = bind.function("linear_f32", name)?;
        let grid = [bind.blocks(spec.rows, 2)?, bind.blocks(self.live, 8)?, 1];
        Ok(self
            .launch(Launch::new(&function, grid, [128, 1, 1]))
            .arg(&self.x)
            .arg(&part.weight.data)
            .arg(part.weight.row_bytes as u64)
            .arg(bind.int(spec.rows)?)
            .arg(bind.int(self.k)?)
            .arg(part.weight.scale)
            .arg(u32::from(part.accumulate))
            .arg(&part.out))
    }
}
