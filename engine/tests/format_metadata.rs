//! Typed getters of GGUF metadata, the writer, and both against each other.

mod format_support;

use std::path::Path;

use foretoken::Error;
use foretoken::format::{
    Array, FormatFault as F, GgufFile, GgufWriter, Kind, Metadata, TensorInfo, TensorSource, Value,
    ValueType,
};
use foretoken::tensor::{DType, Shape};
use format_support::{fault_of, gguf};
use proptest::prelude::*;

fn writer() -> GgufWriter {
    GgufWriter::new(Path::new("out.gguf"))
}

fn shape(dims: &[usize]) -> Shape {
    Shape::new(dims).unwrap()
}

/// Writes a file without tensors and reads it back.
fn with(entries: &[(&str, Value)]) -> GgufFile {
    let mut w = writer();
    for (key, value) in entries {
        w.metadata(key, value.clone()).unwrap();
    }
    gguf(w.begin(Vec::new()).unwrap().finish().unwrap()).unwrap()
}

fn wrong<T>(got: Result<T, Error>) -> F {
    fault_of(got.err(), "bad.gguf")
}

#[test]
fn integers_convert_when_they_fit() {
    let all = [
        Value::U8(200),
        Value::U16(200),
        Value::U32(200),
        Value::U64(200),
        Value::I16(200),
        Value::I32(200),
        Value::I64(200),
    ];
    for value in all {
        let file = with(&[("k", value)]);
        let m = file.metadata();
        assert_eq!((m.u32("k").unwrap(), m.u64("k").unwrap()), (Some(200), Some(200)));
        assert_eq!(m.require_i32("k").unwrap(), 200);
    }
    let out_of_range =
        |value: Value, get: fn(&Metadata) -> F, shown: &str, wanted: &'static str| {
            let file = with(&[("k", value)]);
            let fault = F::OutOfRange { key: "k".into(), value: shown.into(), wanted };
            assert_eq!(get(file.metadata()), fault);
        };
    let u32s = "an unsigned 32-bit integer";
    out_of_range(Value::I8(-1), |m| wrong(m.u32("k")), "-1", u32s);
    out_of_range(Value::U64(1 << 40), |m| wrong(m.require_u32("k")), "1099511627776", u32s);
    out_of_range(Value::I64(-7), |m| wrong(m.u64("k")), "-7", "an unsigned 64-bit integer");
    out_of_range(Value::U32(1 << 31), |m| wrong(m.i32("k")), "2147483648", "a 32-bit integer");
    out_of_range(Value::F64(0.1), |m| wrong(m.f32("k")), "0.1", "a 32-bit float");
    out_of_range(Value::F64(1e300), |m| wrong(m.f32("k")), &1e300.to_string(), "a 32-bit float");
    let file = with(&[("k", Value::Array(Array::i32s(&[1, -1])))]);
    let wanted = "an array of unsigned 32-bit integers";
    let fault = F::OutOfRange { key: "k".into(), value: "-1".into(), wanted };
    assert_eq!(wrong(file.metadata().u32_array("k")), fault);
}

#[test]
fn floats_convert_when_exact() {
    let file = with(&[
        ("a", Value::F32(0.1)),
        ("b", Value::F64(0.25)),
        ("inf", Value::F64(f64::INFINITY)),
        ("nan", Value::F64(f64::NAN)),
    ]);
    let m = file.metadata();
    assert_eq!(m.require_f32("a").unwrap(), 0.1);
    assert_eq!(m.require_f64("a").unwrap(), f64::from(0.1f32));
    assert_eq!(m.require_f32("b").unwrap(), 0.25);
    assert_eq!(m.require_f32("inf").unwrap(), f32::INFINITY);
    assert!(m.require_f32("nan").unwrap().is_nan());
}

/// Every getter against every type of value: it answers, or names key and both types.
#[test]
fn wrong_types_are_refused() {
    let values = [
        Value::U8(1),
        Value::I8(1),
        Value::U16(1),
        Value::I16(1),
        Value::U32(1),
        Value::I32(1),
        Value::U64(1),
        Value::I64(1),
        Value::F32(1.0),
        Value::F64(1.0),
        Value::Bool(true),
        Value::string("1"),
        Value::Array(Array::strings::<&str>([])),
        Value::Array(Array::u32s(&[])),
        Value::Array(Array::i32s(&[])),
        Value::Array(Array::f32s(&[])),
        Value::Array(Array::bools(&[])),
    ];
    type Get = fn(&Metadata) -> Result<(), Error>;
    type Accepts = fn(Kind) -> bool;
    let getters: [(Get, Accepts, &str); 12] = [
        (|m| m.str("k").map(drop), |k| k == Kind::One(ValueType::Str), "a string"),
        (|m| m.bytes("k").map(drop), |k| k == Kind::One(ValueType::Str), "a string"),
        (|m| m.u32("k").map(drop), integer, "an unsigned 32-bit integer"),
        (|m| m.u64("k").map(drop), integer, "an unsigned 64-bit integer"),
        (|m| m.i32("k").map(drop), integer, "a 32-bit integer"),
        (|m| m.f32("k").map(drop), float, "a 32-bit float"),
        (|m| m.f64("k").map(drop), float, "a float"),
        (|m| m.bool("k").map(drop), |k| k == Kind::One(ValueType::Bool), "a bool"),
        (
            |m| m.str_array("k").map(drop),
            |k| k == Kind::ArrayOf(ValueType::Str),
            "an array of string",
        ),
        (
            |m| m.u32_array("k").map(drop),
            |k| matches!(k, Kind::ArrayOf(t) if t.is_integer()),
            "an array of unsigned 32-bit integers",
        ),
        (
            |m| m.f32_array("k").map(drop),
            |k| k == Kind::ArrayOf(ValueType::F32),
            "an array of 32-bit floats",
        ),
        (
            |m| m.bool_array("k").map(drop),
            |k| k == Kind::ArrayOf(ValueType::Bool),
            "an array of bool",
        ),
    ];
    for value in values {
        let found = value.kind();
        let file = with(&[("k", value)]);
        for (get, accepts, wanted) in getters {
            let got = get(file.metadata());
            if accepts(found) {
                assert!(got.is_ok(), "{found} as {wanted}");
            } else {
                assert_eq!(wrong(got), F::WrongType { key: "k".into(), found, wanted });
            }
        }
    }
}

fn integer(kind: Kind) -> bool {
    matches!(kind, Kind::One(t) if t.is_integer())
}

fn float(kind: Kind) -> bool {
    matches!(kind, Kind::One(ValueType::F32 | ValueType::F64))
}

#[test]
fn absent_keys_and_bad_text() {
    let file = with(&[
        ("bad", Value::Str(vec![0xff].into())),
        ("list", Value::Array(Array::strings([&b"ok"[..], b"\xc3"]))),
    ]);
    let m = file.metadata();
    assert_eq!((m.u32("no").unwrap(), m.str("no").unwrap()), (None, None));
    assert!(m.str_array("no").unwrap().is_none());
    assert_eq!(wrong(m.require_bool("no")), F::MissingKey { key: "no".into() });
    assert_eq!(m.require_bytes("bad").unwrap(), [0xff]);
    assert_eq!(wrong(m.str("bad")), F::InvalidUtf8 { what: "the value of 'bad'".into() });
    let list = m.require_str_array("list").unwrap();
    assert_eq!(list.to_strs(), Err(1));
    assert_eq!(list.iter().nth(1), Some(&b"\xc3"[..]));
}

#[test]
fn arrays_read_back() {
    let file = with(&[
        ("u", Value::Array(Array::u32s(&[11, 11, 10, 0]))),
        ("i", Value::Array(Array::i32s(&[-1, 2]))),
        ("f", Value::Array(Array::f32s(&[0.5, -0.0]))),
        ("b", Value::Array(Array::bools(&[true, false]))),
    ]);
    let m = file.metadata();
    assert_eq!(m.require_u32_array("u").unwrap(), [11, 11, 10, 0]);
    assert_eq!(m.require_i32_array("u").unwrap(), [11, 11, 10, 0]);
    assert_eq!(m.require_i32_array("i").unwrap(), [-1, 2]);
    assert_eq!(m.require_f32_array("f").unwrap(), [0.5, -0.0]);
    assert_eq!(m.require_bool_array("b").unwrap(), [true, false]);
}

#[test]
fn the_writer_refuses_what_the_reader_would() {
    let fault = |e: Option<Error>| fault_of(e, "out.gguf");
    let mut w = writer();
    w.metadata("k", Value::U8(1)).unwrap().tensor("t", DType::F32, shape(&[2])).unwrap();
    let key = "general.alignment".to_owned();
    assert_eq!(fault(w.metadata("", Value::U8(1)).err()), F::EmptyKey { index: 1 });
    assert_eq!(fault(w.metadata("k", Value::U8(1)).err()), F::DuplicateKey { key: "k".into() });
    let what = "a name".to_owned();
    let long = F::StringTooLong { what, len: 65536, limit: 65535 };
    assert_eq!(fault(w.metadata(&"k".repeat(65536), Value::U8(1)).err()), long);
    assert_eq!(fault(w.tensor(&"k".repeat(65536), DType::F32, shape(&[1])).err()), long);
    let bad = F::BadAlignment { alignment: 48, limit: 1 << 20 };
    assert_eq!(fault(w.metadata(&key, Value::U32(48)).err()), bad);
    let found = Kind::One(ValueType::I32);
    let bad = F::WrongType { key: key.clone(), found, wanted: "u32" };
    assert_eq!(fault(w.metadata(&key, Value::I32(32)).err()), bad);

    let tensor = || "t".to_owned();
    let f32s = DType::F32;
    assert_eq!(fault(w.tensor("", f32s, shape(&[1])).err()), F::EmptyTensorName { index: 1 });
    let twice = F::DuplicateTensor { tensor: tensor() };
    assert_eq!(fault(w.tensor("t", f32s, shape(&[1])).err()), twice);
    let zero = F::ZeroDim { tensor: "u".into() };
    assert_eq!(fault(w.tensor("u", f32s, shape(&[0])).err()), zero);
    let huge = F::SizeOverflow { tensor: "u".into() };
    assert_eq!(fault(w.tensor("u", f32s, shape(&[usize::MAX])).err()), huge);
    let part = F::PartialBlocks { tensor: "u".into(), dtype: DType::Q4_K, row: 100 };
    assert_eq!(fault(w.tensor("u", DType::Q4_K, shape(&[100])).err()), part);

    let mut body = w.begin(Vec::new()).unwrap();
    assert_eq!(body.pending(), Some(("t", 8)));
    let short = F::WrongLength { tensor: tensor(), found: 7, wanted: 8 };
    assert_eq!(fault(body.data(&[0; 7]).err()), short);
    body.data(&[0; 8]).unwrap();
    let more = F::WrongLength { tensor: String::new(), found: 8, wanted: 0 };
    assert_eq!(fault(body.data(&[0; 8]).err()), more);
    assert!(gguf(body.finish().unwrap()).is_ok());

    let mut w = writer();
    w.tensor("t", f32s, shape(&[2])).unwrap();
    let left = w.begin(Vec::new()).unwrap().finish();
    assert_eq!(fault(left.err()), F::MissingTensor { tensor: tensor() });
    let mut w = writer();
    for name in ["a", "b"] {
        w.tensor(name, DType::I8, shape(&[usize::MAX / 2])).unwrap();
    }
    let huge = F::SizeOverflow { tensor: "b".into() };
    assert_eq!(fault(w.begin(Vec::new()).err()), huge);
}

/// A file filled by hand, in any order, is the one that is written in order.
#[test]
fn a_layout_says_where_everything_goes() {
    let declared = || {
        let mut w = writer();
        w.metadata("general.alignment", Value::U32(64)).unwrap();
        w.metadata("k", Value::string("text")).unwrap();
        w.tensor("a", DType::F32, shape(&[3])).unwrap();
        w.tensor("b", DType::Q8_0, shape(&[2, 32])).unwrap();
        w.tensor("c", DType::I8, shape(&[1])).unwrap();
        w
    };
    let mut body = declared().begin(Vec::new()).unwrap();
    for bytes in [&[1; 12][..], &[2; 68], &[3; 1]] {
        body.data(bytes).unwrap();
    }
    let layout = declared().layout().unwrap();
    let mut file = vec![0; layout.len as usize];
    file[..layout.head.len()].copy_from_slice(&layout.head);
    for (place, fill) in layout.tensors.iter().zip([1u8, 2, 3]).rev() {
        assert!(place.start.is_multiple_of(64));
        file[place.start as usize..][..place.bytes as usize].fill(fill);
    }
    assert_eq!(file, body.finish().unwrap());
    let read = gguf(file).unwrap();
    for (place, info) in layout.tensors.iter().zip(read.tensors()) {
        let found = (info.name(), info.dtype(), info.shape());
        assert_eq!((place.name.as_str(), place.dtype, place.shape), found);
    }
    let empty = writer().layout().unwrap();
    assert_eq!((empty.len as usize, empty.tensors.len()), (empty.head.len(), 0));
}

#[test]
fn tensors_made_in_memory() {
    let make = |dims: &[usize], dtype, bytes: usize| {
        TensorInfo::new("t", dtype, shape(dims), vec![0; bytes].into()).map(|t| t.bytes())
    };
    let tensor = || "t".to_owned();
    assert_eq!(make(&[2, 32], DType::Q8_0, 68), Ok(68));
    let short = F::WrongLength { tensor: tensor(), found: 67, wanted: 68 };
    assert_eq!(make(&[2, 32], DType::Q8_0, 67), Err(short));
    assert_eq!(make(&[2, 0], DType::F32, 0), Err(F::ZeroDim { tensor: tensor() }));
    let part = F::PartialBlocks { tensor: tensor(), dtype: DType::Q8_0, row: 2 };
    assert_eq!(make(&[32, 2], DType::Q8_0, 68), Err(part));
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u8>().prop_map(Value::U8),
        any::<i8>().prop_map(Value::I8),
        any::<u16>().prop_map(Value::U16),
        any::<i16>().prop_map(Value::I16),
        any::<u32>().prop_map(Value::U32),
        any::<i32>().prop_map(Value::I32),
        any::<u64>().prop_map(Value::U64),
        any::<i64>().prop_map(Value::I64),
        // Not NaN, which is unequal to itself.
        (-1e30f32..1e30).prop_map(Value::F32),
        (-1e300f64..1e300).prop_map(Value::F64),
        any::<bool>().prop_map(Value::Bool),
        proptest::collection::vec(any::<u8>(), 0..20).prop_map(|v| Value::Str(v.into())),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let strings = proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..9), 0..9);
    prop_oneof![
        4 => scalar(),
        1 => strings.prop_map(|v| Value::Array(Array::strings(v))),
        1 => proptest::collection::vec(any::<i32>(), 0..9)
            .prop_map(|v| Value::Array(Array::i32s(&v))),
        1 => proptest::collection::vec(any::<bool>(), 0..9)
            .prop_map(|v| Value::Array(Array::bools(&v))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..Default::default() })]

    #[test]
    fn what_is_written_reads_back(
        entries in proptest::collection::btree_map("[a-zé_.]{1,12}", value(), 0..6),
        tensors in proptest::collection::btree_map(
            "[a-z.]{1,9}", (0..DType::ALL.len(), 1usize..4, proptest::collection::vec(1usize..4, 0..4)), 0..6),
        shift in 0u32..9,
    ) {
        let mut w = writer();
        w.metadata("general.alignment", Value::U32(1 << shift)).unwrap();
        for (key, value) in &entries {
            w.metadata(key, value.clone()).unwrap();
        }
        let mut contents = Vec::new();
        for (i, (name, (dtype, blocks, outer))) in tensors.iter().enumerate() {
            let dtype = DType::ALL[*dtype];
            let mut dims = outer[..outer.len().min(3)].to_vec();
            dims.push(blocks * dtype.block_len());
            let shape = shape(&dims);
            w.tensor(name, dtype, shape).unwrap();
            contents.push((dtype, shape, vec![i as u8 + 1; dtype.bytes_for(shape.elements()).unwrap()]));
        }
        let mut body = w.begin(Vec::new()).unwrap();
        for (_, _, bytes) in &contents {
            body.data(bytes).unwrap();
        }
        let file = gguf(body.finish().unwrap()).unwrap();
        prop_assert_eq!(file.alignment(), 1 << shift);
        let read: Vec<_> = file.metadata().iter().skip(1).map(|(k, v)| (k.to_owned(), v.clone())).collect();
        prop_assert_eq!(read, entries.into_iter().collect::<Vec<_>>());
        prop_assert_eq!(file.tensors().len(), contents.len());
        for (((dtype, shape, bytes), name), info) in contents.iter().zip(tensors.keys()).zip(file.tensors()) {
            prop_assert_eq!((info.name(), info.dtype(), info.shape()), (name.as_str(), *dtype, *shape));
            prop_assert_eq!(&file.data(info)[..], &bytes[..]);
        }
    }
}
