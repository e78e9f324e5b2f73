//! JSON files beside the weights, and JSON objects whose keys must be unique.

use std::fmt;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::marker::PhantomData;
use std::path::Path;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};

use crate::format::FormatFault;
use crate::format::shown::Shown;
use crate::{Error, Result};

/// A fault out of serde's words.
pub(super) fn fault(what: &'static str, e: &serde_json::Error) -> FormatFault {
    FormatFault::Json { what, detail: e.to_string() }
}

/// The bytes of a small file; `None` when it does not exist.
pub(super) fn read_optional(
    path: &Path,
    what: &'static str,
    limit: u64,
) -> Result<Option<Vec<u8>>> {
    let io = |e| Error::io(path, e);
    let meta = match fs::metadata(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        other => other.map_err(io)?,
    };
    if !meta.is_file() {
        return Err(Error::format(path, FormatFault::NotRegular));
    }
    if meta.len() > limit {
        return Err(Error::format(path, FormatFault::JsonTooLong { what, len: meta.len(), limit }));
    }
    let mut text = Vec::new();
    File::open(path).map_err(io)?.take(limit).read_to_end(&mut text).map_err(io)?;
    Ok(Some(text))
}

/// The entries of a JSON object in their order. Repeated keys are kept, for the caller to
/// refuse; a value that does not parse is reported with its key.
pub(super) struct Entries<T>(pub(super) Vec<(String, T)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Entries<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        from.deserialize_map(EntriesVisitor(PhantomData))
    }
}

struct EntriesVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for EntriesVisitor<T> {
    type Value = Entries<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(
        self,
        mut map: A,
    ) -> std::result::Result<Self::Value, A::Error> {
        // No size hint is taken: it would be the file's word.
        let mut out = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            let value = map.next_value();
            let value = value.map_err(|e| A::Error::custom(format!("{}: {e}", Shown(&key))))?;
            out.push((key, value));
        }
        Ok(Entries(out))
    }
}
