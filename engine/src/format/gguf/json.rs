//! Metadata values for people and for `inspect`.

use std::fmt;

use serde::ser::{Serialize, SerializeSeq, Serializer};

use super::array::Array;
use super::value::Value;

/// Elements of an array that [`Value`]'s `Display` shows.
const SHOWN: usize = 8;
/// Characters of a string that it shows.
const SHOWN_CHARS: usize = 64;

/// One line: strings quoted, escaped and cut, long arrays cut.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::U8(v) => v.fmt(f),
            Self::I8(v) => v.fmt(f),
            Self::U16(v) => v.fmt(f),
            Self::I16(v) => v.fmt(f),
            Self::U32(v) => v.fmt(f),
            Self::I32(v) => v.fmt(f),
            Self::U64(v) => v.fmt(f),
            Self::I64(v) => v.fmt(f),
            Self::F32(v) => v.fmt(f),
            Self::F64(v) => v.fmt(f),
            Self::Bool(v) => v.fmt(f),
            Self::Str(s) => {
                // A char is at most four bytes: no need to look at more than is shown.
                let head = s.get(..4 * SHOWN_CHARS).unwrap_or(s);
                let text = String::from_utf8_lossy(head);
                let cut: String = text.chars().take(SHOWN_CHARS).collect();
                let more = if cut.len() < s.len() { "..." } else { "" };
                write!(f, "{cut:?}{more}")
            }
            Self::Array(a) => a.fmt(f),
        }
    }
}

impl fmt::Display for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, v) in self.iter().take(SHOWN).enumerate() {
            write!(f, "{}{v}", if i > 0 { ", " } else { "" })?;
        }
        match self.len().saturating_sub(SHOWN) {
            0 => f.write_str("]"),
            more => write!(f, ", ... {more} more]"),
        }
    }
}

/// Whole values. Strings that are not UTF-8 get replacement characters, and formats
/// without infinities (JSON) write `null` for them.
impl Serialize for Value {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::U8(v) => v.serialize(out),
            Self::I8(v) => v.serialize(out),
            Self::U16(v) => v.serialize(out),
            Self::I16(v) => v.serialize(out),
            Self::U32(v) => v.serialize(out),
            Self::I32(v) => v.serialize(out),
            Self::U64(v) => v.serialize(out),
            Self::I64(v) => v.serialize(out),
            Self::F32(v) => v.serialize(out),
            Self::F64(v) => v.serialize(out),
            Self::Bool(v) => v.serialize(out),
            Self::Str(s) => out.serialize_str(&String::from_utf8_lossy(s)),
            Self::Array(a) => {
                let mut seq = out.serialize_seq(Some(a.len()))?;
                for v in a.iter() {
                    seq.serialize_element(&v)?;
                }
                seq.end()
            }
        }
    }
}
