//! GGUF files that are wrong in one way each, and the fault each must give.

mod format_support;

use foretoken::format::{
    FormatFault as F, GgufFile, Kind, OpenOptions, SafetensorsModel, TensorSource, ValueType,
};
use foretoken::tensor::DType;
use format_support::{Raw, fault_of, gguf, gguf_fault};

const HUGE: u64 = 1 << 40;
const STR: u32 = 8;
const ARRAY: u32 = 9;
const U32: u32 = 4;

/// One F32 tensor of `dims` at offset 0 with as much data as asked for.
fn one_tensor(dims: &[u64], kind: u32, data: usize) -> Vec<u8> {
    Raw::head(1, 0).tensor("t", dims, kind, 0).data(32, data).0
}

fn t() -> String {
    "t".to_owned()
}

/// Negative control for every table below: the same builder makes files that open.
#[test]
fn sound_files_open() {
    let empty = gguf(Raw::head(0, 0).0).unwrap();
    assert!(empty.tensors().is_empty() && empty.metadata().is_empty());
    assert_eq!((empty.version(), empty.alignment(), empty.shards()), (3, 32, 1));
    let v2 = Raw(b"GGUF".to_vec()).u32(2).u64(0).u64(0);
    assert_eq!(gguf(v2.0).unwrap().version(), 2);
    let one = gguf(one_tensor(&[4, 2], 0, 32)).unwrap();
    assert_eq!(one.require("t").unwrap().shape().dims(), [2, 4]);
    // Bytes after the last tensor do no harm.
    assert!(gguf(one_tensor(&[4, 2], 0, 1000)).is_ok());
}

#[test]
fn files_that_are_something_else() {
    assert_eq!(gguf_fault(vec![]), F::Empty);
    assert_eq!(gguf_fault(b"PK\x03\x04rest".to_vec()), F::NotGguf { magic: *b"PK\x03\x04" });
    assert_eq!(gguf_fault(vec![0; 64]), F::NotGguf { magic: [0; 4] });
    assert_eq!(gguf_fault(b"FUGG\x03\0\0\0".to_vec()), F::NotGguf { magic: *b"FUGG" });
    for version in [0, 1, 4, 5, 0xffff, u32::MAX] {
        let file = Raw(b"GGUF".to_vec()).u32(version).u64(0).u64(0);
        assert_eq!(gguf_fault(file.0), F::Version { version });
    }
    for version in [2u32, 3] {
        let file = Raw(b"GGUF".to_vec()).u32(version.swap_bytes()).u64(0).u64(0);
        assert_eq!(gguf_fault(file.0), F::BigEndian);
    }
}

#[test]
fn more_tensors_than_any_model_has_are_refused() {
    let limit = 200_000;
    let file = |count: u64| {
        (0..count).fold(Raw::head(count, 0), |raw, i| raw.tensor(format!("{i:x}"), &[8], 0, 32 * i))
    };
    let data = vec![0; 32 * limit];
    let most = file(limit as u64);
    let padding = most.0.len().next_multiple_of(32) - most.0.len();
    let sound = gguf(most.bytes(&[0; 32][..padding]).bytes(&data).0).unwrap();
    assert_eq!(sound.tensors().len(), limit);
    let count = limit as u64 + 1;
    assert_eq!(gguf_fault(file(count).0), F::TooManyTensors { count, limit });
}

/// A file to be read, not mapped, is looked at first.
#[test]
fn a_file_that_starts_wrong_is_not_read_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sparse.gguf");
    std::fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
    let opts = OpenOptions { mmap: false };
    let fault = fault_of(GgufFile::open(&path, &opts).err(), "sparse.gguf");
    assert_eq!(fault, F::NotGguf { magic: [0; 4] });
    let fault = fault_of(SafetensorsModel::open(&path, &opts).err(), "sparse.gguf");
    assert!(matches!(fault, F::Json { .. }), "{fault:?}");
}

#[test]
fn counts_are_never_believed() {
    for n in [1, 2, 1000, HUGE, 1 << 62, u64::MAX] {
        let what = "the tensor list".to_owned();
        assert_eq!(gguf_fault(Raw::head(n, 0).0), F::Count { what, count: n, room: 0 });
        let what = "the metadata".to_owned();
        assert_eq!(gguf_fault(Raw::head(0, n).0), F::Count { what, count: n, room: 0 });
        for element in [0, 6, 7, STR, ARRAY, 12] {
            let file = Raw::head(0, 1).key("a", ARRAY).u32(element).u64(n);
            let what = "the array 'a'".to_owned();
            assert_eq!(gguf_fault(file.0), F::Count { what, count: n, room: 0 });
        }
        let file = Raw::head(0, 1).key("k", STR).u64(n).data(1, 0);
        let what = "the value of 'k'".to_owned();
        let fault = gguf_fault(file.0);
        assert_eq!(fault, F::Truncated { what, at: 45, need: n, left: 0 });
        // The length of a key and of a tensor name.
        let file = Raw::head(0, 1).u64(n.max(100)).bytes(&[b'x'; 20]);
        assert!(matches!(gguf_fault(file.0), F::Truncated { .. }));
        let file = Raw::head(1, 0).u64(n.max(100)).bytes(&[b'x'; 20]);
        assert!(matches!(gguf_fault(file.0), F::Truncated { .. }));
    }
}

#[test]
fn keys() {
    let entry = |key: &[u8]| Raw::head(0, 1).key(key, 0).bytes(&[1]).0;
    assert!(gguf(entry(b"k")).is_ok());
    assert!(gguf(entry("clé".as_bytes())).is_ok());
    assert!(gguf(entry(&[b'k'; 65535])).is_ok());
    assert_eq!(gguf_fault(entry(b"")), F::EmptyKey { index: 0 });
    let what = "the key of metadata entry 0".to_owned();
    assert_eq!(gguf_fault(entry(b"a\xff")), F::InvalidUtf8 { what: what.clone() });
    let fault = F::StringTooLong { what, len: 65536, limit: 65535 };
    assert_eq!(gguf_fault(entry(&[b'k'; 65536])), fault);
    let twice = Raw::head(0, 2).key("k", 0).bytes(&[1]).key("k", 0).bytes(&[1]);
    assert_eq!(gguf_fault(twice.0), F::DuplicateKey { key: "k".into() });
    // A key that would break the line, or forge one, is escaped in the message.
    let forged = Raw::head(0, 1).key("a\nerror: \x1b[31m", 99);
    assert!(matches!(gguf_fault(forged.data(1, 9).0), F::UnknownValueType { id: 99, .. }));
}

#[test]
fn values() {
    let key = || "k".to_owned();
    for id in [13, 14, 255, u32::MAX] {
        let file = Raw::head(0, 1).key("k", id).data(1, 16);
        assert_eq!(gguf_fault(file.0), F::UnknownValueType { key: key(), id });
        let file = Raw::head(0, 1).key("k", ARRAY).u32(id).u64(0);
        assert_eq!(gguf_fault(file.0), F::UnknownValueType { key: key(), id });
    }
    for byte in [2, 128, 255] {
        let file = Raw::head(0, 1).key("k", 7).bytes(&[byte]);
        assert_eq!(gguf_fault(file.0), F::BadBool { key: key(), byte });
        let file = Raw::head(0, 1).key("k", ARRAY).u32(7).u64(3).bytes(&[0, 1, byte]);
        assert_eq!(gguf_fault(file.0), F::BadBool { key: key(), byte });
    }
    // Every string of an array is held against the end of the file.
    let file = Raw::head(0, 1).key("k", ARRAY).u32(STR).u64(2).str("ab").u64(HUGE);
    let what = "the array 'k'".to_owned();
    assert_eq!(gguf_fault(file.0), F::Truncated { what, at: 67, need: HUGE, left: 0 });
}

#[test]
fn a_string_past_the_cap_is_refused_though_it_is_all_there() {
    let file = |n: usize| Raw::head(0, 1).key("k", STR).u64(n as u64).data(1, n).0;
    let limit = 64 << 20;
    let what = "the value of 'k'".to_owned();
    let fault = F::StringTooLong { what, len: limit + 1, limit };
    assert_eq!(gguf_fault(file(limit as usize + 1)), fault);
    assert!(gguf(file(limit as usize)).is_ok());
}

#[test]
fn arrays_nest_a_little() {
    let nested = |depth: usize| {
        let mut file = Raw::head(0, 1).key("k", ARRAY);
        for _ in 1..depth {
            file = file.u32(ARRAY).u64(1);
        }
        file.u32(0).u64(1).bytes(&[7]).0
    };
    let four = gguf(nested(4)).unwrap();
    assert_eq!(four.metadata().get("k").unwrap().to_string(), "[[[[7]]]]");
    for depth in [5, 6, 1000] {
        let fault = F::NestedTooDeep { key: "k".into(), limit: 4 };
        assert_eq!(gguf_fault(nested(depth)), fault);
    }
}

#[test]
fn alignments() {
    let file = |alignment: u32, offset: u64, data: usize| {
        let head = Raw::head(2, 1).key("general.alignment", U32).u32(alignment);
        let head = head.tensor("a", &[1], 24, 0).tensor("b", &[3], 24, offset);
        head.data(alignment.clamp(1, 1 << 20) as usize, data).0
    };
    for shift in 0..=20 {
        let a = 1u32 << shift;
        let model = gguf(file(a, a.into(), a as usize + 3)).unwrap();
        assert_eq!(model.alignment(), a);
        assert_eq!(model.data(model.require("b").unwrap()).len(), 3);
        if a > 1 {
            let (offset, alignment) = (u64::from(a) + 1, a);
            let fault = F::Misaligned { tensor: "b".into(), offset, alignment };
            assert_eq!(gguf_fault(file(a, offset, a as usize + 4)), fault);
        }
    }
    for alignment in [0, 3, 24, 33, (1 << 20) + 1, 1 << 21, 1 << 31, u32::MAX] {
        let fault = F::BadAlignment { alignment, limit: 1 << 20 };
        assert_eq!(gguf_fault(file(alignment, 1 << 21, 64)), fault);
    }
}

#[test]
fn the_alignment_must_be_a_u32() {
    let file =
        |kind: u32, value: &[u8]| Raw::head(0, 1).key("general.alignment", kind).bytes(value).0;
    assert!(gguf(file(U32, &32u32.to_le_bytes())).is_ok());
    let wrong: [(u32, &[u8], ValueType); 5] = [
        (5, &32i32.to_le_bytes(), ValueType::I32),
        (10, &HUGE.to_le_bytes(), ValueType::U64),
        (6, &32f32.to_le_bytes(), ValueType::F32),
        (0, &[32], ValueType::U8),
        (8, b"\x02\0\0\0\0\0\0\x0032", ValueType::Str),
    ];
    for (kind, value, found) in wrong {
        let key = "general.alignment".to_owned();
        let fault = F::WrongType { key, found: Kind::One(found), wanted: "u32" };
        assert_eq!(gguf_fault(file(kind, value)), fault);
    }
}

#[test]
fn tensor_names() {
    let file = |name: &[u8]| Raw::head(1, 0).tensor(name, &[1], 0, 0).data(32, 4).0;
    assert!(gguf(file(b"t")).is_ok());
    assert_eq!(gguf_fault(file(b"")), F::EmptyTensorName { index: 0 });
    let what = "the name of tensor 0".to_owned();
    assert_eq!(gguf_fault(file(b"\xc3")), F::InvalidUtf8 { what: what.clone() });
    let fault = F::StringTooLong { what, len: 65536, limit: 65535 };
    assert_eq!(gguf_fault(file(&[b'n'; 65536])), fault);
    for second in [0, 32] {
        let head = Raw::head(2, 0).tensor("t", &[1], 0, 0).tensor("t", &[1], 0, second);
        assert_eq!(gguf_fault(head.data(32, 64).0), F::DuplicateTensor { tensor: t() });
    }
}

#[test]
fn tensor_dimensions() {
    for dims in 1..=4 {
        let model = gguf(one_tensor(&[1, 1, 1, 1][..dims], 0, 4)).unwrap();
        assert_eq!(model.tensors()[0].shape().dims().len(), dims);
    }
    let rank = |n: u32| Raw::head(1, 0).str("t").u32(n).data(1, 64).0;
    for n in [0, 5, 6, 1_000_000, u32::MAX] {
        assert_eq!(gguf_fault(rank(n)), F::BadRank { tensor: t(), dims: n.into(), limit: 4 });
    }
    for dims in [&[0][..], &[4, 0], &[0, 4], &[4, 4, 0, 4]] {
        assert_eq!(gguf_fault(one_tensor(dims, 0, 64)), F::ZeroDim { tensor: t() });
    }
    // Products that wrap around to something small.
    for dims in [&[1 << 32, 1 << 32][..], &[1 << 62, 4], &[u64::MAX, 2], &[HUGE; 4]] {
        assert_eq!(gguf_fault(one_tensor(dims, 0, 64)), F::SizeOverflow { tensor: t() });
    }
    // Elements that fit, bytes that do not: 2^62 + 1 floats would wrap to 4 bytes.
    let dims = [(1 << 62) + 1];
    assert_eq!(gguf_fault(one_tensor(&dims, 0, 64)), F::SizeOverflow { tensor: t() });
}

#[test]
fn tensor_types() {
    for id in [4, 5, 31, 32, 33, 36, 37, 38, 43, 100, u32::MAX] {
        let fault = F::UnknownTensorType { tensor: t(), id };
        assert_eq!(gguf_fault(one_tensor(&[256], id, 4096)), fault);
    }
    for &dtype in DType::ALL {
        let row = dtype.block_len();
        let bytes = dtype.block_bytes();
        let file = |dims: &[u64], data| one_tensor(dims, dtype.ggml_id(), data);
        let model = gguf(file(&[row as u64, 3], 3 * bytes)).unwrap();
        assert_eq!((model.tensors()[0].dtype(), model.tensors()[0].bytes()), (dtype, 3 * bytes));
        // One byte short.
        assert!(matches!(gguf_fault(file(&[row as u64, 3], 3 * bytes - 1)), F::OutOfFile { .. }));
        if row > 1 {
            // A row of one element and a half block, though the whole is whole blocks.
            for dims in [[1, row as u64], [row as u64 / 2, 2]] {
                let row = dims[0] as usize;
                let fault = F::PartialBlocks { tensor: t(), dtype, row };
                assert_eq!(gguf_fault(file(&dims, 4096)), fault);
            }
        }
    }
}

#[test]
fn tensor_offsets() {
    let file = |a: u64, b: u64| {
        Raw::head(2, 0).tensor("a", &[16], 0, a).tensor("b", &[16], 0, b).data(32, 128).0
    };
    // In either order, since nothing says that infos come in the order of the data.
    for (a, b) in [(0, 64), (64, 0)] {
        let model = gguf(file(a, b)).unwrap();
        assert_eq!(model.tensors()[0].name(), "a");
    }
    for (a, b) in [(0, 0), (0, 32), (32, 0)] {
        assert!(matches!(gguf_fault(file(a, b)), F::Overlap { .. }), "{a} {b}");
    }
    for offset in [96, 128, HUGE, 1 << 63, u64::MAX - 31] {
        let tensor = "b".to_owned();
        let fault = F::OutOfFile { tensor, offset, bytes: 64, room: 128 };
        assert_eq!(gguf_fault(file(0, offset)), fault);
    }
    let fault = F::Misaligned { tensor: "b".into(), offset: 65, alignment: 32 };
    assert_eq!(gguf_fault(file(0, 65)), fault);
    // No data at all, not even padding.
    let bare = Raw::head(1, 0).tensor("t", &[1], 0, 0);
    let fault = F::OutOfFile { tensor: t(), offset: 0, bytes: 4, room: 0 };
    assert_eq!(gguf_fault(bare.0), fault);
}

/// A file with something of everything.
fn rich() -> (Vec<u8>, usize) {
    let head = Raw::head(2, 6)
        .key("general.architecture", STR)
        .str("nano")
        .key("n", U32)
        .u32(7)
        .key("f", 6)
        .bytes(&1f32.to_le_bytes())
        .key("b", ARRAY)
        .u32(7)
        .u64(2)
        .bytes(&[0, 1])
        .key("tokens", ARRAY)
        .u32(STR)
        .u64(3)
        .str("a")
        .str("")
        .str(b"c\xff")
        .key("nested", ARRAY)
        .u32(ARRAY)
        .u64(1)
        .u32(10)
        .u64(1)
        .u64(5)
        .tensor("x", &[32, 2], 8, 0)
        .tensor("y", &[4], 0, 96);
    let end = head.0.len();
    (head.data(32, 112).0, end)
}

#[test]
fn every_truncation_is_an_error() {
    let (whole, head) = rich();
    assert!(gguf(whole.clone()).is_ok());
    for n in 0..whole.len() {
        let fault = gguf_fault(whole[..n].to_vec());
        match fault {
            F::Empty => assert_eq!(n, 0),
            F::Truncated { .. } | F::Count { .. } => assert!(n < head, "{n}: {fault:?}"),
            F::OutOfFile { .. } => assert!(n >= head, "{n}: {fault:?}"),
            other => panic!("cut at {n}: {other:?}"),
        }
    }
}

#[test]
fn values_read_back() {
    let (bytes, _) = rich();
    let model = gguf(bytes).unwrap();
    let tokens = model.metadata().require_str_array("tokens").unwrap();
    assert_eq!(tokens.iter().collect::<Vec<_>>(), [&b"a"[..], b"", b"c\xff"]);
    let shown: Vec<String> = model.metadata().iter().map(|(k, v)| format!("{k}={v}")).collect();
    let wanted = [
        "general.architecture=\"nano\"",
        "n=7",
        "f=1",
        "b=[false, true]",
        "tokens=[\"a\", \"\", \"c\u{fffd}\"]",
        "nested=[[5]]",
    ];
    assert_eq!(shown, wanted);
}
