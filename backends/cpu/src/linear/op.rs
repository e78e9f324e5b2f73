//! The operation: several products of the same rows.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

use foretoken::Result;
use foretoken::device::{Activations, DeviceFault, Weight};
use foretoken::kernel::{KernelKey, Linear, LinearPart, RowSet};
use foretoken::tensor::DType;

use super::PackedWeight;
use super::dispatch::Kernels;
use super::layout::SUB;
use super::rows::{Record, Rows, row_bytes};
use super::share::Pieces;
use crate::device::CpuWeight;
use crate::memory::View;
use crate::ops::{Bind, Controls};
use crate::pool::{ChunkCounter, CpuKernel, Worker};
use crate::simd::Isa;

/// Bytes of panels that are multiplied by all tiles of rows before going on: they
/// should stay in a core's second-level cache meanwhile.
const RESIDENT: usize = 256 << 10;

/// Sub-blocks of rows that each worker converts for itself, which takes less time than
/// to meet at a barrier.
const ALONE: usize = 128;
/// Bytes of so many, in any form.
const OWN: usize = ALONE * SUB * size_of::<f32>();
/// Nanoseconds of work that are worth a claim.
const CLAIM: usize = 1000;

/// One product.
struct Part {
    /// Keeps the weight alive; a [`CpuWeight::Linear`].
    weight: Arc<dyn Any + Send + Sync>,
    out: View<f32>,
    accumulate: bool,
    /// Its panels among those of all parts.
    panels: Range<usize>,
}

/// One way in which the activations are converted.
struct Form {
    activations: Activations,
    kernels: Kernels,
    /// Where in the scratch memory the rows lie: at first [`OWN`] bytes for each worker,
    /// then all rows, shared.
    at: usize,
}

struct Kernel {
    control: Controls,
    set: RowSet,
    x: View<f32>,
    /// Rows of `x`, rows of the outputs, inputs.
    dims: [usize; 3],
    parts: Vec<Part>,
    forms: Vec<Form>,
    claims: ChunkCounter,
    /// Bytes of an average panel.
    panel_bytes: usize,
    dtype: DType,
    isa: Isa,
}

/// Checks the operands and reserves scratch memory for the converted rows.
pub(crate) fn prepare(bind: &Bind<'_>, op: &Linear) -> Result<Arc<dyn CpuKernel>> {
    let [rows, inputs] = bind.dims(&op.x, "x must be [M, K]")?;
    let first = op.parts.first().ok_or(bind.bad("there must be at least one part"))?;
    let [out_rows, _] = bind.dims(&first.out, "out must be [M, N]")?;
    let outputs: Vec<_> = op.parts.iter().map(|p| &p.out).collect();
    bind.apart(&outputs, &[&op.x, &op.control.0])?;

    let live = rows.min(out_rows);
    let (mut parts, mut forms) = (Vec::new(), Vec::<Form>::new());
    let (mut panels, mut bytes, mut scratch) = (0usize, 0usize, Some(0usize));
    for part in &op.parts {
        let weight = packed(bind, &part.weight)?;
        bind.ensure(weight.spec().cols == inputs, "x and a weight differ in width")?;
        let dims = bind.dims(&part.out, "out must be [M, N]")?;
        bind.ensure(dims == [out_rows, weight.spec().rows], "an output is not [M, N]")?;
        let activations = weight.activations();
        if !forms.iter().any(|form| form.activations == activations) {
            let at = scratch.unwrap_or(0);
            forms.push(Form { activations, kernels: weight.kernels(), at });
            let bytes = row_bytes(activations, inputs).checked_mul(live);
            let bytes = bytes.and_then(|b| b.checked_next_multiple_of(align_of::<Record>()));
            let bytes = bytes.and_then(|b| b.checked_add(bind.threads() * OWN));
            scratch = scratch.zip(bytes).and_then(|(at, bytes)| at.checked_add(bytes));
        }
        bytes += weight.bytes();
        let end = panels + weight.panels();
        parts.push(bound(bind, part, panels..end)?);
        panels = end;
    }
    bind.scratch(scratch)?;
    Ok(Arc::new(Kernel {
        control: bind.control(&op.control)?,
        set: op.rows,
        x: bind.view(&op.x)?,
        dims: [rows, out_rows, inputs],
        parts,
        forms,
        claims: ChunkCounter::new(),
        panel_bytes: bytes / panels.max(1),
        dtype: first.weight.spec.dtype,
        isa: bind.isa(),
    }))
}

fn packed<'w>(bind: &Bind<'_>, weight: &'w Weight) -> Result<&'w PackedWeight, DeviceFault> {
    match bind.weight(weight)? {
        CpuWeight::Linear(packed, _) => Ok(packed),
        CpuWeight::Table(..) => Err(bind.bad("a weight was loaded as an embedding table")),
    }
}

fn bound(bind: &Bind<'_>, part: &LinearPart, panels: Range<usize>) -> Result<Part, DeviceFault> {
    Ok(Part {
        weight: Arc::clone(part.weight.inner()),
        out: bind.view(&part.out)?,
        accumulate: part.accumulate,
        panels,
    })
}

impl CpuKernel for Kernel {
    fn run(&self, worker: &Worker<'_>) {
        let [in_rows, out_rows, inputs] = self.dims;
        let rows = self.control.row_set(worker, self.set, in_rows, out_rows);
        if rows.count == 0 {
            return;
        }
        let share = match rows.count * inputs.div_ceil(SUB) <= ALONE {
            true => None,
            false => Some((worker.index, worker.count)),
        };
        for form in &self.forms {
            let x = Rows {
                first: self.x.part(rows.first * inputs..self.x.len()).as_mut_ptr(),
                stride: inputs,
                rows: rows.count,
                k: inputs,
            };
            let (part, parts) = share.unwrap_or((0, 1));
            let out = self.converted(worker, form, rows.count, share.is_none());
            // SAFETY: rows inside `x`, which nobody writes; `converted` has room for all of
            // them; a worker converts all for itself or a part of its own for all.
            unsafe { (form.kernels.convert)(x, form.activations, out, part, parts) }
        }
        if share.is_some() {
            worker.barrier();
        }
        let panels = self.parts.last().map_or(0, |part| part.panels.end);
        // A core takes in about 100 bytes of weights a nanosecond, with every other row
        // costing as much again.
        let least = CLAIM * 200 / (self.panel_bytes * (rows.count + 1)).max(1);
        let pieces = Pieces::new(panels, worker.count, least);
        let multiply = |i| self.multiply(worker, pieces.piece(i), rows.count, share.is_none());
        if pieces.is_even() {
            multiply(worker.index);
        } else {
            self.claims.chunks(worker, pieces.count()).for_each(multiply);
        }
    }

    fn key(&self) -> KernelKey {
        KernelKey { op: "linear", dtype: self.dtype, regime: None, variant: self.isa.name() }
    }
}

impl Kernel {
    /// Where the rows converted to a form start, a worker's own or those shared; checked
    /// to hold `rows` rows.
    fn converted(&self, worker: &Worker<'_>, form: &Form, rows: usize, own: bool) -> *mut u8 {
        let bytes = row_bytes(form.activations, self.dims[2]) * rows;
        let at = form.at + OWN * if own { worker.index } else { worker.count };
        worker.scratch().part(at..at + bytes).as_mut_ptr()
    }

    /// Multiplies some panels of the parts laid end to end.
    fn multiply(&self, worker: &Worker<'_>, panels: Range<usize>, rows: usize, own: bool) {
        for part in &self.parts {
            let from = panels.start.max(part.panels.start);
            let to = panels.end.min(part.panels.end);
            let weight = part.weight.downcast_ref::<CpuWeight>();
            let Some(CpuWeight::Linear(weight, _)) = weight else { continue };
            let form = self.forms.iter().find(|f| f.activations == weight.activations());
            let (Some(form), true) = (form, from < to) else { continue };
            let acts = self.converted(worker, form, rows, own);
            let stride = weight.spec().rows;
            let out = part.out.part(0..rows * stride).as_mut_ptr();
            let step = weight.panels_in(RESIDENT);
            for first in (from..to).step_by(step) {
                let some = first - part.panels.start..(first + step).min(to) - part.panels.start;
                // SAFETY: the rows were converted to this form, by this worker or before the
                // barrier; a panel is one worker's and outputs do not overlap.
                unsafe { weight.run(some, acts, rows, out, stride, part.accumulate) }
            }
        }
    }
}
