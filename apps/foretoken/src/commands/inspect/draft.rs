//! Settings of a draft model.

use std::io::{self, Write};

use foretoken::speculate::dflash::{DflashConfig, DraftLayer};
use serde::Serialize;

use crate::output::{Align, Table};

/// What a DFlash draft does; layers of the target count from 0.
#[derive(Debug, Serialize)]
pub(super) struct DraftReport {
    block: usize,
    mask_token: u32,
    target_layers: Vec<usize>,
    rope_theta: f64,
    layers: Vec<DraftLayerReport>,
}

/// What the rows of a block see in one layer.
#[derive(Debug, Serialize)]
struct DraftLayerReport {
    window: Option<usize>,
    causal: bool,
}

impl DraftReport {
    pub(super) fn new(config: &DflashConfig) -> Self {
        let layer = |l: &DraftLayer| DraftLayerReport { window: l.window, causal: l.causal };
        Self {
            block: config.block,
            mask_token: config.mask_token,
            target_layers: config.target_layers.clone(),
            rope_theta: config.attention.theta,
            layers: config.layers.iter().map(layer).collect(),
        }
    }

    /// Writes a table of the settings.
    pub(super) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let read: Vec<_> = self.target_layers.iter().map(usize::to_string).collect();
        let mut table = Table::new(&[("draft", Align::Left), ("value", Align::Left)]);
        table.row(["block".to_owned(), self.block.to_string()]);
        table.row(["mask token".to_owned(), self.mask_token.to_string()]);
        table.row(["target layers, from 0".to_owned(), read.join(" ")]);
        table.row(["rope theta".to_owned(), self.rope_theta.to_string()]);
        for (i, layer) in self.layers.iter().enumerate() {
            let window = layer.window.map_or("full".to_owned(), |w| format!("window {w}"));
            let block = if layer.causal { "causal" } else { "bidirectional" };
            table.row([format!("layer {i}"), format!("{window}, block {block}")]);
        }
        table.write(out)
    }
}
