//! The chat template in the small files beside a checkpoint's weights.

use std::fmt;
use std::path::Path;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::error::{Error, Result};
use crate::format::{FormatFault, read_small};

/// Either file has some ten kilobytes; one with many added tokens, some megabytes.
const MAX_BYTES: u64 = 16 << 20;

/// The template in `chat_template.jinja` or in `tokenizer_config.json`, if there is one.
///
/// # Errors
/// A file that is there and cannot be read or understood.
pub(super) fn chat_template(folder: &Path) -> Result<Option<String>> {
    let path = folder.join("chat_template.jinja");
    let what = "chat_template.jinja";
    if let Some(bytes) = read_small(&path, what, MAX_BYTES)? {
        let fault = |_| FormatFault::InvalidUtf8 { what: "the chat template".to_owned() };
        let text = String::from_utf8(bytes).map_err(fault);
        return text.map(Some).map_err(|fault| Error::format(&path, fault));
    }
    let path = folder.join("tokenizer_config.json");
    let Some(bytes) = read_small(&path, "tokenizer_config.json", MAX_BYTES)? else {
        return Ok(None);
    };
    let config: TokenizerConfig = serde_json::from_slice(&bytes).map_err(|error| {
        let what = "not the JSON of a tokenizer's settings";
        Error::format(&path, FormatFault::Json { what, detail: error.to_string() })
    })?;
    Ok(config.chat_template.0)
}

/// What is wanted of the file; all else is skipped, not kept.
#[derive(serde::Deserialize)]
struct TokenizerConfig {
    #[serde(default)]
    chat_template: Text,
}

/// A text. Anything else, such as a list of named templates, counts as none.
#[derive(Default)]
struct Text(Option<String>);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(TextVisitor).map(Self)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a template")
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Some(text.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_template_is_a_file_or_a_setting() {
        let dir = tempfile::tempdir().unwrap();
        let of = || chat_template(dir.path());
        assert_eq!(of().unwrap(), None);
        let settings = dir.path().join("tokenizer_config.json");
        for other in ["1", "-1", "0.5", "null", "true", "[[{}]]", r#"{"a":[1]}"#] {
            fs::write(&settings, format!(r#"{{"a":1,"chat_template":{other}}}"#)).unwrap();
            assert_eq!(of().unwrap(), None, "{other}");
        }
        fs::write(&settings, "{}").unwrap();
        assert_eq!(of().unwrap(), None);
        fs::write(&settings, r#"{"b":{},"chat_template":"a\nb"}"#).unwrap();
        assert_eq!(of().unwrap().as_deref(), Some("a\nb"));
        fs::write(dir.path().join("chat_template.jinja"), "c").unwrap();
        assert_eq!(of().unwrap().as_deref(), Some("c"));
    }

    #[test]
    fn what_cannot_be_read_is_a_fault_that_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let fault = |name: &str| match chat_template(dir.path()) {
            Err(Error::Format { path, fault }) if path == dir.path().join(name) => fault,
            other => panic!("{other:?}"),
        };
        let (settings, jinja) = ("tokenizer_config.json", "chat_template.jinja");
        for bad in ["", "3", "{", r#"{"chat_template":"a}"#] {
            fs::write(dir.path().join(settings), bad).unwrap();
            assert!(matches!(fault(settings), FormatFault::Json { .. }), "{bad}");
        }
        fs::File::create(dir.path().join(settings)).unwrap().set_len(MAX_BYTES + 1).unwrap();
        assert!(matches!(fault(settings), FormatFault::FileTooLong { .. }));
        fs::write(dir.path().join(jinja), b"\xff").unwrap();
        assert!(matches!(fault(jinja), FormatFault::InvalidUtf8 { .. }));
        fs::remove_file(dir.path().join(jinja)).unwrap();
        fs::create_dir(dir.path().join(jinja)).unwrap();
        assert_eq!(fault(jinja), FormatFault::NotRegular);
    }
}
