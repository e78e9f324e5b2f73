//! The shapes of models: how many of what, independent of names and types.

/// What is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// Gated delta layers, every fourth one gated attention (`qwen35`).
    Hybrid {
        /// Key heads of the delta layers, of 128 values each.
        key_heads: usize,
        /// Value heads of the delta layers, of 128 values each.
        value_heads: usize,
    },
    /// Attention in every layer (`qwen3`).
    Dense,
    /// A DFlash draft.
    Draft {
        /// Layers of the target it belongs to.
        target: usize,
        /// How many of them it reads, at even distances.
        reads: usize,
        /// Sliding window of all layers but the last.
        window: Option<usize>,
    },
}

/// The shape of a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Shape {
    /// What it is.
    pub(crate) family: Family,
    /// Width of the residual stream.
    pub(crate) hidden: usize,
    /// Width of the feed-forward part.
    pub(crate) ffn: usize,
    /// Layers.
    pub(crate) layers: usize,
    /// Query heads of attention layers.
    pub(crate) heads: usize,
    /// Key-value heads of attention layers.
    pub(crate) kv_heads: usize,
    /// Values of an attention head.
    pub(crate) head_dim: usize,
    /// Base of the rotary frequencies.
    pub(crate) theta: f32,
    /// Rows of the embedding.
    pub(crate) vocab: usize,
    /// The head is the embedding.
    pub(crate) tied: bool,
    /// Longest context, as the file says.
    pub(crate) context: usize,
}

impl Shape {
    /// Values of a head of the delta layers.
    pub(crate) const STATE: usize = 128;
    /// Taps of the short convolution.
    pub(crate) const TAPS: usize = 4;
    /// Every so many layers there is one of attention.
    pub(crate) const INTERVAL: usize = 4;
    /// Rows of a draft's block.
    pub(crate) const BLOCK: usize = 16;

    /// The architecture's name in GGUF files.
    pub(crate) fn architecture(&self) -> &'static str {
        match self.family {
            Family::Hybrid { .. } => "qwen35",
            Family::Dense => "qwen3",
            Family::Draft { .. } => "dflash",
        }
    }

    /// Whether layer `i`, from 0, is one of attention.
    pub(crate) fn attends(&self, i: usize) -> bool {
        match self.family {
            Family::Hybrid { .. } => (i + 1).is_multiple_of(Self::INTERVAL),
            Family::Dense | Family::Draft { .. } => true,
        }
    }

    /// Leading values of a head that are rotated.
    pub(crate) fn rotary(&self) -> usize {
        match self.family {
            Family::Hybrid { .. } => self.head_dim / 4,
            Family::Dense | Family::Draft { .. } => self.head_dim,
        }
    }

    /// Layers of the target that a draft reads, from 0: at even distances from layer 1 to
    /// the fourth from the top, rounded with ties to even, as published drafts do. Of a
    /// target with fewer layers than that takes, the lowest.
    pub(crate) fn target_layers(&self) -> Vec<usize> {
        let Family::Draft { target, reads, .. } = self.family else { return Vec::new() };
        match target.checked_sub(4).filter(|span| span + 1 >= reads && reads > 1) {
            Some(span) => {
                let place = |i: usize| 1.0 + (i * span) as f64 / (reads - 1) as f64;
                (0..reads).map(|i| place(i).round_ties_even() as usize).collect()
            }
            None => (0..reads.min(target)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synth::preset;

    fn layers(name: &str, target: usize) -> Vec<usize> {
        let mut shape = preset(name).unwrap().shape;
        if let Family::Draft { target: depth, .. } = &mut shape.family {
            *depth = target;
        }
        shape.target_layers()
    }

    /// Those of published drafts for 64 and 32 layers, and of the small one here.
    #[test]
    fn drafts_read_the_layers_that_published_ones_read() {
        assert_eq!(layers("dflash-27b", 64), [1, 16, 31, 46, 61]);
        assert_eq!(layers("dflash-4b", 32), [1, 8, 15, 22, 29]);
        assert_eq!(layers("dflash-nano", 8), [1, 3, 5]);
        assert_eq!(layers("dflash-27b", 8), [1, 2, 3, 4, 5]);
        assert_eq!(layers("dflash-27b", 4), [0, 1, 2, 3]);
        assert!(layers("qwen3.5-27b", 64).is_empty());
    }
}
