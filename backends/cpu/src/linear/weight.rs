//! A weight in the form that the kernels read.

use foretoken::Result;
use foretoken::device::{Activations, DeviceFault, HostTensor, WeightSpec};
use foretoken::tensor::DType;
use memmap2::{Mmap, MmapMut};

use super::dispatch::{self, Kernels};
use super::kernel::Job;
use super::layout::{Layout, PANEL, SUB};
use super::pack::{self, Source};
use super::rows::{Record, Rows, row_bytes};
use crate::simd::Isa;

/// A weight packed into panels of 16 output rows, bound to the kernels of one
/// instruction set.
pub struct PackedWeight {
    spec: WeightSpec,
    scale: f32,
    kernels: Kernels,
    panel_bytes: usize,
    data: Mmap,
}

/// Sizes of a packed weight.
struct Sizes {
    row_bytes: usize,
    panel_bytes: usize,
    bytes: usize,
}

impl Sizes {
    fn of(spec: &WeightSpec) -> Result<Self, DeviceFault> {
        let bad = |detail| DeviceFault::BadOperands { op: "linear", detail };
        let WeightSpec { dtype, rows, cols, .. } = *spec;
        let layout = Layout::of(dtype);
        if layout.is_none() && !matches!(dtype, DType::F32 | DType::F16 | DType::BF16) {
            let arch = std::env::consts::ARCH.to_owned();
            return Err(DeviceFault::Unsupported { op: "linear", dtype, arch });
        }
        if rows == 0 || cols == 0 {
            return Err(bad("a weight without rows or columns"));
        }
        let overflow = || bad("the size of a weight overflows");
        let row_bytes = dtype.bytes_for(cols).ok_or(bad("a row is not whole blocks"))?;
        let panel_bytes = match layout {
            Some(layout) => layout.panel_bytes(cols / SUB),
            None => row_bytes.checked_mul(PANEL),
        };
        let panel_bytes = panel_bytes.ok_or_else(overflow)?;
        let bytes = rows.div_ceil(PANEL).checked_mul(panel_bytes).ok_or_else(overflow)?;
        row_bytes.checked_mul(rows).ok_or_else(overflow)?;
        Ok(Self { row_bytes, panel_bytes, bytes })
    }
}

impl PackedWeight {
    /// Bytes that [`pack`](Self::pack) will take.
    ///
    /// # Errors
    /// `Unsupported` for a type without kernels, `BadOperands` for a shape that is
    /// empty, not whole blocks, or too large.
    pub fn bytes_for(spec: &WeightSpec) -> Result<u64> {
        Ok(Sizes::of(spec)?.bytes as u64)
    }

    /// Packs a weight for the kernels of `isa`, on several threads when it is large.
    ///
    /// # Errors
    /// Those of [`bytes_for`](Self::bytes_for); `BadOperands` when `host` is not what
    /// `spec` says; `Unsupported` when the machine lacks `isa`; `OutOfMemory`.
    pub fn pack(host: &HostTensor, spec: &WeightSpec, isa: Isa) -> Result<Self> {
        let bad = |detail| DeviceFault::BadOperands { op: "linear", detail };
        let sizes = Sizes::of(spec)?;
        if (host.dtype, host.rows, host.cols) != (spec.dtype, spec.rows, spec.cols) {
            return Err(bad("the tensor's type or shape is not the planned one").into());
        }
        if host.bytes.len() != sizes.row_bytes * spec.rows {
            return Err(bad("the tensor's bytes do not match its type and shape").into());
        }
        let kernels = dispatch::kernels(spec.dtype, spec.activations, isa).ok_or_else(|| {
            let arch = format!("{} without {isa}", std::env::consts::ARCH);
            DeviceFault::Unsupported { op: "linear", dtype: spec.dtype, arch }
        })?;
        let mut data = zeroed(sizes.bytes)?;
        let source = Source {
            dtype: spec.dtype,
            bytes: &host.bytes,
            row_bytes: sizes.row_bytes,
            cols: spec.cols,
        };
        pack::pack(source, &mut data, sizes.panel_bytes)?;
        let data = data.make_read_only().map_err(|_| out_of_memory(sizes.bytes))?;
        let panel_bytes = sizes.panel_bytes;
        Ok(Self { spec: *spec, scale: host.scale, kernels, panel_bytes, data })
    }

    /// What was packed.
    pub fn spec(&self) -> &WeightSpec {
        &self.spec
    }

    /// Bytes it takes.
    pub fn bytes(&self) -> usize {
        self.data.len()
    }

    /// How activations must be converted for it.
    pub(crate) fn activations(&self) -> Activations {
        dispatch::activations_for(self.spec.dtype, self.spec.activations)
    }

    pub(super) fn kernels(&self) -> Kernels {
        self.kernels
    }

    /// Number of panels.
    pub(super) fn panels(&self) -> usize {
        self.spec.rows.div_ceil(PANEL)
    }

    /// How many panels fit in so many bytes, at least one.
    pub(super) fn panels_in(&self, bytes: usize) -> usize {
        (bytes / self.panel_bytes).max(1)
    }

    /// Multiplies `rows` converted rows by panels `from..to`.
    ///
    /// # Safety
    /// `acts` holds `rows` rows converted by this weight's kernels, and `out` is valid
    /// for `rows` rows of all output features, `stride` apart; no other thread touches
    /// the features of these panels.
    pub(super) unsafe fn run(
        &self,
        panels: std::ops::Range<usize>,
        acts: *const u8,
        rows: usize,
        out: *mut f32,
        stride: usize,
        accumulate: bool,
    ) {
        let panels = panels.start.min(self.panels())..panels.end.min(self.panels());
        let first = panels.start * PANEL;
        let end = self.spec.rows.min(panels.end * PANEL);
        if rows == 0 || first >= end {
            return;
        }
        // SAFETY: panels inside the weight, features inside an output row; the kernels
        // were chosen for an instruction set that this machine has.
        unsafe {
            let job = Job {
                panels: self.data.as_ptr().add(panels.start * self.panel_bytes),
                panel_bytes: self.panel_bytes,
                layout: Layout::of(self.spec.dtype),
                k: self.spec.cols,
                acts,
                row_bytes: row_bytes(self.activations(), self.spec.cols),
                rows,
                out: out.add(first),
                out_stride: stride,
                features: end - first,
                scale: self.scale,
                accumulate,
            };
            (self.kernels.run)(&job);
        }
    }

    /// `out = x W^T` on the calling thread: `x` is `[M, cols]`, `out` `[M, rows]`. For
    /// tests and measurements; `scratch` is grown to what is needed and may be reused.
    ///
    /// # Errors
    /// `BadOperands` when the lengths are not those of one M.
    pub fn multiply(&self, x: &[f32], out: &mut [f32], scratch: &mut Scratch) -> Result<()> {
        let bad = |detail| DeviceFault::BadOperands { op: "linear", detail };
        let WeightSpec { rows: n, cols: k, .. } = self.spec;
        let rows = x.len() / k;
        if x.len() != rows * k || out.len() != rows * n {
            return Err(bad("the lengths are not whole rows").into());
        }
        let bytes = rows * row_bytes(self.activations(), k);
        scratch.0.resize(bytes.div_ceil(size_of::<Record>()), Record::default());
        let acts = scratch.0.as_mut_ptr().cast::<u8>();
        let from = Rows { first: x.as_ptr(), stride: k, rows, k };
        // SAFETY: `x` and `out` are as long as the shapes say, `scratch` as the converted
        // rows; this thread is alone.
        unsafe {
            (self.kernels.convert)(from, self.activations(), acts, 0, 1);
            self.run(0..self.panels(), acts, rows, out.as_mut_ptr(), n, false);
        }
        Ok(())
    }
}

/// Converted activations of [`PackedWeight::multiply`].
#[derive(Default)]
pub struct Scratch(Vec<Record>);

fn out_of_memory(bytes: usize) -> DeviceFault {
    DeviceFault::OutOfMemory {
        device: "cpu".to_owned(),
        what: "a packed weight".to_owned(),
        asked: bytes as u64,
        free: 0,
    }
}

/// Zeroed memory, in large pages where the system has them.
fn zeroed(bytes: usize) -> Result<MmapMut, DeviceFault> {
    let data = MmapMut::map_anon(bytes).map_err(|_| out_of_memory(bytes))?;
    #[cfg(target_os = "linux")]
    if let Err(e) = data.advise(memmap2::Advice::HugePage) {
        tracing::debug!(error = %e, "no large pages for a weight");
    }
    Ok(data)
}
