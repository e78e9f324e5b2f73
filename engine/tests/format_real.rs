//! The models of this repository, and larger files when they are at hand.

#![allow(clippy::print_stdout)] // "skipped" lines are the point of a test without its data

use std::path::{Path, PathBuf};
use std::time::Instant;

use foretoken::format::{GgufFile, OpenOptions, SafetensorsModel, TensorSource, Value};
use foretoken::tensor::{DType, Shape};

fn nano(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/nano").join(name)
}

/// A file outside the repository; `None`, with a line saying so, when there is none.
fn outside(name: &str) -> Option<PathBuf> {
    let Some(root) = std::env::var_os("FORETOKEN_TEST_DATA") else {
        println!("skipped: FORETOKEN_TEST_DATA is not set ({name})");
        return None;
    };
    Some(Path::new(&root).join(name))
}

#[test]
fn the_nano_models_list_their_tensors() {
    for (name, tensors, architecture) in [
        ("nano-code-Q4_K_M.gguf", 108, "qwen35"),
        ("nano-dflash-Q8_0.gguf", 25, "dflash"),
        ("nano-scorer-Q8_0.gguf", 68, "qwen3"),
    ] {
        for mmap in [true, false] {
            let model = GgufFile::open(&nano(name), &OpenOptions { mmap }).unwrap();
            assert_eq!(model.tensors().len(), tensors, "{name}");
            let found = model.metadata().require_str("general.architecture").unwrap();
            assert_eq!(found, architecture);
            for t in model.tensors() {
                assert_eq!(t.dtype().bytes_for(t.shape().elements()), Some(t.bytes()));
                assert_eq!(model.data(t).len(), t.bytes());
                assert_eq!(model.require(t.name()).unwrap().name(), t.name());
            }
        }
    }
}

#[test]
fn mapped_and_read_tensors_hold_the_same_bytes() {
    let open =
        |mmap| GgufFile::open(&nano("nano-dflash-Q8_0.gguf"), &OpenOptions { mmap }).unwrap();
    let (mapped, read) = (open(true), open(false));
    for t in mapped.tensors() {
        assert!(mapped.data(t) == read.data(read.require(t.name()).unwrap()), "{}", t.name());
    }
}

#[test]
fn shapes_are_outermost_first() {
    let model = GgufFile::open(&nano("nano-code-Q4_K_M.gguf"), &OpenOptions::default()).unwrap();
    let tokens = model.metadata().require_str_array("tokenizer.ggml.tokens").unwrap();
    let width = model.metadata().require_u32("qwen35.embedding_length").unwrap() as usize;
    let wanted = Shape::new(&[tokens.len(), width]).unwrap();
    model.require_shaped("token_embd.weight", wanted).unwrap();
}

#[test]
fn a_vocabulary_of_a_quarter_million_is_borrowed_quickly() {
    let Some(path) = outside("tokenizer/qwen35-vocab.gguf") else { return };
    let start = Instant::now();
    let model = GgufFile::open(&path, &OpenOptions::default()).unwrap();
    let tokens = model.metadata().require_str_array("tokenizer.ggml.tokens").unwrap();
    assert_eq!(tokens.len(), 248_320);
    let text = tokens.to_strs().unwrap();
    assert_eq!(text.len(), 248_320);
    assert!(text.iter().all(|t| !t.is_empty()));
    // Milliseconds in truth; the bound only catches an accidental quadratic walk.
    println!("opened and listed in {:?}", start.elapsed());
    assert!(start.elapsed().as_secs() < 5, "{:?}", start.elapsed());
}

#[test]
fn safetensors_and_gguf_of_one_draft_agree() {
    let Some(path) = outside("models/nano/draft-safetensors") else { return };
    let draft = SafetensorsModel::open(&path, &OpenOptions::default()).unwrap();
    let config = draft.config().unwrap();
    assert_eq!(config["hidden_size"], 512);
    let file = SafetensorsModel::open(&path.join("model.safetensors"), &OpenOptions::default());
    assert_eq!(file.unwrap().config(), draft.config());
    let gguf = GgufFile::open(&nano("nano-dflash-Q8_0.gguf"), &OpenOptions::default()).unwrap();
    assert_eq!(draft.tensors().len(), gguf.tensors().len());
    for (theirs, ours) in
        [("fc.weight", "fc.weight"), ("hidden_norm.weight", "enc.output_norm.weight")]
    {
        let (st, gg) = (draft.require(theirs).unwrap(), gguf.require(ours).unwrap());
        assert_eq!(st.dtype(), DType::BF16);
        assert_eq!(st.shape(), gg.shape());
    }
    // A norm is stored as BF16 in one and as F32 in the other: widening is exact.
    let (st, gg) = (
        draft.data(draft.require("hidden_norm.weight").unwrap()),
        gguf.data(gguf.require("enc.output_norm.weight").unwrap()),
    );
    let widened: Vec<u8> = st.chunks_exact(2).flat_map(|b| [0, 0, b[0], b[1]]).collect();
    assert_eq!(widened, *gg);
}

#[test]
fn metadata_prints_on_one_line_and_as_json() {
    let model = GgufFile::open(&nano("nano-code-Q4_K_M.gguf"), &OpenOptions::default()).unwrap();
    for (key, value) in model.metadata().iter() {
        let line = value.to_string();
        assert!(!line.contains('\n') && line.chars().count() < 1000, "{key}: {line}");
        let json = serde_json::to_value(value).unwrap();
        if let Value::Array(a) = value {
            assert_eq!(json.as_array().unwrap().len(), a.len());
        }
    }
}
