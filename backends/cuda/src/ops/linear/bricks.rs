//! Steps of weights in bricks (`linear_bricks.cuh`): parts of one type in one launch.

use foretoken::tensor::DType;

use super::kernels::{Mma, Order};
use super::plan::{Cut, Room};
use super::{Checked, Packed, Part, Shared};
use crate::launch::{Launch, Record, Scratch};
use crate::memory::View;

/// Matrices of a launch (`Matrices::kMost`).
const MOST: usize = 4;

/// Parts that one launch multiplies.
pub(super) struct Group<'a> {
    parts: Vec<&'a Part>,
    mma: Mma,
    order: Order,
    dtype: DType,
    /// First tile of 16 features of each part among all tiles, then how many there are.
    first: Vec<usize>,
    cut: Cut,
}

impl Group<'_> {
    /// Tiles of 16 features.
    fn tiles(&self) -> usize {
        self.first.last().copied().unwrap_or(0)
    }

    /// Bytes for the sums of slices of so many packed rows; `None` when the number overflows.
    pub(super) fn planes(&self, rows: usize) -> Option<usize> {
        if self.cut.slices == 1 {
            return Some(0);
        }
        let row = self.tiles().checked_mul(16 * self.cut.slices * size_of::<f32>())?;
        row.checked_mul(rows)
    }
}

impl Shared<'_> {
    /// Whether a part is multiplied in a group.
    pub(super) fn is_grouped(&self, part: &Part) -> bool {
        self.is_step() && part.mma.as_ref().is_some_and(|(mma, ..)| mma.bricks)
    }

    /// Parts by type, in order of their first.
    pub(super) fn groups<'a>(&self, parts: &'a [Part]) -> Vec<Group<'a>> {
        let mut groups: Vec<Group<'a>> = Vec::new();
        for part in parts.iter().filter(|part| self.is_grouped(part)) {
            let Some((mma, order, _)) = part.mma else { continue };
            let dtype = part.weight.spec.dtype;
            let open = groups.iter_mut().find(|g| g.dtype == dtype && g.parts.len() < MOST);
            match open {
                Some(group) => group.parts.push(part),
                None => {
                    let (parts, first) = (vec![part], Vec::new());
                    let cut = Cut::default();
                    groups.push(Group { parts, mma, order, dtype, first, cut });
                }
            }
        }
        let limits = self.bind.limits();
        let room = Room {
            multiprocessors: limits.units as usize,
            shared: limits.shared_per_block as usize,
        };
        for group in &mut groups {
            let mut tiles = 0;
            for part in &group.parts {
                group.first.push(tiles);
                tiles += part.weight.spec.rows.div_ceil(16);
            }
            group.first.push(tiles);
            group.cut = Cut::of(&group.mma, tiles, self.k.div_ceil(group.mma.unit), &room);
        }
        groups
    }

    /// The products of a group.
    pub(super) fn step(
        &self,
        group: &Group<'_>,
        packed: &[Packed],
        planes_at: usize,
        scratch: &Scratch,
    ) -> Checked<Launch> {
        let (bind, mma, cut) = (self.bind, &group.mma, group.cut);
        let packed = packed.iter().find(|packed| packed.order == group.order);
        let kernel = mma.step(self.padded);
        let (Some(packed), Some(kernel)) = (packed, kernel) else {
            return Err(bind.unsupported(group.dtype));
        };
        let function = bind.function(mma.family, kernel.name)?;
        let rows = self.padded / kernel.block;
        let grid =
            [bind.blocks(cut.ranges, 1)?, bind.blocks(cut.slices, 1)?, bind.blocks(rows, 1)?];
        let shared = cut.shared(mma, kernel.block);
        let shared = u32::try_from(shared).map_err(|_| bind.unsupported(group.dtype))?;
        let threads = bind.blocks(cut.threads(), 1)?;
        let launch = self
            .launch(Launch::new(&function, grid, [threads, 1, 1]).shared(shared))
            .arg(&self.within(scratch, packed.at)?)
            .arg(&self.within(scratch, packed.at + packed.bytes)?)
            .arg(self.matrices(group)?)
            .arg(bind.int(group.tiles())?)
            .arg(bind.int(self.k.div_ceil(mma.unit))?)
            .arg(bind.int(cut.units)?)
            .arg(bind.int(cut.groups)?)
            .arg(bind.int(cut.runs)?)
            .arg(bind.int(cut.helpers)?)
            .arg(bind.int(cut.tail)?);
        if cut.slices == 1 {
            return Ok(launch.arg(None::<&View<f32>>).arg(None::<&View<u32>>));
        }
        Ok(launch.arg(&self.within(scratch, planes_at)?).arg(&bind.arrivals()?))
    }

    /// `ft::linear::Matrices`.
    fn matrices(&self, group: &Group<'_>) -> Checked<Record> {
        let (bind, mut record) = (self.bind, Record::default());
        // Places without a matrix repeat the first, from a tile on that there is not.
        let none = group.parts.first().map(|part| (*part, i32::MAX));
        let there = group.parts.iter().zip(&group.first);
        let there = there.map(|(part, first)| Ok((*part, bind.int(*first)?)));
        let places = there.chain(std::iter::repeat_with(|| none).flatten().map(Ok));
        for place in places.take(MOST) {
            let (part, first) = place?;
            let spec = part.weight.spec;
            record.address(&part.weight.data);
            record.address(&part.out);
            record.pair(bind.int(spec.rows)?.cast_unsigned(), first.cast_unsigned());
            record.pair(u32::from(part.accumulate), part.weight.scale.to_bits());
        }
        Ok(record)
    }
}
