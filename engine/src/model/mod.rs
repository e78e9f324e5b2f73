//! Models: settings, weights, and the graphs built from the shared operations.
//!
//! An architecture is one file that says how its settings are read (from GGUF
//! metadata and from a Hugging Face `config.json`) and how its tensors are named;
//! it is entered in `registry.rs`. Depends on `format`, `kernel`, `device`, `cache`;
//! knows no driver.

mod buffers;
pub(crate) mod carve;
mod config;
mod fault;
mod graph;
mod load;
mod provider;
mod qwen3;
mod qwen35;
mod registry;
mod settings;
mod sidecar;
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
