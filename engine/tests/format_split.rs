//! GGUF models split over several files, and files that cannot be opened at all.

mod format_support;

use std::fs;
use std::path::{Path, PathBuf};

use foretoken::Error;
use foretoken::format::{FormatFault as F, GgufFile, GgufWriter, OpenOptions, TensorSource, Value};
use foretoken::tensor::{DType, Shape};
use format_support::{fault_of, gguf};

/// One shard: what its keys say and which tensors it holds.
struct Shard<'a> {
    no: Option<u16>,
    count: u16,
    total: Option<i32>,
    tensors: &'a [&'a str],
}

fn write(path: &Path, shard: &Shard<'_>) {
    let mut w = GgufWriter::new(path);
    if shard.no == Some(0) {
        w.metadata("general.architecture", Value::string("nano")).unwrap();
        w.metadata("general.alignment", Value::U32(64)).unwrap();
    }
    if let Some(no) = shard.no {
        w.metadata("split.no", Value::U16(no)).unwrap();
    }
    w.metadata("split.count", Value::U16(shard.count)).unwrap();
    if let Some(total) = shard.total {
        w.metadata("split.tensors.count", Value::I32(total)).unwrap();
    }
    for name in shard.tensors {
        w.tensor(name, DType::I8, Shape::new(&[3]).unwrap()).unwrap();
    }
    let mut body = w.begin(fs::File::create(path).unwrap()).unwrap();
    for name in shard.tensors {
        body.data(&[name.as_bytes()[0]; 3]).unwrap();
    }
    body.finish().unwrap();
}

fn name(no: u32) -> String {
    format!("m-{no:05}-of-00003.gguf")
}

/// A sound model of three shards.
fn model() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (no, tensors) in [(0, &["a", "b"][..]), (1, &["c"]), (2, &["d", "e", "f"])] {
        let shard = Shard { no: Some(no), count: 3, total: Some(6), tensors };
        write(&dir.path().join(name(u32::from(no) + 1)), &shard);
    }
    dir
}

fn open(path: PathBuf) -> Result<GgufFile, Error> {
    GgufFile::open(&path, &OpenOptions::default())
}

/// Replaces the middle shard, opens the first, and gives the fault of the middle one.
fn with_middle(shard: &Shard<'_>) -> F {
    let dir = model();
    write(&dir.path().join(name(2)), shard);
    fault_of(open(dir.path().join(name(1))).err(), &name(2))
}

#[test]
fn any_shard_opens_the_model() {
    let dir = model();
    for no in 1..=3 {
        for mmap in [true, false] {
            let path = dir.path().join(name(no));
            let model = GgufFile::open(&path, &OpenOptions { mmap }).unwrap();
            assert_eq!(model.shards(), 3);
            assert_eq!(model.path(), path);
            assert_eq!(model.alignment(), 64);
            // The metadata is that of the first shard, whichever was opened.
            assert_eq!(model.metadata().require_str("general.architecture").unwrap(), "nano");
            assert_eq!(model.metadata().require_u32("split.no").unwrap(), 0);
            let names: Vec<&str> = model.tensors().iter().map(|t| t.name()).collect();
            assert_eq!(names, ["a", "b", "c", "d", "e", "f"]);
            for t in model.tensors() {
                assert_eq!(&*model.data(t), [t.name().as_bytes()[0]; 3]);
            }
        }
    }
}

#[test]
fn a_missing_shard_is_named() {
    for missing in 1..=3 {
        let dir = model();
        fs::remove_file(dir.path().join(name(missing))).unwrap();
        let opened = if missing == 1 { 2 } else { 1 };
        let fault = fault_of(open(dir.path().join(name(opened))).err(), &name(missing));
        assert_eq!(fault, F::MissingShard { no: missing, count: 3 });
    }
    // In memory there is nowhere to look for the others.
    let dir = model();
    let bytes = fs::read(dir.path().join(name(1))).unwrap();
    let path = Path::new("m-00001-of-00003.gguf");
    let fault = fault_of(GgufFile::from_bytes(path, bytes.into()).err(), &name(2));
    assert_eq!(fault, F::MissingShard { no: 2, count: 3 });
}

#[test]
fn shards_must_be_named_as_they_are_numbered() {
    let dir = model();
    for wrong in ["m.gguf", "m-00003-of-00003.gguf", "m-00002-of-00004.gguf", "m-2-of-3.gguf"] {
        let path = dir.path().join(wrong);
        fs::copy(dir.path().join(name(2)), &path).unwrap();
        assert_eq!(fault_of(open(path).err(), wrong), F::ShardName { no: 2, count: 3 });
    }
}

#[test]
fn wrong_counts() {
    let tensors = &["c"][..];
    let fault = with_middle(&Shard { no: Some(0), count: 3, total: None, tensors });
    assert_eq!(fault, F::ShardMismatch { what: "split.no", found: 0, wanted: 1 });
    let fault = with_middle(&Shard { no: Some(1), count: 4, total: None, tensors });
    assert_eq!(fault, F::ShardMismatch { what: "split.count", found: 4, wanted: 3 });
    let fault = with_middle(&Shard { no: None, count: 3, total: None, tensors });
    assert_eq!(fault, F::MissingKey { key: "split.no".into() });
    let fault = with_middle(&Shard { no: Some(1), count: 3, total: Some(7), tensors });
    let what = "the number of tensors in all shards";
    assert_eq!(fault, F::ShardMismatch { what, found: 6, wanted: 7 });
    let tensors = &["a"][..];
    let fault = with_middle(&Shard { no: Some(1), count: 3, total: None, tensors });
    assert_eq!(fault, F::DuplicateTensor { tensor: "a".into() });

    // A shard too many or too few is noticed by the first one's total.
    let dir = model();
    write(&dir.path().join(name(2)), &Shard { no: Some(1), count: 3, total: None, tensors: &[] });
    let fault = fault_of(open(dir.path().join(name(3))).err(), &name(1));
    assert_eq!(fault, F::ShardMismatch { what, found: 5, wanted: 6 });

    // A number past the count, under a name that agrees with it.
    let path = dir.path().join(name(9));
    write(&path, &Shard { no: Some(8), count: 3, total: None, tensors: &["x"] });
    let fault = fault_of(open(path).err(), &name(9));
    assert_eq!(fault, F::ShardMismatch { what: "split.no", found: 8, wanted: 2 });
}

#[test]
fn wrong_types_of_split_keys() {
    for key in ["split.count", "split.no"] {
        let mut w = GgufWriter::new(Path::new("x"));
        w.metadata(key, Value::string("1")).unwrap();
        if key == "split.no" {
            w.metadata("split.count", Value::U16(2)).unwrap();
        }
        let fault =
            fault_of(gguf(w.begin(Vec::new()).unwrap().finish().unwrap()).err(), "bad.gguf");
        assert!(matches!(fault, F::WrongType { .. }), "{fault:?}");
    }
}

#[test]
fn a_merged_model_is_no_longer_split() {
    let dir = tempfile::tempdir().unwrap();
    for count in [0, 1] {
        let path = dir.path().join("merged.gguf");
        write(&path, &Shard { no: Some(0), count, total: Some(2), tensors: &["a"] });
        assert_eq!(open(path).unwrap().shards(), 1);
    }
}

#[test]
fn a_bad_sibling_is_the_one_named() {
    let dir = model();
    let sibling = dir.path().join(name(2));
    let whole = fs::read(&sibling).unwrap();
    fs::write(&sibling, &whole[..20]).unwrap();
    assert!(matches!(
        fault_of(open(dir.path().join(name(1))).err(), &name(2)),
        F::Truncated { .. }
    ));
    fs::write(&sibling, b"").unwrap();
    assert_eq!(fault_of(open(dir.path().join(name(1))).err(), &name(2)), F::Empty);
    fs::remove_file(&sibling).unwrap();
    fs::create_dir(&sibling).unwrap();
    let fault = fault_of(open(dir.path().join(name(1))).err(), &name(2));
    assert_eq!(fault, F::IsDirectory { wanted: "GGUF" });
}

#[test]
fn things_that_are_no_files() {
    let dir = tempfile::tempdir().unwrap();
    for mmap in [true, false] {
        let opts = OpenOptions { mmap };
        let folder = GgufFile::open(dir.path(), &opts);
        let fault = fault_of(folder.err(), &dir.path().to_string_lossy());
        assert_eq!(fault, F::IsDirectory { wanted: "GGUF" });
        let empty = dir.path().join("empty.gguf");
        fs::write(&empty, b"").unwrap();
        assert_eq!(fault_of(GgufFile::open(&empty, &opts).err(), "empty.gguf"), F::Empty);
        let absent = GgufFile::open(&dir.path().join("absent.gguf"), &opts);
        assert!(matches!(absent, Err(Error::Io { .. })));
    }
}

/// Memory cannot be set aside for a file this long; mapped, only its head is looked at.
#[cfg(target_os = "linux")]
#[test]
fn a_sparse_giant_is_refused_without_reading_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("giant.gguf");
    // The longest file some file systems take; others refuse, which leaves nothing to test.
    let file = fs::File::create(&path).unwrap();
    if file.set_len(1 << 43).is_err() {
        return;
    }
    let fault = fault_of(open(path).err(), "giant.gguf");
    assert_eq!(fault, F::NotGguf { magic: [0; 4] });
}
