//! Well-formed files that are no usable model: each one error line that names the
//! file and the fault, before anything is loaded.

use std::path::{Path, PathBuf};

use foretoken::Error;
use foretoken::device::Driver;
use foretoken::format::{
    Array, GgufFile, GgufWriter, OpenOptions, TensorInfo, TensorSource, Value,
};
use foretoken::generate::{Engine, EngineOptions, GenerateFault, SessionOptions};
use foretoken::model::ModelFault;
use foretoken::tensor::{DType, Shape};
use foretoken_cpu::{CpuDriver, CpuOptions};

fn nano(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/nano").join(file)
}

/// What becomes of a tensor in the copy.
enum Tensor {
    Same,
    Gone,
    As(DType, Shape, Vec<u8>),
}

/// Copies a model with changes and loads the copy. `None` for a key drops it.
fn load_changed(
    model: &str,
    keys: &[(&str, Option<Value>)],
    change: &dyn Fn(&TensorInfo) -> Tensor,
) -> Result<(), Error> {
    let source = GgufFile::open(&nano(model), &OpenOptions::default()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("changed.gguf");
    let mut writer = GgufWriter::new(&path);
    for (key, value) in source.metadata().iter() {
        match keys.iter().find(|(k, _)| *k == key) {
            Some((_, None)) => {}
            Some((_, Some(new))) => drop(writer.metadata(key, new.clone()).unwrap()),
            None => drop(writer.metadata(key, value.clone()).unwrap()),
        }
    }
    for (key, value) in keys {
        if let (None, Some(value)) = (source.metadata().get(key), value) {
            writer.metadata(key, value.clone()).unwrap();
        }
    }
    let mut bodies = Vec::new();
    for info in source.tensors() {
        match change(info) {
            Tensor::Gone => {}
            Tensor::Same => {
                writer.tensor(info.name(), info.dtype(), info.shape()).unwrap();
                bodies.push(source.data(info).to_vec());
            }
            Tensor::As(dtype, shape, bytes) => {
                writer.tensor(info.name(), dtype, shape).unwrap();
                bodies.push(bytes);
            }
        }
    }
    let mut body = writer.begin(std::fs::File::create(&path).unwrap()).unwrap();
    bodies.iter().for_each(|b| body.data(b).unwrap());
    drop(body.finish().unwrap());
    let result = load(&path);
    if let Err(e) = &result {
        let line = e.to_string();
        assert!(!line.contains('\n'), "{line}");
    }
    result
}

fn load(path: &Path) -> Result<(), Error> {
    let device = CpuDriver::new(CpuOptions::default()).open(0).unwrap();
    let session = Some(SessionOptions::new(512));
    Engine::load(path, device, &EngineOptions::default(), session, &mut |_| {}).map(drop)
}

fn same(_: &TensorInfo) -> Tensor {
    Tensor::Same
}

fn model_fault(result: Result<(), Error>) -> ModelFault {
    match result {
        Err(Error::Model { path, fault }) => {
            assert!(path.to_string_lossy().contains("changed.gguf"));
            *fault
        }
        Err(other) => panic!("expected a model fault, got {other}"),
        Ok(()) => panic!("expected a fault, the model loaded"),
    }
}

fn fault_of_key(model: &str, key: &str, value: Option<Value>) -> ModelFault {
    model_fault(load_changed(model, &[(key, value)], &same))
}

const SCORER: &str = "nano-scorer-Q8_0.gguf";
const TARGET: &str = "nano-code-Q4_K_M.gguf";

#[test]
fn an_unchanged_copy_loads() {
    load_changed(SCORER, &[], &same).unwrap();
    load_changed(TARGET, &[], &same).unwrap();
}

#[test]
fn an_unknown_architecture_is_named_with_what_there_is() {
    let fault = fault_of_key(SCORER, "general.architecture", Some(Value::string("llama4")));
    let text = fault.to_string();
    assert!(text.contains("llama4") && text.contains("qwen35") && text.contains("qwen3"), "{text}");
    assert!(matches!(
        fault_of_key(SCORER, "general.architecture", None),
        ModelFault::MissingSetting(key) if key == "general.architecture"
    ));
}

#[test]
fn missing_settings_are_named() {
    for key in ["block_count", "embedding_length", "attention.head_count", "rope.freq_base"] {
        let key = format!("qwen3.{key}");
        match fault_of_key(SCORER, &key, None) {
            ModelFault::MissingSetting(found) => assert_eq!(found, key),
            other => panic!("{other}"),
        }
    }
}

#[test]
fn impossible_settings_are_refused() {
    let huge = Value::U64(1 << 40);
    for (model, key, value) in [
        (SCORER, "qwen3.block_count", Value::U32(0)),
        (SCORER, "qwen3.block_count", huge.clone()),
        (SCORER, "qwen3.embedding_length", huge.clone()),
        (SCORER, "qwen3.attention.head_count", Value::U32(0)),
        (SCORER, "qwen3.attention.head_count_kv", Value::U32(3)),
        (SCORER, "qwen3.context_length", huge),
        (SCORER, "qwen3.rope.dimension_count", Value::U32(127)),
        (SCORER, "qwen3.rope.freq_base", Value::F32(f32::NAN)),
        (SCORER, "qwen3.rope.freq_base", Value::F32(0.0)),
        (SCORER, "qwen3.attention.layer_norm_rms_epsilon", Value::F32(-1.0)),
        (TARGET, "qwen35.nextn_predict_layers", Value::U32(8)),
        (TARGET, "qwen35.ssm.time_step_rank", Value::U32(3)),
        (TARGET, "qwen35.ssm.conv_kernel", Value::U32(1)),
        (TARGET, "qwen35.full_attention_interval", Value::U32(0)),
        (TARGET, "qwen35.attention.recurrent_layers", Value::Array(Array::bools(&[true]))),
    ] {
        let fault = fault_of_key(model, key, Some(value));
        assert!(matches!(fault, ModelFault::BadSetting { .. }), "{key}: {fault}");
    }
}

#[test]
fn a_setting_of_the_wrong_type_is_a_format_fault() {
    let key = "qwen3.block_count";
    let result = load_changed(SCORER, &[(key, Some(Value::string("six")))], &same);
    assert!(matches!(result, Err(Error::Format { .. })), "{result:?}");
}

#[test]
fn every_missing_tensor_is_named() {
    for model in [SCORER, TARGET] {
        let source = GgufFile::open(&nano(model), &OpenOptions::default()).unwrap();
        // One of each kind: the layers repeat.
        let first =
            |n: &str| !n.starts_with("blk.") || n.starts_with("blk.0.") || n.starts_with("blk.3.");
        for name in source.tensors().iter().map(TensorInfo::name).filter(|n| first(n)) {
            let gone = |info: &TensorInfo| match info.name() == name {
                true => Tensor::Gone,
                false => Tensor::Same,
            };
            match model_fault(load_changed(model, &[], &gone)) {
                ModelFault::MissingTensor(found) => assert_eq!(found, name),
                other => panic!("{name}: {other}"),
            }
        }
    }
}

fn replaced(name: &'static str, dtype: DType, dims: &[usize], byte: u8) -> Result<(), Error> {
    let shape = Shape::new(dims).unwrap();
    let bytes = vec![byte; dtype.bytes_for(shape.row_len()).unwrap() * shape.rows()];
    load_changed(SCORER, &[], &move |info| match info.name() == name {
        true => Tensor::As(dtype, shape, bytes.clone()),
        false => Tensor::Same,
    })
}

#[test]
fn wrong_shapes_and_types_are_named() {
    let cases: [(&str, DType, &[usize]); 4] = [
        ("blk.2.attn_q.weight", DType::F32, &[512, 128]),
        ("blk.2.attn_q.weight", DType::F32, &[256, 512]),
        ("blk.0.attn_norm.weight", DType::F32, &[255]),
        ("output_norm.weight", DType::F32, &[2, 256]),
    ];
    for (name, dtype, dims) in cases {
        match model_fault(replaced(name, dtype, dims, 0)) {
            ModelFault::WrongShape { tensor, found, .. } => {
                assert_eq!((tensor.as_str(), found.dims()), (name, dims));
            }
            other => panic!("{name}: {other}"),
        }
    }
    let fault = model_fault(replaced("blk.1.ffn_up.weight", DType::IQ2_XS, &[768, 256], 0));
    assert!(
        matches!(&fault, ModelFault::WeightRefused { tensor, .. } if tensor == "blk.1.ffn_up.weight")
    );
    assert!(fault.to_string().contains("IQ2_XS"), "{fault}");
    let fault = model_fault(replaced("blk.1.attn_norm.weight", DType::IQ2_XS, &[256], 0));
    assert!(matches!(fault, ModelFault::NotNumeric { dtype: DType::IQ2_XS, .. }), "{fault}");
    // All bits set is a NaN.
    let fault = model_fault(replaced("blk.1.attn_norm.weight", DType::F32, &[256], 0xff));
    assert!(matches!(fault, ModelFault::NotFinite(_)), "{fault}");
}

#[test]
fn a_vocabulary_larger_than_the_table_is_refused() {
    let fault = model_fault(replaced("token_embd.weight", DType::F16, &[8000, 256], 0));
    assert_eq!(fault, ModelFault::VocabMismatch { tokenizer: 8192, table: 8000 });
}

#[test]
fn a_model_that_does_not_fit_is_refused_before_it_is_loaded() {
    let options = CpuOptions { memory_limit: Some(1 << 20), ..CpuOptions::default() };
    let device = CpuDriver::new(options).open(0).unwrap();
    let session = Some(SessionOptions::new(32768));
    let path = nano(SCORER);
    let result = Engine::load(&path, device, &EngineOptions::default(), session, &mut |_| {
        panic!("nothing may be planned or loaded")
    });
    match result.map(drop) {
        Err(Error::Generate(GenerateFault::DoesNotFit { needed, free, .. })) => {
            assert!(needed > free && free <= 1 << 20);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn session_options_are_checked() {
    let device = CpuDriver::new(CpuOptions::default()).open(0).unwrap();
    let path = nano(SCORER);
    let engine = Engine::load(&path, device, &EngineOptions::default(), None, &mut |_| {}).unwrap();
    let base = SessionOptions::new(512);
    let fault = |options| match engine.session(options).map(drop) {
        Err(Error::Generate(fault)) => fault,
        other => panic!("{other:?}"),
    };
    for context in [0, 32769, usize::MAX] {
        let fault = fault(SessionOptions { context, ..base });
        assert_eq!(fault, GenerateFault::BadContext { asked: context, max: 32768 });
    }
    for chunk in [0, 1, 63, 65, 8256, usize::MAX] {
        let fault = fault(SessionOptions { chunk, ..base });
        assert!(matches!(fault, GenerateFault::BadChunk { .. }), "{fault}");
    }
    for logit_rows in [0, 513] {
        let fault = fault(SessionOptions { logit_rows, ..base });
        assert!(matches!(fault, GenerateFault::TooManyRows { .. }), "{fault}");
    }
}
