//! Two operations whose launches become one where a graph has them in turn: one that makes
//! rows, and products that want these rows packed.
//!
//! The results are those of the separate launches, bit for bit.

use foretoken::device::DeviceFault;
use foretoken::kernel::RowSet;

use crate::device::{Core, Entered, Site};
use crate::launch::{CudaKernel, Launch, Scratch};
use crate::memory::View;

/// What an operation's rows are made by when they are packed as well: the kernel's launch
/// but for its grid and the parameters of `FT_PACK_PARAMETERS`.
pub(crate) struct Producer {
    /// Launch, unfinished.
    pub(crate) launch: Launch,
    /// Address of the rows it makes.
    pub(crate) out: u64,
    /// Address of the control block.
    pub(crate) control: u64,
    /// Which rows those are.
    pub(crate) rows: RowSet,
    /// Blocks to a row.
    pub(crate) spread: u32,
}

impl Producer {
    /// One block to a row of `out`.
    pub(crate) fn new(launch: Launch, out: &View<f32>, control: &View<i32>, rows: RowSet) -> Self {
        let (out, control) = (out.address(), control.address());
        Self { launch, out, control, rows, spread: 1 }
    }
}

/// The first launch of a product, when it packs rows and is the only one that does.
pub(crate) struct Packing {
    /// Address of the rows.
    pub(crate) x: u64,
    /// Address of the control block.
    pub(crate) control: u64,
    /// Which rows those are.
    pub(crate) rows: RowSet,
    /// Rows that are written.
    pub(crate) padded: u32,
    /// `ft::Order`.
    pub(crate) order: u32,
    /// Pairs of products of a row.
    pub(crate) pairs: i32,
    /// Tiles of a group.
    pub(crate) tiles: i32,
    /// Where rows go.
    pub(crate) packed: Scratch,
    /// Where their factors go.
    pub(crate) factors: Scratch,
}

impl Packing {
    /// Whether the producer's rows are those to pack. Rows with logits that were moved to
    /// the front are read as a compact set.
    fn takes(&self, producer: &Producer) -> bool {
        let rows = matches!(
            (producer.rows, self.rows),
            (RowSet::All, RowSet::All) | (RowSet::Logits, RowSet::LogitsCompact)
        );
        rows && self.x == producer.out && self.control == producer.control
    }

    /// The one launch for both.
    fn launch(
        &self,
        producer: &Producer,
        core: &Core,
        entered: &Entered<'_>,
        site: Site,
    ) -> Result<Launch, DeviceFault> {
        producer
            .launch
            .clone()
            .grid([self.padded * producer.spread, 1, 1])
            .arg(self.order)
            .arg(self.pairs)
            .arg(self.tiles)
            .arg(&self.packed)
            .arg(&self.factors)
            .finish(core, entered, site)
    }
}

/// The launches of a graph in order, each with the name of its operation.
pub(crate) fn launches<'a>(
    core: &Core,
    entered: &Entered<'_>,
    kernels: &'a [std::sync::Arc<CudaKernel>],
) -> Result<Vec<(Launch, &'a str)>, DeviceFault> {
    let mut all = Vec::new();
    let mut packed = false;
    for (i, kernel) in kernels.iter().enumerate() {
        let next = kernels.get(i + 1).and_then(|next| next.packing());
        let pair = kernel.producer().zip(next).filter(|(made, packing)| packing.takes(made));
        // What the operation before has packed is not packed again.
        let own = kernel.launches().iter().skip(usize::from(packed));
        packed = pair.is_some();
        match pair {
            Some((producer, packing)) => {
                let launch = packing.launch(producer, core, entered, kernel.site())?;
                all.push((launch, &**kernel.name()));
            }
            None => all.extend(own.map(|launch| (launch.clone(), &**kernel.name()))),
        }
    }
    Ok(all)
}
