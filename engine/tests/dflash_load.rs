//! Opening, planning and loading drafts, and drafts that do not belong to their target.

mod dflash_support;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dflash_support::device::Counting;
use dflash_support::*;
use foretoken::Error;
use foretoken::device::{Activations, Device};
use foretoken::format::{Array, OpenOptions, Value};
use foretoken::model::{LayerKind, ModelConfig, ModelFault};
use foretoken::speculate::dflash::{DflashFault, DflashFile, DflashModel, DflashPlan};
use foretoken::tensor::DType;
use serde_json::json;
use tempfile::TempDir;

fn plan(draft: &Draft, target: &ModelConfig) -> Result<DflashPlan, Error> {
    DflashPlan::new(draft.open()?, &Counting::new(), target, Activations::F32)
}

fn load(path: &Path, target: &ModelConfig) -> Result<Arc<DflashModel>, Error> {
    let device: Arc<dyn Device> = Arc::new(Counting::new());
    let options = OpenOptions::default();
    DflashModel::load(path, &options, &device, target, Activations::F32, &mut |_, _| {})
}

/// Names of a checkpoint for canonical ones.
fn hf_name(name: &str) -> String {
    let name = match name {
        "enc.output_norm.weight" => "hidden_norm.weight".to_owned(),
        "output_norm.weight" => "norm.weight".to_owned(),
        "token_embd.weight" => "embed_tokens.weight".to_owned(),
        "output.weight" => "lm_head.weight".to_owned(),
        name => name.to_owned(),
    };
    name.replace("blk.", "layers.")
        .replace("attn_norm", "input_layernorm")
        .replace("ffn_norm", "post_attention_layernorm")
        .replace("attn_output", "self_attn.o_proj")
        .replace("attn_q_norm", "self_attn.q_norm")
        .replace("attn_k_norm", "self_attn.k_norm")
        .replace("attn_q", "self_attn.q_proj")
        .replace("attn_k", "self_attn.k_proj")
        .replace("attn_v", "self_attn.v_proj")
        .replace("ffn_gate", "mlp.gate_proj")
        .replace("ffn_up", "mlp.up_proj")
        .replace("ffn_down", "mlp.down_proj")
}

/// A folder named `draft` with these tensors (F32) and this config.
fn folder(tensors: &[(String, Vec<usize>)], config: Option<&serde_json::Value>) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("draft");
    fs::create_dir(&path).unwrap();
    let mut header = serde_json::Map::new();
    let mut end = 0;
    for (name, dims) in tensors {
        let start = end;
        end += dims.iter().product::<usize>() * 4;
        let entry = json!({ "dtype": "F32", "shape": dims, "data_offsets": [start, end] });
        header.insert(name.clone(), entry);
    }
    let header = serde_json::to_string(&header).unwrap();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend(std::iter::repeat_n(1f32.to_le_bytes(), end / 4).flatten());
    fs::write(path.join("model.safetensors"), bytes).unwrap();
    if let Some(config) = config {
        fs::write(path.join("config.json"), config.to_string()).unwrap();
    }
    dir
}

fn hf_tensors(prefix: &str) -> Vec<(String, Vec<usize>)> {
    let name = |(name, dims): (String, Vec<usize>)| (format!("{prefix}{}", hf_name(&name)), dims);
    gguf_tensors().into_iter().map(name).collect()
}

#[test]
fn the_plan_is_what_loading_takes() {
    let device = Arc::new(Counting::new());
    let own = Draft::upstream()
        .tensor("token_embd.weight", &[VOCAB, HIDDEN])
        .tensor("output.weight", &[VOCAB, HIDDEN]);
    for (draft, shared) in [(Draft::upstream(), true), (Draft::older(), true), (own, false)] {
        let plan = plan(&draft, &target()).unwrap();
        let elements: usize = draft.tensors.iter().map(|(_, d)| d.iter().product::<usize>()).sum();
        assert_eq!(plan.bytes(), elements as u64 * 4);
        let (planned, before) = (plan.bytes(), device.taken());
        let mut last = (0, 0);
        let dyn_device: Arc<dyn Device> = device.clone();
        let model = plan.load(&dyn_device, &mut |done, total| last = (done, total)).unwrap();
        assert_eq!(last, (draft.tensors.len(), draft.tensors.len()));
        assert_eq!((device.taken() - before, model.bytes), (planned, planned));
        assert_eq!((model.embedding.is_none(), model.head.is_none()), (shared, shared));
        assert_eq!((model.fc.spec.rows, model.fc.spec.cols), (HIDDEN, 3 * HIDDEN));
        assert_eq!(model.layers.len(), 2);
        assert_eq!(model.layers[1].down.spec.cols, FFN);
    }
}

#[test]
fn checkpoints_load_without_a_tokenizer() {
    for prefix in ["", "model."] {
        let mut tensors = hf_tensors(prefix);
        tensors.push((format!("{prefix}rotary_emb.inv_freq"), vec![HEAD_DIM / 2]));
        let dir = folder(&tensors, Some(&hf_config()));
        let path = dir.path().join("draft");
        for path in [path.clone(), path.join("model.safetensors")] {
            let model = load(&path, &target()).unwrap();
            assert_eq!(model.config.target_layers, READ);
            assert!(model.embedding.is_none() && model.head.is_none());
        }
        assert_eq!(load(&path, &target()).unwrap().name, "draft");
    }
    let mut tensors = hf_tensors("");
    tensors.push(("lm_head.weight".to_owned(), vec![VOCAB, HIDDEN]));
    tensors.push(("embed_tokens.weight".to_owned(), vec![VOCAB, HIDDEN]));
    let dir = folder(&tensors, Some(&hf_config()));
    let model = load(&dir.path().join("draft"), &target()).unwrap();
    assert!(model.embedding.is_some() && model.head.is_some());

    let dir = folder(&hf_tensors(""), None);
    let fault = model_fault(load(&dir.path().join("draft"), &target()), "draft");
    assert_eq!(fault, ModelFault::MissingConfig);
    assert!(matches!(load(Path::new("/no/such/draft"), &target()), Err(Error::Io { .. })));
}

#[test]
fn a_draft_of_another_target_is_refused_before_loading() {
    let fault = |change: &dyn Fn(&mut ModelConfig)| {
        let mut other = target();
        change(&mut other);
        draft_fault(plan(&Draft::upstream(), &other), FILE)
    };
    assert_eq!(fault(&|t| t.hidden = 64), DflashFault::OtherHidden { draft: HIDDEN, target: 64 });
    assert_eq!(fault(&|t| t.vocab = 49), DflashFault::OtherVocab { draft: VOCAB, target: 49 });
    let shallow = fault(&|t| t.layers.truncate(7));
    assert_eq!(shallow, DflashFault::LayerPastTarget { layer: 7, layers: 7 });
    // A target with more (padded) rows covers the draft's tokens.
    assert!(plan(&Draft::upstream(), &ModelConfig { vocab: 64, ..target() }).is_ok());

    let mask = Draft::upstream().with("tokenizer.ggml.mask_token_id", Value::U32(VOCAB as u32));
    let fault = draft_fault(plan(&mask, &target()), FILE);
    assert_eq!(fault, DflashFault::MaskPastVocab { mask: VOCAB as u32, vocab: VOCAB });

    let dir = folder(&hf_tensors(""), Some(&hf_config()));
    let deep = ModelConfig { layers: vec![LayerKind::Delta; 12], ..target() };
    let fault = draft_fault(load(&dir.path().join("draft"), &deep), "draft");
    assert_eq!(fault, DflashFault::OtherDepth { draft: 9, target: 12 });
}

#[test]
fn tensors_are_checked() {
    for (name, _) in gguf_tensors() {
        let mut draft = Draft::upstream();
        draft.tensors.retain(|(n, _)| *n != name);
        let fault = model_fault(plan(&draft, &target()), FILE);
        assert_eq!(fault, ModelFault::MissingTensor(name.clone()));
        let wrong = Draft::upstream().tensor(&name, &[7, 5]);
        match model_fault(plan(&wrong, &target()), FILE) {
            ModelFault::WrongShape { tensor, .. } => assert_eq!(tensor, name),
            other => panic!("{name}: {other}"),
        }
    }
    // Three layers are listed, so that `fc` is three hidden states wide.
    let two = Draft::upstream().with("dflash.target_layers", Value::Array(Array::u32s(&[2, 5])));
    assert!(matches!(model_fault(plan(&two, &target()), FILE), ModelFault::WrongShape { .. }));
    // Tables of the draft's own must be over the target's tokens.
    for name in ["token_embd.weight", "output.weight"] {
        let small = Draft::upstream().tensor(name, &[VOCAB - 1, HIDDEN]);
        match model_fault(plan(&small, &target()), FILE) {
            ModelFault::WrongShape { tensor, .. } => assert_eq!(tensor, name),
            other => panic!("{name}: {other}"),
        }
    }
    let device = Counting { refused: Some(DType::F32), ..Counting::new() };
    let file = Draft::upstream().open().unwrap();
    let refused = DflashPlan::new(file, &device, &target(), Activations::F32);
    assert!(matches!(model_fault(refused, FILE), ModelFault::WeightRefused { .. }));
}

#[test]
fn no_tensor_is_left_out_in_silence() {
    let fault = |name: &str| draft_fault(Draft::upstream().tensor(name, &[4]).open(), FILE);
    for name in ["d2t", "d2t.weight", "t2d"] {
        assert_eq!(fault(name), DflashFault::ReducedVocab { tensor: name.to_owned() });
    }
    for name in ["blk.0.attn_conv_base", "selector_hidden.weight", "selector\n"] {
        assert_eq!(fault(name), DflashFault::Dflash2 { found: name.to_owned() });
    }
    for name in ["blk.0.attn_q.bias", "blk.2.attn_norm.weight", "markov.weight", "a\nb"] {
        assert_eq!(fault(name), DflashFault::UnknownTensor(name.to_owned()));
    }
    // The same tensor under two names: one of them would be left out.
    assert_eq!(
        fault("dflash.hidden_norm.weight"),
        DflashFault::UnknownTensor("dflash.hidden_norm.weight".to_owned())
    );
    let mut tensors = hf_tensors("");
    tensors.push(("layers.0.attention_conv.base_kernel".to_owned(), vec![4]));
    let dir = folder(&tensors, Some(&hf_config()));
    let fault = draft_fault(load(&dir.path().join("draft"), &target()), "draft");
    assert!(matches!(fault, DflashFault::Dflash2 { .. }));
}

fn nano(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/nano").join(name)
}

/// The draft of this repository, in the shapes it is written down with.
#[test]
fn the_nano_draft_fits_its_target() {
    let options = OpenOptions::default();
    let file = DflashFile::open(&nano("nano-dflash-Q8_0.gguf"), &options).unwrap();
    assert_eq!(
        (file.name.as_str(), file.config.target_layers.as_slice()),
        ("nano-dflash", &[1, 3, 5][..])
    );
    let target = foretoken::model::ModelFile::open(&nano("nano-code-Q4_K_M.gguf"), &options);
    let target = target.unwrap().config;
    let plan = DflashPlan::new(file, &Counting::new(), &target, Activations::Fast).unwrap();
    // Seven matrices a layer and `fc`, in 34 bytes per 32 values; norms in F32.
    let matrices = 2 * (512 * 512 * 2 + 256 * 512 * 2 + 3 * 1536 * 512) + 1536 * 512;
    let norms = 2 * (512 * 2 + 128 * 2) + 2 * 512;
    assert_eq!(plan.bytes(), matrices / 32 * 34 + norms * 4);
}
