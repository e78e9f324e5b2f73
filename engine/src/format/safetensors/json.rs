//! JSON objects whose keys must be unique.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};

use crate::format::FormatFault;
use crate::format::shown::Shown;

/// Entries past which only their number is of interest: more than any model has tensors.
pub(super) const MAX_ENTRIES: usize = 200_000;

/// A fault out of serde's words.
pub(super) fn fault(what: &'static str, e: &serde_json::Error) -> FormatFault {
    FormatFault::Json { what, detail: e.to_string() }
}

/// The entries of a JSON object in their order. Repeated keys are kept, for the caller to
/// refuse; a value that does not parse is reported with its key.
pub(super) struct Entries<T> {
    /// The first of them.
    pub(super) list: Vec<(String, T)>,
    /// How many there are, perhaps more than in the list.
    pub(super) count: usize,
}

impl<T> Entries<T> {
    /// The entries, each of which stands for a tensor.
    pub(super) fn tensors(self) -> Result<Vec<(String, T)>, FormatFault> {
        let Self { list, count } = self;
        if count > list.len() {
            return Err(FormatFault::TooManyTensors { count: count as u64, limit: MAX_ENTRIES });
        }
        Ok(list)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Entries<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(EntriesVisitor(PhantomData))
    }
}

struct EntriesVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for EntriesVisitor<T> {
    type Value = Entries<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        // No size hint is taken: it would be the file's word.
        let mut list = Vec::new();
        while list.len() < MAX_ENTRIES
            && let Some(key) = map.next_key::<String>()?
        {
            let value = map.next_value();
            let value = value.map_err(|e| A::Error::custom(format!("{}: {e}", Shown(&key))))?;
            list.push((key, value));
        }
        let mut count = list.len();
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
            count += 1;
        }
        Ok(Entries { list, count })
    }
}
