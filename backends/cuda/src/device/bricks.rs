//! Weights in bricks: 16 rows by a unit of inputs (`brick.cuh` of the kernels).

use std::sync::Arc;

use foretoken::Result;
use foretoken::device::{Activations, Buffer, DeviceFault, WeightRole, WeightSpec};
use foretoken::kernel::KernelKey;
use foretoken::tensor::DType;

use super::{Core, Entered, Queue, Target};
use crate::launch::{CudaKernel, Launch};
use crate::memory::{View, address_of};

/// Rows of a brick.
const ROWS: usize = 16;

/// Stored bytes that are repacked at once: what a load needs beside the weights.
const ROOM: usize = 32 << 20;

/// How bricks of one weight type are made and sized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bricks {
    /// Inputs of a brick.
    pub(crate) unit: usize,
    /// Bytes of a brick.
    pub(crate) bytes: usize,
    repack: &'static str,
    limits: Option<(&'static str, Range)>,
}

/// What a matrix's factors are scaled by to fill the range of f16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    /// The largest scale may reach `2^scale`, an offset `2^(scale - 2)`.
    scale: i32,
    /// Values come out times `2^-shift`, as codes are subnormal numbers.
    shift: i32,
}

impl Bricks {
    /// Of weights that the step kernels take in bricks; none for others.
    pub(crate) fn of(spec: &WeightSpec, target: Target) -> Option<Self> {
        if spec.role != WeightRole::Linear || spec.activations != Activations::Fast {
            return None;
        }
        let codes = Range { scale: 15, shift: 22 };
        let of = |unit, bytes, repack, limits| Some(Self { unit, bytes, repack, limits });
        match spec.dtype {
            DType::Q4_K => of(256, 2304, "linear_repack_q4_k", Some(("linear_limits_q4_k", codes))),
            DType::Q5_K => of(256, 2816, "linear_repack_q5_k", Some(("linear_limits_q5_k", codes))),
            DType::Q6_K => of(256, 3360, "linear_repack_q6_k", Some(("linear_limits_q6_k", codes))),
            DType::Q8_0 => {
                let range = Range { scale: 7, shift: 0 };
                of(256, 4352, "linear_repack_q8_0", Some(("linear_limits_q8_0", range)))
            }
            DType::F16 => of(128, 4096, "linear_repack_f16", None),
            // Without bfloat16 products the values become f16.
            DType::BF16 => {
                let range = Range { scale: 15, shift: 0 };
                let limits = Some(("linear_limits_bf16", range)).filter(|_| target.number < 80);
                of(128, 4096, "linear_repack_bf16", limits)
            }
            _ => None,
        }
    }

    /// Bricks of 16 rows.
    pub(crate) fn units(&self, cols: usize) -> usize {
        cols.div_ceil(self.unit)
    }

    /// Bytes of a matrix, never fewer than it has stored.
    pub(crate) fn size(&self, spec: &WeightSpec) -> Option<usize> {
        let tiles = spec.rows.div_ceil(ROWS);
        tiles.checked_mul(self.units(spec.cols))?.checked_mul(self.bytes)
    }

    /// Turns a buffer of the matrix's size that begins with the stored rows into bricks.
    /// Returns the factor that products with them need.
    pub(crate) fn repack(&self, core: &Arc<Core>, spec: &WeightSpec, data: &Buffer) -> Result<f32> {
        let bad = |detail| DeviceFault::BadOperands { op: "load_weight", detail };
        let overflow = || bad("the size overflows");
        let stored = spec.dtype.bytes_for(spec.cols).ok_or(overflow())?;
        let tile = self.units(spec.cols) * self.bytes;
        let queue = Arc::new(Queue::new(&core.context)?);
        let work = Work { core, spec, queue: &queue, stored };
        let (up, scale) = match self.limits {
            None => (1.0, 1.0),
            Some((name, range)) => {
                range.fit(work.limits(name, data)?).ok_or(bad("a weight is not a finite number"))?
            }
        };
        let tiles = spec.rows.div_ceil(ROWS);
        let at_once = (ROOM / (ROWS * stored)).max(1);
        let room = core.buffer(at_once.min(tiles) * ROWS * stored, "repacking weights")?;
        // From the end: bricks may take more bytes than rows do, and must not cover rows
        // that are still to come.
        for first in (0..tiles).step_by(at_once).rev() {
            let rows = first * ROWS..((first + at_once) * ROWS).min(spec.rows);
            let bytes = rows.len() * stored;
            let from = address_of(data).ok_or(overflow())? + (rows.start * stored) as u64;
            let to = address_of(&room).ok_or(overflow())?;
            let entered = core.context.enter()?;
            queue.copy(&entered, to, from, bytes)?;
            drop(entered);
            let count = rows.len().div_ceil(ROWS);
            let bricks = View::<u8>::part(data, first * tile, count * tile).ok_or(overflow())?;
            let source = View::<u8>::part(&room, 0, bytes).ok_or(overflow())?;
            work.run(self.repack, count * self.units(spec.cols), 8, |launch| {
                work.source(launch, &source, rows.len()).map(|launch| launch.arg(up).arg(&bricks))
            })?;
        }
        let entered = core.context.enter()?;
        entered.check("cuStreamSynchronize", queue.wait(&entered))?;
        Ok(scale)
    }
}

impl Range {
    /// The factor on a matrix's factors, and on products with it; none if a limit is not
    /// finite.
    fn fit(self, [scale, offset]: [f32; 2]) -> Option<(f32, f32)> {
        let largest = scale.max(offset * 4.0);
        if !(scale.is_finite() && offset.is_finite()) {
            return None;
        }
        if largest == 0.0 {
            return Some((1.0, 2f32.powi(self.shift)));
        }
        // Halves reach 2^-24: no factor of a matrix needs to go up by more than 2^40.
        let exponent = (self.scale - largest.log2().ceil() as i32).clamp(-40, 40);
        Some((2f32.powi(exponent), 2f32.powi(self.shift - exponent)))
    }
}

/// Launches on the way of one weight.
struct Work<'a> {
    core: &'a Arc<Core>,
    spec: &'a WeightSpec,
    queue: &'a Arc<Queue>,
    /// Bytes of a stored row.
    stored: usize,
}

impl Work<'_> {
    /// The parameters that both kinds of kernels begin with.
    fn source(
        &self,
        launch: Launch,
        stored: &View<u8>,
        rows: usize,
    ) -> std::result::Result<Launch, DeviceFault> {
        let bad = DeviceFault::BadOperands { op: "load_weight", detail: "a size is past 31 bits" };
        let int = |count| i32::try_from(count).map_err(|_| bad.clone());
        let launch = launch.arg(stored).arg(self.stored as u64);
        Ok(launch.arg(int(rows)?).arg(int(self.spec.cols)?))
    }

    /// Runs a kernel of `linear_repack.cu` over `count` items, `per` to a block.
    fn run(
        &self,
        name: &'static str,
        count: usize,
        per: usize,
        arguments: impl FnOnce(Launch) -> std::result::Result<Launch, DeviceFault>,
    ) -> std::result::Result<(), DeviceFault> {
        let bad = DeviceFault::BadOperands { op: "load_weight", detail: "a size is past 31 bits" };
        let function = self.core.function("linear_repack", name)?;
        let blocks = u32::try_from(count.div_ceil(per)).map_err(|_| bad)?;
        let launch = arguments(Launch::new(&function, [blocks, 1, 1], [256, 1, 1]))?;
        let dtype = self.spec.dtype;
        let key = KernelKey { op: "load_weight", dtype, regime: None, variant: "bricks" };
        let kernel = CudaKernel::new(self.core, key, vec![launch], Vec::new())?;
        let entered = self.core.context.enter()?;
        kernel.enqueue(&entered, self.queue)
    }

    /// The largest magnitudes of scales and of offsets.
    fn limits(&self, name: &'static str, data: &Buffer) -> Result<[f32; 2]> {
        let bad = DeviceFault::ForeignBuffer { op: "load_weight" };
        let (core, queue) = (self.core, self.queue);
        let limits = core.buffer(8, "limits of a weight")?;
        let out = View::<u32>::part(&limits, 0, 8).ok_or(bad.clone())?;
        let entered = core.context.enter()?;
        queue.fill(&entered, out.address(), 8, 0)?;
        drop(entered);
        let bytes = self.stored * self.spec.rows;
        let stored = View::<u8>::part(data, 0, bytes).ok_or(bad)?;
        let blocks = core.limits.units.max(1) as usize * 8;
        self.run(name, blocks, 1, |launch| {
            Ok(self.source(launch, &stored, self.spec.rows)?.arg(&out))
        })?;
        let mut read = [0; 8];
        let mut staging = core.staging()?;
        let entered = core.context.enter()?;
        let wait =
            |entered: &Entered<'_>| entered.check("cuStreamSynchronize", queue.wait(entered));
        staging.download(&entered, queue, out.address(), &mut read, || wait(&entered))?;
        drop(entered);
        core.keep(staging);
        let [a, b, c, d, e, f, g, h] = read;
        Ok([f32::from_le_bytes([a, b, c, d]), f32::from_le_bytes([e, f, g, h])])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(dtype: DType, rows: usize, cols: usize) -> WeightSpec {
        let (role, activations) = (WeightRole::Linear, Activations::Fast);
        WeightSpec { dtype, rows, cols, role, activations }
    }

    /// Blocks take in bricks what they take in a file, where tiles and units are whole.
    #[test]
    fn bricks_take_no_more_than_blocks() {
        let target = Target { number: 90, specific: true };
        for dtype in [DType::Q4_K, DType::Q5_K, DType::Q6_K, DType::Q8_0, DType::F16, DType::BF16] {
            let spec = spec(dtype, 48, 1024);
            let bricks = Bricks::of(&spec, target).expect("bricks");
            let stored = dtype.bytes_for(48 * 1024).expect("whole blocks");
            assert_eq!(bricks.size(&spec), Some(stored), "{dtype}");
            let odd = WeightSpec { rows: 33, ..spec };
            let stored = dtype.bytes_for(33 * 1024).expect("whole blocks");
            assert!(bricks.size(&odd) >= Some(stored), "{dtype}");
        }
    }

    /// Powers of two, as large as they can be, whose product is what codes are scaled by.
    #[test]
    fn factors_fill_the_range_of_f16() {
        let range = Range { scale: 15, shift: 22 };
        for scale in [1e-7f32, 6.1e-5, 0.004, 0.0078125, 1.0, 300.0, 65504.0] {
            for offset in [0.0, 1e-4, 0.03] {
                let (up, down) = range.fit([scale, offset]).expect("finite");
                assert_eq!(up * down, 2f32.powi(22));
                let largest = (scale * up).max(4.0 * offset * up);
                assert!((2f32.powi(14)..=2f32.powi(15)).contains(&largest), "{scale} {offset}");
            }
        }
        assert_eq!(range.fit([0.0, 0.0]), Some((1.0, 2f32.powi(22))));
        assert_eq!(range.fit([f32::INFINITY, 0.0]), None);
        assert_eq!(range.fit([1.0, f32::NAN]), None);
    }
}
