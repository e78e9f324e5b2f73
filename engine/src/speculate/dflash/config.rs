//! What a draft is made of, independent of the file it came from.

use std::collections::HashSet;
use std::path::Path;

use serde_json::Value;

use super::fault::{DflashFault, Flaw};
use super::{gguf, hf};
use crate::error::Result;
use crate::format::GgufFile;
use crate::model::{AttentionConfig, ModelConfig, ModelFault, bad, valid_eps};

/// What the rows of a block see in one layer of a draft.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DraftLayer {
    /// Sliding window in tokens, the row's own included.
    pub window: Option<usize>,
    /// Rows see only themselves and earlier rows of the block.
    pub causal: bool,
}

/// A draft's shape.
#[derive(Clone, Debug, PartialEq)]
pub struct DflashConfig {
    /// Width of the residual stream, the target's as well.
    pub hidden: usize,
    /// Width of the feed-forward layer.
    pub ffn: usize,
    /// Size of the vocabulary, when the file tells it.
    pub vocab: Option<usize>,
    /// Added under the root of every RMS norm.
    pub eps: f32,
    /// Softmax attention, with plain queries.
    pub attention: AttentionConfig,
    /// Layers, bottom up.
    pub layers: Vec<DraftLayer>,
    /// Rows of a block: the pending token and the drafted positions.
    pub block: usize,
    /// The token at drafted positions.
    pub mask_token: u32,
    /// Layers of the target whose output is read, counted from 0, in the order in which
    /// their outputs lie side by side.
    pub target_layers: Vec<usize>,
    /// Layers of the target, when the file tells it.
    pub target_depth: Option<usize>,
}

/// Smallest block: the pending token and one drafted position.
const MIN_BLOCK: usize = 2;
/// Largest block: one row of a step for each.
pub(super) const MAX_BLOCK: usize = 64;

impl DflashConfig {
    /// Settings from GGUF metadata.
    ///
    /// # Errors
    /// `NotDflash`, `Dflash2`, `Unsupported`, `RepeatedLayer`, `MissingSetting`,
    /// `BadSetting`, or a format fault for a value of wrong type.
    pub fn from_gguf(file: &GgufFile) -> Result<Self> {
        gguf::read(file)
    }

    /// Settings from a `config.json`; `path` is named in errors.
    ///
    /// # Errors
    /// Those of [`from_gguf`](Self::from_gguf), but for format faults.
    pub fn from_hf(path: &Path, config: &Value) -> Result<Self> {
        hf::read(config).map_err(|flaw| flaw.at(path))
    }

    /// Values of the target's layers side by side.
    pub fn features(&self) -> usize {
        self.target_layers.len() * self.hidden
    }

    /// Checks the relations between the settings.
    pub(super) fn validated(self) -> Result<Self, Flaw> {
        self.attention.validate()?;
        valid_eps(self.eps)?;
        let head_dim = self.attention.head_dim;
        if !head_dim.is_multiple_of(2) {
            return Err(bad("head_dim", head_dim.to_string(), "must be even").into());
        }
        if !(MIN_BLOCK..=MAX_BLOCK).contains(&self.block) {
            let rule = "must be at least 2 and at most 64";
            return Err(bad("block_size", self.block.to_string(), rule).into());
        }
        if self.target_layers.is_empty() {
            let rule = "must name at least one layer";
            return Err(bad("target_layer_ids", "empty".to_owned(), rule).into());
        }
        let mut seen = HashSet::new();
        match self.target_layers.iter().find(|&&layer| !seen.insert(layer)) {
            Some(&layer) => Err(DflashFault::RepeatedLayer(layer).into()),
            None => Ok(self),
        }
    }

    /// Checks that the draft belongs to a target of this shape.
    ///
    /// # Errors
    /// `OtherHidden`, `OtherVocab`, `OtherDepth`, `LayerPastTarget`, `MaskPastVocab`.
    pub fn check_target(&self, target: &ModelConfig) -> Result<(), DflashFault> {
        let layers = target.layers.len();
        if self.hidden != target.hidden {
            return Err(DflashFault::OtherHidden { draft: self.hidden, target: target.hidden });
        }
        if let Some(draft) = self.vocab.filter(|&n| n > target.vocab) {
            return Err(DflashFault::OtherVocab { draft, target: target.vocab });
        }
        if let Some(draft) = self.target_depth.filter(|&n| n != layers) {
            return Err(DflashFault::OtherDepth { draft, target: layers });
        }
        if let Some(&layer) = self.target_layers.iter().find(|&&layer| layer >= layers) {
            return Err(DflashFault::LayerPastTarget { layer, layers });
        }
        if self.mask_token as usize >= target.vocab {
            let (mask, vocab) = (self.mask_token, target.vocab);
            return Err(DflashFault::MaskPastVocab { mask, vocab });
        }
        Ok(())
    }
}

/// The layers that are read when none are listed: `count` of them at even distances from
/// layer 1 to layer `depth - 3`, rounded with ties to even; one alone lies in the middle.
pub(super) fn even_layers(count: usize, depth: usize) -> Result<Vec<usize>, ModelFault> {
    if count <= 1 {
        return Ok(vec![depth / 2; count]);
    }
    let Some(span) = depth.checked_sub(4) else {
        let rule = "too few to choose layers from; they must be listed in target_layer_ids";
        return Err(bad("num_target_layers", depth.to_string(), rule));
    };
    let place = |i: usize| (1.0 + (i * span) as f64 / (count - 1) as f64).round_ties_even();
    Ok((0..count).map(|i| place(i) as usize).collect())
}

/// What each layer's rows see. `sliding` tells the layers with a window; `causal`
/// overrides what otherwise goes by the kind of layer: blocks are causal in layers with
/// a window alone, as drafts are trained (z-lab, SGLang, vLLM, SpecForge).
pub(super) fn draft_layers(
    sliding: &[bool],
    window: Option<usize>,
    window_key: &str,
    causal: Option<bool>,
) -> Result<Vec<DraftLayer>, ModelFault> {
    if window.is_none() && sliding.contains(&true) {
        return Err(ModelFault::MissingSetting(window_key.to_owned()));
    }
    let layer = |&slides: &bool| DraftLayer {
        window: window.filter(|_| slides),
        causal: causal.unwrap_or(slides),
    };
    Ok(sliding.iter().map(layer).collect())
}
