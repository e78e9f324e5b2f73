//! The launches of products that `dense` plans.

use super::dense::{Dense, ROWS, THREADS, UNPACK, unpack};
use super::kernels::Mma;
use super::{Checked, Packed, Part, Shared};
use crate::launch::{Launch, Scratch};

impl Shared<'_> {
    /// How one part is cut up.
    pub(super) fn dense(&self, mma: &Mma, part: &Part) -> Dense {
        let spec = part.weight.spec;
        let units = self.bind.limits().units as usize;
        Dense::of(mma, spec.rows, spec.cols, self.live, units)
    }

    /// Packs the activations to an image.
    pub(super) fn pack_dense(&self, packed: &Packed, scratch: &Scratch) -> Checked<Launch> {
        let bind = self.bind;
        let function = bind.function("linear_wgmma", "linear_pack_sm90a")?;
        let blocks = bind.blocks(self.live, 1)?;
        Ok(self
            .launch(Launch::new(&function, [blocks, 1, 1], [THREADS[1], 1, 1]))
            .arg(&self.x)
            .arg(bind.int(self.k)?)
            .arg(packed.order as u32)
            .arg(bind.int(packed.pairs / 2)?)
            .arg(bind.int(self.padded)?)
            .arg(&self.within(scratch, packed.at)?)
            .arg(&self.within(scratch, packed.at + packed.bytes)?))
    }

    /// A product: panel by panel, the weight is decoded to the scratch memory from
    /// `image_at` on and multiplied.
    pub(super) fn multiply_dense(
        &self,
        part: &Part,
        packed: &[Packed],
        image_at: usize,
        scratch: &Scratch,
    ) -> Checked<Vec<Launch>> {
        let (bind, spec) = (self.bind, part.weight.spec);
        debug_assert!(self.padded.is_multiple_of(ROWS), "the tiles of a cluster");
        let bound = part.mma.as_ref().and_then(|(mma, order, _)| {
            let packed = packed.iter().find(|packed| packed.order == *order)?;
            let dense = self.dense(mma, part);
            Some((mma, packed, dense, dense.kernel(*order)?, unpack(spec.dtype)?))
        });
        let Some((mma, packed, dense, product, decode)) = bound else {
            return Err(bind.unsupported(spec.dtype));
        };
        let product = bind.function("linear_wgmma", product)?;
        let decode = bind.function("linear_unpack", decode)?;
        let image = self.within(scratch, image_at)?;
        let units = self.k.div_ceil(mma.unit);
        let blocks = bind.blocks(dense.blocks, 1)?;
        let shared = u32::try_from(dense.shared).map_err(|_| bind.unsupported(spec.dtype))?;
        let mut launches = Vec::new();
        for begin in (0..spec.rows).step_by(dense.panel) {
            let features = dense.panel.min(spec.rows - begin);
            let rows = features.next_multiple_of(dense.tile);
            let grid = [bind.blocks(rows, UNPACK.0)?, bind.blocks(units, UNPACK.1)?, 1];
            launches.push(
                Launch::new(&decode, grid, [THREADS[2], 1, 1])
                    .arg(&part.weight.data)
                    .arg(part.weight.row_bytes as u64)
                    .arg(bind.int(spec.rows)?)
                    .arg(bind.int(self.k)?)
                    .arg(bind.int(begin)?)
                    .arg(bind.int(rows)?)
                    .arg(&image),
            );
            let launch = Launch::new(&product, [blocks, 1, 1], [THREADS[0], 1, 1]);
            launches.push(
                self.launch(launch.shared(shared))
                    .arg(&self.within(scratch, packed.at)?)
                    .arg(bind.int(self.padded)?)
                    .arg(&self.within(scratch, packed.at + packed.bytes)?)
                    .arg(&image)
                    .arg(bind.int(rows)?)
                    .arg(bind.int(begin)?)
                    .arg(bind.int(features)?)
                    .arg(bind.int(spec.rows)?)
                    .arg(bind.int(dense.lines)?)
                    .arg(bind.int(dense.slice_lines)?)
                    .arg(part.weight.scale)
                    .arg(u32::from(part.accumulate))
                    .arg(&part.out),
            );
        }
        Ok(launches)
    }
}
