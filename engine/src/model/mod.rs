//! Models: settings, weights, and the graphs built from the shared operations.
//!
//! An architecture is one file that says how its settings are read (from GGUF
//! metadata and from a Hugging Face `config.json`) and how its tensors are named;
//! it is entered in `registry.rs`. Depends on `format`, `kernel`, `device`, `cache`;
//! knows no driver.

mod buffers;
mod carver;
mod config;
mod fault;
mod fewer;
mod graph;
mod load;
mod ops;
mod provider;
mod qwen3;
mod qwen35;
mod registry;
mod settings;
mod sidecar;
mod tensors;
mod verify;
mod weights;

pub use buffers::{RecurrentInputs, StepBuffers};
pub use config::{AttentionConfig, DeltaConfig, LayerKind, ModelConfig};
pub use fault::ModelFault;
pub use graph::{FeatureTap, GraphBuilder, Hidden, TracedOp};
pub use load::ModelFile;
pub use provider::{Change, Provider, TensorNaming};
pub use registry::{Architecture, known_architectures};
pub use verify::VerifyBuffers;
pub use weights::{LayerWeights, LoadedWeights, Mixer, WeightPlan};

pub(crate) use carver::Carver;
pub(crate) use config::{
    MAX_CONTEXT, MAX_HEAD_DIM, MAX_HEADS, MAX_LAYERS, MAX_VOCAB, MAX_WIDTH, bad, bounded, valid_eps,
};
pub(crate) use ops::RowOps;
pub(crate) use qwen3::{hf_attention_part, split_block};
pub(crate) use settings::{GgufSettings, HfSettings};
pub(crate) use tensors::{Form, Loaded, Need, TensorPlan};
pub(crate) use weights::{attention_needs, shared_needs};
