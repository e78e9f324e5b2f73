//! One GGUF file: fixed header, metadata, tensor infos, and the checks between them.

use std::path::Path;

use super::cursor::Cursor;
use super::metadata::Metadata;
use super::value::{Value, ValueType, read_value};
use crate::format::shown::Shown;
use crate::format::source::storage;
use crate::format::{FormatFault, SharedBytes, TensorInfo};
use crate::tensor::{DType, MAX_DIMS, Shape};

/// Alignment of the tensor data when the file does not say.
pub(super) const DEFAULT_ALIGNMENT: u32 = 32;
/// Larger alignments only make room for mischief; pages are 4 KiB to 64 KiB.
pub(super) const MAX_ALIGNMENT: u32 = 1 << 20;
/// The specification's limit for keys; tensor names are held to it too.
pub(super) const MAX_NAME: u64 = 65535;
/// More than any model has, so that a file cannot take many times its size in memory.
pub(super) const MAX_TENSORS: usize = 200_000;
/// The key that holds the alignment.
pub(super) const ALIGNMENT_KEY: &str = "general.alignment";

/// The parsed contents of one file, which may be one shard of several.
pub(super) struct Contents {
    pub(super) metadata: Metadata,
    pub(super) tensors: Vec<TensorInfo>,
    pub(super) version: u32,
    pub(super) alignment: u32,
}

/// A tensor as its info describes it, before its place in the file is checked.
struct Declared {
    name: String,
    dtype: DType,
    shape: Shape,
    bytes: u64,
    offset: u64,
}

/// Parses one file.
pub(super) fn parse(path: &Path, all: &SharedBytes) -> Result<Contents, FormatFault> {
    let mut cur = Cursor::new(all);
    let Fixed { version, n_tensors, n_kv } = fixed(&mut cur)?;
    // The shortest metadata entry: an empty key (refused below, by name), its type, a byte.
    cur.fits(n_kv, 8 + 4 + 1, || "the metadata".to_owned())?;
    // The shortest tensor info: an empty name and no dimensions (refused below), type, offset.
    cur.fits(n_tensors, 8 + 4 + 4 + 8, || "the tensor list".to_owned())?;
    if n_tensors > MAX_TENSORS as u64 {
        return Err(FormatFault::TooManyTensors { count: n_tensors, limit: MAX_TENSORS });
    }

    let mut metadata = Metadata::new(path);
    for index in 0..n_kv {
        let key = name(&mut cur, all, || format!("the key of metadata entry {index}"))?;
        if key.is_empty() {
            return Err(FormatFault::EmptyKey { index });
        }
        let id = cur.u32().map_err(|s| s.within(format!("the type of {}", Shown(&key))))?;
        let Some(kind) = ValueType::from_id(id) else {
            return Err(FormatFault::UnknownValueType { key, id });
        };
        let value = read_value(&mut cur, all, kind, &key, 0)?;
        metadata.insert(key, value)?;
    }
    let alignment = alignment(&metadata)?;
    let mut declared = Vec::new();
    for index in 0..n_tensors {
        declared.push(tensor_info(&mut cur, all, index, alignment)?);
    }
    let tensors = place(declared, all, cur.pos(), alignment)?;
    Ok(Contents { metadata, tensors, version, alignment })
}

/// What every file starts with.
struct Fixed {
    version: u32,
    n_tensors: u64,
    n_kv: u64,
}

fn fixed(cur: &mut Cursor<'_>) -> Result<Fixed, FormatFault> {
    let version = magic_and_version(cur)?;
    let head = |s: super::cursor::Short| s.within("the file header");
    let (n_tensors, n_kv) = (cur.u64().map_err(head)?, cur.u64().map_err(head)?);
    Ok(Fixed { version, n_tensors, n_kv })
}

/// Checks the start of a file, of which some dozen bytes will do.
pub(super) fn check_start(start: &[u8], _size: u64) -> Result<(), FormatFault> {
    fixed(&mut Cursor::new(start)).map(drop)
}

fn magic_and_version(cur: &mut Cursor<'_>) -> Result<u32, FormatFault> {
    let magic: [u8; 4] = cur.array().map_err(|s| s.within("the magic number"))?;
    if &magic != b"GGUF" {
        return Err(FormatFault::NotGguf { magic });
    }
    match cur.u32().map_err(|s| s.within("the file header"))? {
        version @ (2 | 3) => Ok(version),
        // Real version numbers are small, so that a zero low half means swapped bytes.
        v if v & 0xffff == 0 && v != 0 => Err(FormatFault::BigEndian),
        version => Err(FormatFault::Version { version }),
    }
}

/// A key or tensor name: UTF-8, within the limit on names.
fn name(
    cur: &mut Cursor<'_>,
    all: &SharedBytes,
    what: impl Fn() -> String,
) -> Result<String, FormatFault> {
    let range = cur.string(&what)?;
    let len = range.len() as u64;
    if len > MAX_NAME {
        return Err(FormatFault::StringTooLong { what: what(), len, limit: MAX_NAME });
    }
    let text = std::str::from_utf8(all.get(range).unwrap_or_default());
    text.map(str::to_owned).map_err(|_| FormatFault::InvalidUtf8 { what: what() })
}

fn alignment(metadata: &Metadata) -> Result<u32, FormatFault> {
    match metadata.get(ALIGNMENT_KEY) {
        None => Ok(DEFAULT_ALIGNMENT),
        Some(&Value::U32(a)) if a.is_power_of_two() && a <= MAX_ALIGNMENT => Ok(a),
        Some(&Value::U32(a)) => {
            Err(FormatFault::BadAlignment { alignment: a, limit: MAX_ALIGNMENT })
        }
        Some(other) => Err(FormatFault::WrongType {
            key: ALIGNMENT_KEY.to_owned(),
            found: other.kind(),
            wanted: "u32",
        }),
    }
}

fn tensor_info(
    cur: &mut Cursor<'_>,
    all: &SharedBytes,
    index: u64,
    alignment: u32,
) -> Result<Declared, FormatFault> {
    let tensor = name(cur, all, || format!("the name of tensor {index}"))?;
    if tensor.is_empty() {
        return Err(FormatFault::EmptyTensorName { index });
    }
    let within =
        |s: super::cursor::Short| s.within(format!("the info of tensor {}", Shown(&tensor)));
    let rank = cur.u32().map_err(within)?;
    if rank == 0 || rank as usize > MAX_DIMS {
        return Err(FormatFault::BadRank { tensor, dims: rank.into(), limit: MAX_DIMS });
    }
    let mut dims = [0; MAX_DIMS];
    let dims = &mut dims[..rank as usize];
    // The file lists the contiguous dimension first, a shape lists it last.
    for d in dims.iter_mut().rev() {
        let n = cur.u64().map_err(within)?;
        *d =
            usize::try_from(n).map_err(|_| FormatFault::SizeOverflow { tensor: tensor.clone() })?;
    }
    let id = cur.u32().map_err(within)?;
    let offset = cur.u64().map_err(within)?;
    if dims.contains(&0) {
        return Err(FormatFault::ZeroDim { tensor });
    }
    let Some(dtype) = DType::from_ggml_id(id) else {
        return Err(FormatFault::UnknownTensorType { tensor, id });
    };
    let Some(shape) = Shape::new(dims) else {
        return Err(FormatFault::SizeOverflow { tensor });
    };
    let bytes = storage(&tensor, dtype, shape)? as u64;
    if !offset.is_multiple_of(alignment.into()) {
        return Err(FormatFault::Misaligned { tensor, offset, alignment });
    }
    Ok(Declared { name: tensor, dtype, shape, bytes, offset })
}

/// Holds the declared tensors against the bytes that are there.
fn place(
    declared: Vec<Declared>,
    all: &SharedBytes,
    infos_end: usize,
    alignment: u32,
) -> Result<Vec<TensorInfo>, FormatFault> {
    // A file without tensors may end right here, without padding.
    let data_start = infos_end.checked_next_multiple_of(alignment as usize).unwrap_or(all.len());
    let room = all.len().saturating_sub(data_start) as u64;
    let mut order: Vec<&Declared> = declared.iter().collect();
    order.sort_by_key(|d| d.offset);
    for pair in order.windows(2) {
        if let [first, second] = pair
            && first.offset.saturating_add(first.bytes) > second.offset
        {
            let (first, second) = (first.name.clone(), second.name.clone());
            // The same info twice: the name is the clearer fault. Other repeated names
            // are found when the tensors of all shards are joined.
            return Err(if first == second {
                FormatFault::DuplicateTensor { tensor: first }
            } else {
                FormatFault::Overlap { first, second }
            });
        }
    }
    declared
        .into_iter()
        .map(|d| {
            let start = usize::try_from(d.offset).ok().and_then(|o| data_start.checked_add(o));
            let end = start.zip(usize::try_from(d.bytes).ok()).and_then(|(s, n)| s.checked_add(n));
            let data = start.zip(end).and_then(|(s, e)| all.slice(s..e));
            let Declared { name, dtype, shape, bytes, offset } = d;
            match data {
                Some(data) => Ok(TensorInfo { name, dtype, shape, data }),
                None => Err(FormatFault::OutOfFile { tensor: name, offset, bytes, room }),
            }
        })
        .collect()
}
