//! The header of one file, and the checks between it and the data.

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::json::{self, Entries, MAX_ENTRIES};
use crate::format::shown::Shown;
use crate::format::{FormatFault, SharedBytes, TensorInfo};
use crate::tensor::{DType, MAX_DIMS, Shape};

/// The limit of the reference implementation.
const MAX_HEADER: u64 = 100_000_000;
/// Dimensions past which a shape is not read; the engine holds [`MAX_DIMS`].
const MAX_JSON_DIMS: usize = 64;
/// Bytes before the header.
const START: usize = 8;
const NOT_A_HEADER: &str = "not a safetensors header";
/// The one key that is not a tensor: free text by key.
const METADATA_KEY: &str = "__metadata__";

/// The tensors of one file: those the engine can hold, and why it cannot hold the others.
pub(super) struct Contents {
    pub(super) tensors: Vec<TensorInfo>,
    pub(super) unusable: Vec<(String, FormatFault)>,
}

/// Parses one file.
pub(super) fn parse(all: &SharedBytes) -> Result<Contents, FormatFault> {
    if all.is_empty() {
        return Err(FormatFault::Empty);
    }
    let len = check_start(all, all.len() as u64)?;
    let head = all.get(START..START + len).unwrap_or_default();
    let data = all.slice(START + len..all.len()).unwrap_or_default();
    let header: Header = serde_json::from_slice(head).map_err(|e| json::fault(NOT_A_HEADER, &e))?;
    let tensors = header.0.tensors()?;
    check_layout(&tensors, data.len() as u64)?;

    let mut out = Contents { tensors: Vec::new(), unusable: Vec::new() };
    for (name, entry) in tensors {
        match usable(&name, &entry)? {
            Ok((dtype, shape)) => {
                // `check_layout` found the offsets inside the data, hence in `usize`.
                let range = entry.start as usize..entry.end as usize;
                let data = data.slice(range).unwrap_or_default();
                out.tensors.push(TensorInfo { name, dtype, shape, data });
            }
            Err(fault) => out.unusable.push((name, fault)),
        }
    }
    Ok(out)
}

/// Checks the start of a file of `size` bytes (nine are enough) and gives the length of
/// the header, which lies within the file.
pub(super) fn check_start(start: &[u8], size: u64) -> Result<usize, FormatFault> {
    let short = |what: &str, at, need| FormatFault::Truncated {
        what: what.to_owned(),
        at,
        need,
        left: size.saturating_sub(at),
    };
    let Some((len, rest)) = start.split_first_chunk::<START>() else {
        return Err(short("the header length", 0, START as u64));
    };
    let len = u64::from_le_bytes(*len);
    if len > MAX_HEADER {
        return Err(FormatFault::HeaderTooLong { len, limit: MAX_HEADER });
    }
    if size.saturating_sub(START as u64) < len {
        return Err(short("the header", START as u64, len));
    }
    // The format wants the object to start at once; only spaces may follow it.
    if len == 0 || rest.first() != Some(&b'{') {
        let detail = "it does not start with '{'".to_owned();
        return Err(FormatFault::Json { what: NOT_A_HEADER, detail });
    }
    // At most 100 MB, so that it fits any `usize`.
    Ok(len as usize)
}

/// Names are unique, and the tensors cover the data without holes and overlaps.
fn check_layout(entries: &[(String, Entry)], room: u64) -> Result<(), FormatFault> {
    let mut names = HashSet::new();
    for (name, e) in entries {
        let tensor = || name.clone();
        if name.is_empty() {
            let index = names.len() as u64;
            return Err(FormatFault::EmptyTensorName { index });
        }
        if !names.insert(name.as_str()) {
            return Err(FormatFault::DuplicateTensor { tensor: tensor() });
        }
        if e.start > e.end {
            return Err(FormatFault::BadOffsets { tensor: tensor(), start: e.start, end: e.end });
        }
        if e.end > room {
            let (offset, bytes) = (e.start, e.end - e.start);
            return Err(FormatFault::OutOfFile { tensor: tensor(), offset, bytes, room });
        }
    }
    let mut order: Vec<&(String, Entry)> = entries.iter().collect();
    order.sort_by_key(|(_, e)| (e.start, e.end));
    let (mut covered, mut last) = (0, None);
    for (name, e) in order {
        if e.start > covered {
            return Err(FormatFault::Hole { start: covered, end: e.start });
        }
        if e.start < covered {
            let first = last.map_or_else(String::new, String::clone);
            return Err(FormatFault::Overlap { first, second: name.clone() });
        }
        (covered, last) = (e.end, Some(name));
    }
    if covered < room {
        return Err(FormatFault::Hole { start: covered, end: room });
    }
    Ok(())
}

/// The outer error is a malformed tensor; the inner one says why a sound one is no use.
fn usable(name: &str, e: &Entry) -> Result<Result<(DType, Shape), FormatFault>, FormatFault> {
    let tensor = || name.to_owned();
    let overflow = || FormatFault::SizeOverflow { tensor: tensor() };
    let elements = e.shape.iter().try_fold(1u64, |n, &d| n.checked_mul(d)).ok_or_else(overflow)?;
    if let Some(bits) = bits_of(&e.dtype) {
        let bits = elements.checked_mul(bits).ok_or_else(overflow)?;
        let (found, wanted) = (e.end - e.start, bits.div_ceil(8));
        if found != wanted {
            let (tensor, dtype) = (tensor(), e.dtype.clone());
            return Err(FormatFault::BadLength { tensor, dtype, found, wanted });
        }
    }
    let Some(dtype) = dtype_of(&e.dtype) else {
        let dtype = e.dtype.clone();
        return Ok(Err(FormatFault::UnsupportedDtype { tensor: tensor(), dtype }));
    };
    if elements == 0 {
        return Ok(Err(FormatFault::ZeroDim { tensor: tensor() }));
    }
    // A scalar has no dimensions here and one of a single element in the engine.
    let dims: Vec<usize> = match e.shape.as_slice() {
        [] => vec![1],
        dims if dims.len() <= MAX_DIMS => dims.iter().map(|&d| d as usize).collect(),
        dims => {
            let dims = dims.len() as u64;
            return Ok(Err(FormatFault::BadRank { tensor: tensor(), dims, limit: MAX_DIMS }));
        }
    };
    Ok(Ok((dtype, Shape::new(&dims).ok_or_else(overflow)?)))
}

/// Element types that have a counterpart in the engine.
fn dtype_of(name: &str) -> Option<DType> {
    Some(match name {
        "F64" => DType::F64,
        "F32" => DType::F32,
        "F16" => DType::F16,
        "BF16" => DType::BF16,
        "I64" => DType::I64,
        "I32" => DType::I32,
        "I16" => DType::I16,
        "I8" => DType::I8,
        _ => return None,
    })
}

/// Bits to an element, of all types known to the reference implementation.
fn bits_of(name: &str) -> Option<u64> {
    Some(match name {
        "F4" => 4,
        "F6_E2M3" | "F6_E3M2" => 6,
        "BOOL" | "U8" | "I8" | "F8_E4M3" | "F8_E5M2" | "F8_E8M0" | "F8_E4M3FNUZ"
        | "F8_E5M2FNUZ" => 8,
        "I16" | "U16" | "F16" | "BF16" => 16,
        "I32" | "U32" | "F32" => 32,
        "I64" | "U64" | "F64" | "C64" => 64,
        _ => return None,
    })
}

/// A tensor as the header describes it.
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    start: u64,
    end: u64,
}

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        struct Raw {
            dtype: String,
            shape: Dims,
            data_offsets: (u64, u64),
        }
        let Raw { dtype, shape: Dims(shape), data_offsets: (start, end) } = Raw::deserialize(from)?;
        Ok(Self { dtype, shape, start, end })
    }
}

/// Dimensions, cut off where no real tensor has any.
struct Dims(Vec<u64>);

impl<'de> Deserialize<'de> for Dims {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct DimsVisitor;
        impl<'de> Visitor<'de> for DimsVisitor {
            type Value = Dims;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a shape of at most {MAX_JSON_DIMS} dimensions")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Dims, A::Error> {
                let mut dims = Vec::new();
                while let Some(d) = seq.next_element()? {
                    if dims.len() == MAX_JSON_DIMS {
                        return Err(A::Error::invalid_length(dims.len() + 1, &self));
                    }
                    dims.push(d);
                }
                Ok(Dims(dims))
            }
        }
        from.deserialize_seq(DimsVisitor)
    }
}

/// The header: tensors in the order of the JSON text, repeated names included.
struct Header(Entries<Entry>);

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(HeaderVisitor)
    }
}

struct HeaderVisitor;

impl<'de> Visitor<'de> for HeaderVisitor {
    type Value = Header;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
        // No size hint is taken: it would be the file's word.
        let (mut list, mut has_metadata) = (Vec::new(), false);
        while list.len() < MAX_ENTRIES
            && let Some(key) = map.next_key::<String>()?
        {
            let named = |e: A::Error| A::Error::custom(format!("{}: {e}", Shown(&key)));
            if key == METADATA_KEY {
                if std::mem::replace(&mut has_metadata, true) {
                    return Err(A::Error::custom("__metadata__ appears twice"));
                }
                map.next_value::<Entries<String>>().map_err(named)?;
                continue;
            }
            let entry = map.next_value().map_err(named)?;
            list.push((key, entry));
        }
        let mut count = list.len();
        while let Some((key, _)) = map.next_entry::<String, IgnoredAny>()? {
            count += usize::from(key != METADATA_KEY);
        }
        Ok(Header(Entries { list, count }))
    }
}
