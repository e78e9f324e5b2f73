//! A loaded draft as the drafter of one session.

use std::sync::Arc;

use super::buffers::DflashBuffers;
use super::graph::DraftGraph;
use super::weights::DflashModel;
use crate::cache::KvCache;
use crate::device::{Device, DeviceFault, Weight};
use crate::error::Result;
use crate::kernel::{Cursor, Op};
use crate::speculate::{DraftSite, DraftSizes, Drafter, Proposal};
use crate::tensor::{DType, Tensor};

/// Drafts blocks with a [`DflashModel`].
pub struct DflashDrafter {
    model: Arc<DflashModel>,
    attached: Option<Attached>,
}

/// What [`Drafter::attach`] leaves.
struct Attached {
    cursor: Cursor,
    ring: Tensor,
    embedding: Weight,
    head: Weight,
    proposal: Proposal,
    sizes: DraftSizes,
    cache: KvCache,
    buffers: DflashBuffers,
}

fn bad(detail: &'static str) -> DeviceFault {
    DeviceFault::BadOperands { op: "dflash", detail }
}

impl DflashDrafter {
    /// A drafter for one session.
    pub fn new(model: Arc<DflashModel>) -> Self {
        Self { model, attached: None }
    }

    /// Slots of a layer's cache: the context and one block after it.
    fn slots(&self, sizes: &DraftSizes) -> Result<usize, DeviceFault> {
        sizes.context.checked_add(self.model.config.block).ok_or(bad("the context overflows"))
    }

    fn attached(&self) -> Result<(&Attached, DraftGraph<'_>)> {
        let a = self.attached.as_ref().ok_or(bad("the drafter is not attached"))?;
        let model = &*self.model;
        Ok((a, DraftGraph { model, cursor: &a.cursor, caches: a.cache.layers() }))
    }

    /// Checks that the site is the one the draft was loaded for, and of the right shapes.
    fn check<'a>(&self, site: &DraftSite<'a>) -> Result<&'a Tensor, DeviceFault> {
        let (config, sizes) = (&self.model.config, &site.sizes);
        let fits = config.check_target(site.target).is_ok();
        if !fits || site.target.vocab != self.model.vocab {
            return Err(bad("the draft belongs to another target"));
        }
        let shared = |w: &Weight| w.spec.rows == site.target.vocab && w.spec.cols == config.hidden;
        if !shared(site.embedding) || !shared(site.head) {
            return Err(bad("embedding table or head of another shape"));
        }
        let ring = site.ring.ok_or(bad("there is no ring of features"))?;
        match *ring.shape().dims() {
            [slots, width] if width == config.features() && slots >= sizes.rows => {}
            _ => return Err(bad("a ring of another shape")),
        }
        if sizes.rows == 0 || sizes.width == 0 || sizes.width > site.target.vocab {
            return Err(bad("sizes out of range"));
        }
        let (p, drafted) = (site.proposal, self.positions());
        let square = [drafted, sizes.width];
        let same =
            |t: &Tensor, dtype, dims: &[usize]| t.dtype() == dtype && t.shape().dims() == dims;
        if !same(&p.ids, DType::I32, &square)
            || !same(&p.scores, DType::F32, &square)
            || !same(&p.log_sum_exp, DType::F32, &[drafted])
        {
            return Err(bad("a proposal of another shape"));
        }
        Ok(ring)
    }
}

impl Drafter for DflashDrafter {
    fn name(&self) -> &str {
        "dflash"
    }

    fn positions(&self) -> usize {
        self.model.config.block.saturating_sub(1)
    }

    fn layers(&self) -> &[usize] {
        &self.model.config.target_layers
    }

    fn device(&self) -> Option<Arc<dyn Device>> {
        Some(Arc::clone(&self.model.device))
    }

    fn weight_bytes(&self) -> u64 {
        self.model.bytes
    }

    fn bytes(&self, sizes: &DraftSizes, device: &dyn Device) -> Result<u64> {
        let (config, slots) = (&self.model.config, self.slots(sizes)?);
        let layers = config.layers.len();
        let kv = KvCache::bytes_of(&config.attention, layers, slots, sizes.kv_type);
        let buffers = DflashBuffers::bytes(config, self.model.vocab, sizes.rows)?;
        let kv = kv.ok_or(bad("the size overflows"))?;
        let parts = [kv, buffers].map(|bytes| device.allocation_bytes(bytes));
        Ok(parts.into_iter().fold(0, u64::saturating_add))
    }

    fn attach(&mut self, site: &DraftSite<'_>) -> Result<()> {
        let ring = self.check(site)?;
        let (model, sizes) = (&self.model, site.sizes);
        let config = &model.config;
        let (slots, layers) = (self.slots(&sizes)?, config.layers.len());
        let cache =
            KvCache::reserve_for(&config.attention, layers, site.device, slots, sizes.kv_type)?;
        let buffers = DflashBuffers::reserve(config, model.vocab, sizes.rows, site.device)?;
        self.attached = Some(Attached {
            cursor: site.cursor.clone(),
            ring: ring.clone(),
            embedding: model.embedding.as_ref().unwrap_or(site.embedding).clone(),
            head: model.head.as_ref().unwrap_or(site.head).clone(),
            proposal: site.proposal.clone(),
            sizes,
            cache,
            buffers,
        });
        Ok(())
    }

    fn context(&self, rows: usize) -> Result<Vec<Op>> {
        let (a, graph) = self.attached()?;
        if rows == 0 || rows > a.sizes.rows {
            return Err(bad("more rows of context than were reserved, or none").into());
        }
        graph.context(&a.ring, &a.buffers.context.first_rows(rows)?)
    }

    fn proposal(&self) -> Result<Vec<Op>> {
        let (a, graph) = self.attached()?;
        graph.proposal(&a.embedding, &a.head, a.sizes.width, &a.proposal, &a.buffers.block)
    }
}
