//! Metadata of a file, with long arrays cut.

use std::io::{self, Write};

use foretoken::format::{Array, Metadata, Value};
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::failure::escaped;
use crate::output::{Align, Table, WIDTH};

/// Longer arrays are given by type and length in JSON.
const MAX_ARRAY: usize = 1024;
/// The least columns that a value gets.
const LEAST: usize = 16;

/// What a file says of itself.
pub(super) enum MetadataReport<'a> {
    /// Keys and values of a GGUF file.
    Gguf(&'a Metadata),
    /// The `config.json` beside safetensors.
    Config(Option<&'a serde_json::Value>),
}

impl Serialize for MetadataReport<'_> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Gguf(metadata) => {
                let mut map = out.serialize_map(Some(metadata.len()))?;
                for (key, value) in metadata.iter() {
                    match value {
                        Value::Array(array) if array.len() > MAX_ARRAY => {
                            map.serialize_entry(key, &Cut::of(array))?;
                        }
                        value => map.serialize_entry(key, value)?,
                    }
                }
                map.end()
            }
            Self::Config(Some(config)) => config.serialize(out),
            Self::Config(None) => out.serialize_map(Some(0))?.end(),
        }
    }
}

/// Stands for an array that is too long to print.
#[derive(serde::Serialize)]
struct Cut {
    #[serde(rename = "type")]
    kind: &'static str,
    of: &'static str,
    len: usize,
}

impl Cut {
    fn of(array: &Array) -> Self {
        Self { kind: "array", of: array.element_type().name(), len: array.len() }
    }
}

impl MetadataReport<'_> {
    /// Writes a table of keys and values.
    pub(super) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let rows: Vec<(String, String)> = match self {
            Self::Gguf(metadata) => {
                metadata.iter().map(|(key, value)| (escaped(key), in_line(value))).collect()
            }
            Self::Config(config) => {
                let object = config.and_then(|c| c.as_object()).into_iter().flatten();
                object.map(|(key, value)| (escaped(key), value.to_string())).collect()
            }
        };
        let keys = rows.iter().map(|(key, _)| key.chars().count()).max().unwrap_or(0);
        let width = WIDTH.saturating_sub(keys + 2).max(LEAST);
        let mut table = Table::new(&[("key", Align::Left), ("value", Align::Left)]);
        for (key, value) in rows {
            table.row([key, cut(&escaped(&value), width)]);
        }
        table.write(out)
    }
}

fn in_line(value: &Value) -> String {
    match value {
        Value::Array(array) if array.len() > 8 => {
            format!("{} x {}", array.len(), array.element_type().name())
        }
        value => value.to_string(),
    }
}

/// The text, or as much of it as fits before three dots.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let head: String = text.chars().take(width.saturating_sub(3)).collect();
    format!("{head}...")
}
