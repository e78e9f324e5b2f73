//! What can keep a draft from being used.

use std::path::Path;

use crate::error::Error;
use crate::model::ModelFault;

/// A fault of a DFlash draft. The file is named by [`Error::Draft`]; settings and tensors
/// that are missing or malformed are faults of [`ModelFault`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DflashFault {
    /// Another kind of model.
    #[error("not a DFlash draft: its architecture is {found:?}")]
    NotDflash {
        /// As the file names it.
        found: String,
    },
    /// A draft of the second generation, with convolutions and a selector.
    #[error("DFlash2 is not supported: the draft has {found:?}")]
    Dflash2 {
        /// The setting or tensor that tells.
        found: String,
    },
    /// A setting that changes what the layers compute.
    #[error("setting '{key}' is {value}, which is not supported: {rule}")]
    Unsupported {
        /// Key.
        key: String,
        /// Value found.
        value: String,
        /// What is supported.
        rule: &'static str,
    },
    /// A head over part of the vocabulary.
    #[error("a draft with a vocabulary of its own is not supported: it has tensor {tensor:?}")]
    ReducedVocab {
        /// The table between the vocabularies.
        tensor: String,
    },
    /// A tensor that would be left out of the computation.
    #[error("tensor {0:?} has no place in a DFlash draft")]
    UnknownTensor(String),
    /// A layer of the target is read twice.
    #[error("target layer {0} is listed twice")]
    RepeatedLayer(usize),
    /// Draft and target differ in width.
    #[error("the draft's hidden size is {draft}, the target's {target}")]
    OtherHidden {
        /// The draft's.
        draft: usize,
        /// The target's.
        target: usize,
    },
    /// The draft has more tokens than the target.
    #[error("the draft has {draft} tokens, the target {target}")]
    OtherVocab {
        /// The draft's.
        draft: usize,
        /// The target's.
        target: usize,
    },
    /// The draft was made for a target of another depth.
    #[error("the draft is made for a target of {draft} layers, this one has {target}")]
    OtherDepth {
        /// What the draft says.
        draft: usize,
        /// The target's.
        target: usize,
    },
    /// The draft reads a layer that the target has not.
    #[error("the draft reads layer {layer} of a target of {layers} layers")]
    LayerPastTarget {
        /// Counted from 0.
        layer: usize,
        /// The target's.
        layers: usize,
    },
    /// The mask token is no token of the target.
    #[error("mask token {mask} lies outside the target's {vocab} tokens")]
    MaskPastVocab {
        /// Its id.
        mask: u32,
        /// The target's.
        vocab: usize,
    },
}

/// A fault of either family, before the file is named.
#[derive(Debug)]
pub(super) enum Flaw {
    Model(ModelFault),
    Dflash(DflashFault),
}

impl From<ModelFault> for Flaw {
    fn from(fault: ModelFault) -> Self {
        Self::Model(fault)
    }
}

impl From<DflashFault> for Flaw {
    fn from(fault: DflashFault) -> Self {
        Self::Dflash(fault)
    }
}

impl Flaw {
    pub(super) fn at(self, path: &Path) -> Error {
        match self {
            Self::Model(fault) => Error::model(path, fault),
            Self::Dflash(fault) => Error::draft(path, fault),
        }
    }
}
