//! safetensors files and folders that are wrong in one way each.

mod format_support;

use std::fs;
use std::path::Path;

use foretoken::format::{FormatFault as F, OpenOptions, SafetensorsModel, TensorSource};
use foretoken::tensor::{DType, Shape};
use format_support::{fault_of, safetensors, safetensors_bytes, safetensors_fault};

/// One entry of a header.
fn entry(name: &str, dtype: &str, shape: &str, start: u64, end: u64) -> String {
    format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{start},{end}]}}"#)
}

/// A file of these entries.
fn file(entries: &[String], data: usize) -> Vec<u8> {
    safetensors_bytes(&format!("{{{}}}", entries.join(",")), data)
}

fn one(dtype: &str, shape: &str, data: usize) -> Vec<u8> {
    file(&[entry("t", dtype, shape, 0, data as u64)], data)
}

fn t() -> String {
    "t".to_owned()
}

#[test]
fn sound_files_open() {
    let none = safetensors(safetensors_bytes("{}", 0)).unwrap();
    assert!(none.tensors().is_empty() && none.config().is_none());
    let bytes = file(
        &[
            r#""__metadata__":{"format":"pt"}"#.to_owned(),
            entry("b", "F32", "[2,3]", 8, 32),
            entry("a", "BF16", "[4]", 0, 8),
            entry("none", "F32", "[0,3]", 8, 8),
            entry("scalar", "I64", "[]", 32, 40),
        ],
        40,
    );
    let model = safetensors(bytes).unwrap();
    let names: Vec<&str> = model.tensors().iter().map(|t| t.name()).collect();
    assert_eq!(names, ["b", "a", "scalar"]);
    let b = model.require_shaped("b", Shape::new(&[2, 3]).unwrap()).unwrap();
    assert_eq!((b.dtype(), b.bytes(), model.data(b).len()), (DType::F32, 24, 24));
    assert_eq!(model.require("scalar").unwrap().shape().dims(), [1]);
    // Writers pad the header with spaces to align the data.
    assert!(safetensors(safetensors_bytes("{}      ", 0)).is_ok());
}

#[test]
fn types() {
    for (name, dtype, size) in [
        ("F64", DType::F64, 8),
        ("F32", DType::F32, 4),
        ("F16", DType::F16, 2),
        ("BF16", DType::BF16, 2),
        ("I64", DType::I64, 8),
        ("I32", DType::I32, 4),
        ("I16", DType::I16, 2),
        ("I8", DType::I8, 1),
    ] {
        let model = safetensors(one(name, "[3]", 3 * size)).unwrap();
        assert_eq!(model.require("t").unwrap().dtype(), dtype);
        let (found, wanted) = (3 * size as u64 + 1, 3 * size as u64);
        let fault = F::BadLength { tensor: t(), dtype: name.to_owned(), found, wanted };
        assert_eq!(safetensors_fault(one(name, "[3]", 3 * size + 1)), fault);
    }
    // Known to the format but not to the engine: the file opens, the tensor does not.
    for (name, bytes) in [
        ("BOOL", 4),
        ("U8", 4),
        ("U16", 8),
        ("U32", 16),
        ("U64", 32),
        ("C64", 32),
        ("F8_E4M3", 4),
        ("F8_E5M2", 4),
        ("F8_E8M0", 4),
        ("F6_E2M3", 3),
        ("F4", 2),
    ] {
        let model = safetensors(one(name, "[4]", bytes)).unwrap();
        assert!(model.tensors().is_empty() && model.tensor("t").is_none());
        let fault = fault_of(model.require("t").err(), "bad.safetensors");
        assert_eq!(fault, F::UnsupportedDtype { tensor: t(), dtype: name.to_owned() });
        assert!(matches!(safetensors_fault(one(name, "[4]", 5)), F::BadLength { .. }));
    }
    // Unknown altogether: no length to check.
    let model = safetensors(one("Q9\\n", "[4]", 5)).unwrap();
    let fault = fault_of(model.require("t").err(), "bad.safetensors");
    assert_eq!(fault, F::UnsupportedDtype { tensor: t(), dtype: "Q9\n".into() });
    let absent = fault_of(model.require("u").err(), "bad.safetensors");
    assert_eq!(absent, F::MissingTensor { tensor: "u".into() });
}

#[test]
fn shapes() {
    let model = safetensors(one("F32", "[1,2,3,4]", 96)).unwrap();
    let (found, wanted) = (Shape::new(&[1, 2, 3, 4]).unwrap(), Shape::new(&[24]).unwrap());
    let fault = fault_of(model.require_shaped("t", wanted).err(), "bad.safetensors");
    let (found, wanted) = (Box::new(found), Box::new(wanted));
    assert_eq!(fault, F::WrongShape { tensor: t(), found, wanted });
    // Five dimensions are sound in a vision tower, and of no use here.
    let model = safetensors(one("F32", "[1,1,1,1,2]", 8)).unwrap();
    let fault = fault_of(model.require("t").err(), "bad.safetensors");
    assert_eq!(fault, F::BadRank { tensor: t(), dims: 5, limit: 4 });
    let model = safetensors(one("F32", "[0]", 0)).unwrap();
    let fault = fault_of(model.require("t").err(), "bad.safetensors");
    assert_eq!(fault, F::ZeroDim { tensor: t() });
    for shape in ["[4294967296,4294967296]", "[4611686018427387905]", "[18446744073709551615,2]"] {
        assert_eq!(safetensors_fault(one("F32", shape, 4)), F::SizeOverflow { tensor: t() });
    }
    let many = format!("[{}]", vec!["1"; 65].join(","));
    for shape in ["[-1]", "[1.5]", "[18446744073709551616]", "\"4\"", "4", "null", "[[1]]", &many] {
        let fault = safetensors_fault(one("F32", shape, 4));
        let F::Json { detail, .. } = &fault else { panic!("{shape}: {fault:?}") };
        assert!(detail.contains("'t'"), "{detail}");
    }
}

#[test]
fn offsets() {
    let two = |a: (u64, u64), b: (u64, u64), data| {
        let len = |r: (u64, u64)| format!("[{}]", r.1.saturating_sub(r.0));
        file(&[entry("a", "I8", &len(a), a.0, a.1), entry("b", "I8", &len(b), b.0, b.1)], data)
    };
    assert!(safetensors(two((0, 4), (4, 8), 8)).is_ok());
    assert!(safetensors(two((4, 8), (0, 4), 8)).is_ok());
    let overlap = F::Overlap { first: "a".into(), second: "b".into() };
    assert_eq!(safetensors_fault(two((0, 5), (4, 8), 8)), overlap);
    assert_eq!(safetensors_fault(two((0, 8), (0, 8), 8)), overlap);
    assert_eq!(safetensors_fault(two((0, 4), (5, 8), 8)), F::Hole { start: 4, end: 5 });
    assert_eq!(safetensors_fault(two((1, 4), (4, 8), 8)), F::Hole { start: 0, end: 1 });
    assert_eq!(safetensors_fault(two((0, 4), (4, 8), 9)), F::Hole { start: 8, end: 9 });
    assert_eq!(safetensors_fault(safetensors_bytes("{}", 1)), F::Hole { start: 0, end: 1 });
    let fault = F::BadOffsets { tensor: "b".into(), start: 8, end: 4 };
    assert_eq!(safetensors_fault(two((0, 4), (8, 4), 8)), fault);
    for end in [9, 1 << 40, u64::MAX] {
        let fault = F::OutOfFile { tensor: "b".into(), offset: 4, bytes: end - 4, room: 8 };
        assert_eq!(safetensors_fault(two((0, 4), (4, end), 8)), fault);
    }
}

#[test]
fn names() {
    let twice = file(&[entry("t", "I8", "[1]", 0, 1), entry("t", "I8", "[1]", 1, 2)], 2);
    assert_eq!(safetensors_fault(twice), F::DuplicateTensor { tensor: t() });
    // The same name in two spellings.
    let twice = file(&[entry("t", "I8", "[1]", 0, 1), entry("\\u0074", "I8", "[1]", 1, 2)], 2);
    assert_eq!(safetensors_fault(twice), F::DuplicateTensor { tensor: t() });
    let empty = file(&[entry("", "I8", "[1]", 0, 1)], 1);
    assert_eq!(safetensors_fault(empty), F::EmptyTensorName { index: 0 });
}

#[test]
fn headers() {
    for len in [100_000_001u64, 1 << 40, u64::MAX] {
        let mut bytes = len.to_le_bytes().to_vec();
        bytes.extend_from_slice(b"{}");
        assert_eq!(safetensors_fault(bytes), F::HeaderTooLong { len, limit: 100_000_000 });
    }
    for bad in [
        "",
        " {}",
        "[]",
        "null",
        "\"x\"",
        "{",
        "{}}",
        "{}\0\0",
        "{\"t\":1}",
        "{\"t\":[]}",
        "{\"t\":{}}",
        "{\"t\":{\"dtype\":1,\"shape\":[],\"data_offsets\":[0,0]}}",
        "{\"t\":{\"dtype\":\"I8\",\"shape\":[],\"data_offsets\":[0]}}",
        "{\"t\":{\"dtype\":\"I8\",\"shape\":[],\"data_offsets\":[0,1,2]}}",
        "{\"t\":{\"dtype\":\"I8\",\"dtype\":\"I8\",\"shape\":[],\"data_offsets\":[0,1]}}",
        "{\"t\":{\"dtype\":\"I8\",\"shape\":[],\"data_offsets\":[-1,0]}}",
        "{\"t\":{\"shape\":[],\"data_offsets\":[0,0]}}",
        "{\"__metadata__\":{\"a\":1}}",
        "{\"__metadata__\":[]}",
        "{\"__metadata__\":{},\"__metadata__\":{}}",
        "{\"a\nb\":1}",
    ] {
        let fault = safetensors_fault(safetensors_bytes(bad, 1));
        assert!(matches!(fault, F::Json { .. }), "{bad}: {fault:?}");
    }
    let mut not_text = safetensors_bytes("{\"x\":{}}", 0);
    not_text[10] = 0xff;
    assert!(matches!(safetensors_fault(not_text), F::Json { .. }));
    // Deep nesting ends in an error, not in the end of the stack.
    let deep = format!("{{\"t\":{}", "[".repeat(1_000_000));
    assert!(matches!(safetensors_fault(safetensors_bytes(&deep, 0)), F::Json { .. }));
    let deep = format!("{{\"t\":{{\"other\":{}", "{\"a\":".repeat(200_000));
    assert!(matches!(safetensors_fault(safetensors_bytes(&deep, 0)), F::Json { .. }));
}

#[test]
fn every_truncation_is_an_error() {
    let entries = [entry("a", "BF16", "[4]", 0, 8), entry("b", "F32", "[2,3]", 8, 32)];
    let whole = file(&entries, 32);
    assert!(safetensors(whole.clone()).is_ok());
    for n in 0..whole.len() {
        let fault = safetensors_fault(whole[..n].to_vec());
        let header = whole.len() - 32;
        match fault {
            F::Empty => assert_eq!(n, 0),
            F::Truncated { .. } => assert!(n < header, "{n}: {fault:?}"),
            F::OutOfFile { .. } => assert!(n >= header, "{n}: {fault:?}"),
            other => panic!("cut at {n}: {other:?}"),
        }
    }
}

fn open(path: &Path) -> Result<SafetensorsModel, foretoken::Error> {
    SafetensorsModel::open(path, &OpenOptions::default())
}

/// A folder with two shards and an index; returns it with the index's path.
fn sharded() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let shard = |name: &str, tensor: &str| {
        let bytes = file(&[entry(tensor, "I8", "[4]", 0, 4)], 4);
        fs::write(dir.path().join(name), bytes).unwrap();
    };
    shard("s1.safetensors", "a");
    shard("s2.safetensors", "b");
    index(dir.path(), r#"{"a":"s1.safetensors","b":"s2.safetensors"}"#);
    dir
}

fn index(dir: &Path, map: &str) {
    let text = format!(r#"{{"metadata":{{"total_size":8}},"weight_map":{map}}}"#);
    fs::write(dir.join("model.safetensors.index.json"), text).unwrap();
}

#[test]
fn folders() {
    let dir = sharded();
    let model = open(dir.path()).unwrap();
    assert_eq!(model.tensors().len(), 2);
    assert!(model.config().is_none());
    fs::write(dir.path().join("config.json"), r#"{"hidden_size":4}"#).unwrap();
    assert_eq!(open(dir.path()).unwrap().config().unwrap()["hidden_size"], 4);
    assert_eq!(
        open(&dir.path().join("s1.safetensors")).unwrap().config().unwrap()["hidden_size"],
        4
    );
    // A whole model beside an index wins; without both, a single file will do.
    let whole = file(&[entry("c", "I8", "[1]", 0, 1)], 1);
    fs::write(dir.path().join("model.safetensors"), &whole).unwrap();
    assert!(open(dir.path()).unwrap().tensor("c").is_some());
    let other = tempfile::tempdir().unwrap();
    let fault = fault_of(open(other.path()).err(), &other.path().to_string_lossy());
    assert_eq!(fault, F::NoWeights);
    fs::write(other.path().join("any.safetensors"), &whole).unwrap();
    assert!(open(other.path()).unwrap().tensor("c").is_some());
    fs::write(other.path().join("more.safetensors"), &whole).unwrap();
    let fault = fault_of(open(other.path()).err(), &other.path().to_string_lossy());
    assert_eq!(fault, F::NoWeights);
}

#[test]
fn shards_that_do_not_fit_together() {
    let dir = sharded();
    fs::remove_file(dir.path().join("s2.safetensors")).unwrap();
    assert_eq!(fault_of(open(dir.path()).err(), "s2.safetensors"), F::MissingIndexed);

    let dir = sharded();
    index(dir.path(), r#"{"a":"s1.safetensors","z":"s2.safetensors"}"#);
    let fault = fault_of(open(dir.path()).err(), "s2.safetensors");
    assert_eq!(fault, F::NotInShard { tensor: "z".into() });
    // In the model, but not where the index says.
    index(dir.path(), r#"{"a":"s2.safetensors","b":"s1.safetensors"}"#);
    let fault = fault_of(open(dir.path()).err(), "s1.safetensors");
    assert_eq!(fault, F::NotInShard { tensor: "b".into() });

    fs::copy(dir.path().join("s1.safetensors"), dir.path().join("s2.safetensors")).unwrap();
    index(dir.path(), r#"{"a":"s1.safetensors","b":"s2.safetensors"}"#);
    let fault = fault_of(open(dir.path()).err(), "s2.safetensors");
    assert_eq!(fault, F::DuplicateTensor { tensor: "a".into() });
    fs::write(dir.path().join("s2.safetensors"), b"").unwrap();
    assert_eq!(fault_of(open(dir.path()).err(), "s2.safetensors"), F::Empty);
    fs::remove_file(dir.path().join("s2.safetensors")).unwrap();
    fs::create_dir(dir.path().join("s2.safetensors")).unwrap();
    let fault = fault_of(open(dir.path()).err(), "s2.safetensors");
    assert_eq!(fault, F::IsDirectory { wanted: "safetensors" });
}

#[test]
fn an_index_leads_nowhere_else() {
    let dir = sharded();
    let inner = dir.path().join("inner");
    fs::create_dir(&inner).unwrap();
    let absolute = dir.path().join("s1.safetensors").to_string_lossy().into_owned();
    for path in ["../s1.safetensors", &absolute, "x/../../s1.safetensors", "..", "", "a\\\\b"] {
        index(&inner, &format!(r#"{{"a":"{path}"}}"#));
        let fault = fault_of(open(&inner).err(), "model.safetensors.index.json");
        assert_eq!(fault, F::BadShardPath { file: path.replace("\\\\", "\\") });
    }
    let index = inner.join("model.safetensors.index.json");
    for bad in ["", "{}", "[]", r#"{"weight_map":{"a":3}}"#] {
        fs::write(&index, bad).unwrap();
        let fault = fault_of(open(&inner).err(), "model.safetensors.index.json");
        assert!(matches!(fault, F::Json { .. }), "{fault:?}");
    }
}

#[test]
fn more_tensors_than_any_model_has_are_refused() {
    let header = |count: usize| {
        let tensor = |i| format!(r#""{i:x}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}"#);
        let list: Vec<_> = (0..count).map(tensor).collect();
        format!(r#"{{{},"__metadata__":{{}}}}"#, list.join(","))
    };
    let limit = 200_000;
    assert!(safetensors(safetensors_bytes(&header(limit), 0)).is_ok());
    let fault = safetensors_fault(safetensors_bytes(&header(limit + 3), 0));
    assert_eq!(fault, F::TooManyTensors { count: limit as u64 + 3, limit });
}

#[test]
fn configs() {
    let dir = sharded();
    let config = dir.path().join("config.json");
    for bad in ["", "[]", "3", "{", "{\"a\":1}x", "{\"a\":\u{1}}"] {
        fs::write(&config, bad).unwrap();
        assert!(matches!(fault_of(open(dir.path()).err(), "config.json"), F::Json { .. }), "{bad}");
    }
    // Sparse: takes no room on disk.
    fs::File::create(&config).unwrap().set_len((1 << 20) + 1).unwrap();
    let (len, limit) = ((1 << 20) + 1, 1 << 20);
    let fault = F::FileTooLong { what: "config.json", len, limit };
    assert_eq!(fault_of(open(dir.path()).err(), "config.json"), fault);
    fs::remove_file(&config).unwrap();
    fs::create_dir(&config).unwrap();
    assert_eq!(fault_of(open(dir.path()).err(), "config.json"), F::NotRegular);
}

#[test]
fn nothing_there() {
    let dir = tempfile::tempdir().unwrap();
    let absent = dir.path().join("absent.safetensors");
    assert!(matches!(open(&absent), Err(foretoken::Error::Io { .. })));
    let empty = dir.path().join("empty.safetensors");
    fs::write(&empty, b"").unwrap();
    assert_eq!(fault_of(open(&empty).err(), "empty.safetensors"), F::Empty);
}
