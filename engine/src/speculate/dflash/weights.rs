//! The weights of a draft.

use std::path::Path;
use std::sync::Arc;

use super::config::DflashConfig;
use super::file::DflashFile;
use crate::device::{Activations, Device, Rehearsal, Weight, WeightRole};
use crate::error::{Error, Result};
use crate::format::OpenOptions;
use crate::model::{
    Form, Loaded, ModelConfig, ModelFile, Need, Provider, TensorPlan, attention_needs, shared_needs,
};
use crate::tensor::Tensor;

pub(super) const EMBEDDING: &str = "token_embd.weight";
pub(super) const HEAD: &str = "output.weight";
const FC: &str = "fc.weight";
const HIDDEN_NORM: &str = "enc.output_norm.weight";
const OUTPUT_NORM: &str = "output_norm.weight";

/// The tensors every draft has, in load order.
pub(super) fn inventory(config: &DflashConfig) -> Vec<Need> {
    let mut out = Vec::new();
    let mut add = |name: String, dims: &[usize], form| out.push(Need::new(name, dims, form));
    let (d, f) = (config.hidden, config.ffn);
    let matrix = || Form::Matrix(WeightRole::Linear);
    add(FC.to_owned(), &[d, config.features()], matrix());
    add(HIDDEN_NORM.to_owned(), &[d], Form::Vector);
    for i in 0..config.layers.len() {
        let name = |part: &str| format!("blk.{i}.{part}");
        add(name("attn_norm.weight"), &[d], Form::Vector);
        attention_needs(i, d, &config.attention, &mut add);
        add(name("ffn_norm.weight"), &[d], Form::Vector);
        add(name("ffn_gate.weight"), &[f, d], matrix());
        add(name("ffn_up.weight"), &[f, d], matrix());
        add(name("ffn_down.weight"), &[d, f], matrix());
    }
    add(OUTPUT_NORM.to_owned(), &[d], Form::Vector);
    out
}

/// A draft checked against its file, its target and a device, with its size.
pub struct DflashPlan {
    file: DflashFile,
    vocab: usize,
    tensors: TensorPlan,
    /// The target's file and what is taken from it.
    lent: Option<(Provider, TensorPlan)>,
}

impl DflashPlan {
    /// Checks that the draft belongs to the target, and every tensor's presence, shape
    /// and type. Nothing is loaded.
    ///
    /// # Errors
    /// Those of [`DflashConfig::check_target`], `MissingTensor`, `WrongShape`,
    /// `NotNumeric`, `NotFinite`, `WeightRefused`.
    pub fn new(
        file: DflashFile,
        device: &dyn Device,
        target: &ModelConfig,
        activations: Activations,
    ) -> Result<Self> {
        let provider = &file.provider;
        let other = |fault| Error::draft(provider.path(), fault);
        file.config.check_target(target).map_err(other)?;
        let mut needs = inventory(&file.config);
        let shared = [target.vocab, target.hidden];
        for (name, role) in [(EMBEDDING, WeightRole::Embedding), (HEAD, WeightRole::Linear)] {
            if provider.has(name) {
                needs.push(Need::new(name.to_owned(), &shared, Form::Matrix(role)));
            }
        }
        let tensors = TensorPlan::new(needs, provider, device, activations)?;
        Ok(Self { file, vocab: target.vocab, tensors, lent: None })
    }

    /// As [`new`](Self::new), for a device that is not the target's: the embedding table
    /// and the head are loaded there a second time, from the target's file, where the draft
    /// does not bring its own.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn apart(
        file: DflashFile,
        device: &dyn Device,
        target: ModelFile,
        activations: Activations,
    ) -> Result<Self> {
        let mut plan = Self::new(file, device, &target.config, activations)?;
        let needs = shared_needs(&target.config, &target.provider);
        let needs: Vec<_> =
            needs.into_iter().filter(|need| !plan.file.provider.has(&need.name)).collect();
        if !needs.is_empty() {
            let tensors = TensorPlan::new(needs, &target.provider, device, activations)?;
            plan.lent = Some((target.provider, tensors));
        }
        Ok(plan)
    }

    /// Bytes of device memory the weights will take.
    pub fn bytes(&self) -> u64 {
        let lent = self.lent.as_ref().map_or(0, |(_, tensors)| tensors.bytes());
        self.tensors.bytes().saturating_add(lent)
    }

    /// The draft, without memory: on a stand-in for the device that this was made for.
    ///
    /// # Errors
    /// Sizes that overflow.
    pub fn rehearse(&self, on: &Arc<Rehearsal>) -> Result<Arc<DflashModel>> {
        let device: Arc<dyn Device> = Arc::clone(on) as Arc<dyn Device>;
        let DflashFile { config, provider, name } = &self.file;
        let (config, name) = (config.clone(), name.clone());
        let loaded = self.tensors.rehearse(on)?;
        let mut model = assemble(loaded, config, name, self.vocab, provider, &device)?;
        if let Some((target, tensors)) = &self.lent {
            model.borrow(tensors.rehearse(on)?, target)?;
        }
        Ok(Arc::new(model))
    }

    /// Loads everything. `progress` is told done and total after each tensor.
    ///
    /// # Errors
    /// `OutOfMemory` and whatever a device fails with.
    pub fn load(
        self,
        device: &Arc<dyn Device>,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Arc<DflashModel>> {
        let Self { file, vocab, tensors, lent } = self;
        let DflashFile { config, provider, name } = file;
        let loaded = tensors.load(&provider, device, progress)?;
        let mut model = assemble(loaded, config, name, vocab, &provider, device)?;
        if let Some((target, tensors)) = lent {
            model.borrow(tensors.load(&target, device, progress)?, &target)?;
        }
        tracing::info!(draft = model.name, bytes = model.bytes, "draft loaded");
        Ok(Arc::new(model))
    }
}

/// A loaded layer.
pub struct DflashLayer {
    /// `[D]`, before attention; not applied to the context.
    pub attn_norm: Tensor,
    /// `[Hq * head_dim, D]`.
    pub q: Weight,
    /// `[Hkv * head_dim, D]`, for context and block.
    pub k: Weight,
    /// `[Hkv * head_dim, D]`, for context and block.
    pub v: Weight,
    /// `[head_dim]`.
    pub q_norm: Tensor,
    /// `[head_dim]`.
    pub k_norm: Tensor,
    /// `[D, Hq * head_dim]`.
    pub out: Weight,
    /// `[D]`, before the feed-forward part.
    pub ffn_norm: Tensor,
    /// `[F, D]`.
    pub gate: Weight,
    /// `[F, D]`.
    pub up: Weight,
    /// `[D, F]`.
    pub down: Weight,
}

/// A loaded draft. Shared by the sessions of its target; immutable.
pub struct DflashModel {
    /// Settings.
    pub config: DflashConfig,
    /// Name, for logs and results.
    pub name: String,
    /// `[D, K * D]`: from the target's layers side by side to the context.
    pub fc: Weight,
    /// `[D]`, after `fc`.
    pub hidden_norm: Tensor,
    /// Layers, bottom up.
    pub layers: Vec<DflashLayer>,
    /// `[D]`.
    pub output_norm: Tensor,
    /// The device it is on.
    pub device: Arc<dyn Device>,
    /// `[V, D]`; without it the target's serves.
    pub embedding: Option<Weight>,
    /// `[V, D]`; without it the target's serves.
    pub head: Option<Weight>,
    /// Bytes of device memory taken.
    pub bytes: u64,
    /// The target's vocabulary, `V`.
    pub(super) vocab: usize,
}

impl DflashModel {
    /// Takes in what a device that is not the target's has of the target.
    fn borrow(&mut self, mut loaded: Loaded, target: &Provider) -> Result<()> {
        self.bytes = self.bytes.saturating_add(loaded.bytes());
        for (name, place) in [(EMBEDDING, &mut self.embedding), (HEAD, &mut self.head)] {
            if place.is_none() {
                *place = Some(loaded.matrix(target, name)?);
            }
        }
        Ok(())
    }

    /// Opens, plans and loads a draft for a target: a GGUF file, or a safetensors file or
    /// folder with a `config.json`.
    ///
    /// # Errors
    /// Those of [`DflashFile::open`], [`DflashPlan::new`] and [`DflashPlan::load`].
    pub fn load(
        path: &Path,
        options: &OpenOptions,
        device: &Arc<dyn Device>,
        target: &ModelConfig,
        activations: Activations,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Arc<Self>> {
        let file = DflashFile::open(path, options)?;
        DflashPlan::new(file, &**device, target, activations)?.load(device, progress)
    }
}

fn assemble(
    mut from: Loaded,
    config: DflashConfig,
    name: String,
    vocab: usize,
    p: &Provider,
    device: &Arc<dyn Device>,
) -> Result<DflashModel> {
    let mut layers = Vec::with_capacity(config.layers.len());
    for i in 0..config.layers.len() {
        let name = |part: &str| format!("blk.{i}.{part}");
        layers.push(DflashLayer {
            attn_norm: from.vector(p, &name("attn_norm.weight"))?,
            q: from.matrix(p, &name("attn_q.weight"))?,
            k: from.matrix(p, &name("attn_k.weight"))?,
            v: from.matrix(p, &name("attn_v.weight"))?,
            q_norm: from.vector(p, &name("attn_q_norm.weight"))?,
            k_norm: from.vector(p, &name("attn_k_norm.weight"))?,
            out: from.matrix(p, &name("attn_output.weight"))?,
            ffn_norm: from.vector(p, &name("ffn_norm.weight"))?,
            gate: from.matrix(p, &name("ffn_gate.weight"))?,
            up: from.matrix(p, &name("ffn_up.weight"))?,
            down: from.matrix(p, &name("ffn_down.weight"))?,
        });
    }
    let mut shared = |name| p.has(name).then(|| from.matrix(p, name)).transpose();
    let (embedding, head) = (shared(EMBEDDING)?, shared(HEAD)?);
    Ok(DflashModel {
        fc: from.matrix(p, FC)?,
        hidden_norm: from.vector(p, HIDDEN_NORM)?,
        layers,
        output_norm: from.vector(p, OUTPUT_NORM)?,
        device: Arc::clone(device),
        embedding,
        head,
        bytes: from.bytes(),
        config,
        name,
        vocab,
    })
}
