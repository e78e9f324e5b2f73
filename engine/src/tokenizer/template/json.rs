//! The `tojson` filter as Hugging Face's library defines it: Python's `json.dumps`
//! with the text left as it is, no escapes for HTML.

use std::fmt::Write;

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind, State};

/// Levels of lists and maps that can be written.
const MAX_DEPTH: usize = 128;

/// Fuel is charged once this many bytes have been written.
const CHARGE_EVERY: usize = 4096;

/// Bytes written for a unit of fuel: fewer than for other text, since they are written
/// a few at a time.
const BYTES_PER_FUEL: u64 = 4;

/// `value|tojson(indent=None, ensure_ascii=False, sort_keys=False, separators=None)`.
pub(super) fn tojson(
    state: &State,
    value: &Value,
    indent: Option<Value>,
    options: Kwargs,
) -> Result<String, Error> {
    let indent = match indent {
        Some(indent) => Some(indent),
        None => options.get("indent")?,
    };
    let indent = match indent {
        None => None,
        Some(value) if value.is_none() || value.is_undefined() => None,
        Some(value) if value.kind() == ValueKind::String => Some(value.to_string()),
        Some(value) => {
            let spaces = usize::try_from(value)?;
            if spaces > MAX_DEPTH {
                return Err(Error::new(ErrorKind::InvalidOperation, "tojson: indent is too large"));
            }
            Some(" ".repeat(spaces))
        }
    };
    let separators: Option<Vec<String>> = options.get("separators")?;
    let (item, key) = match separators.as_deref() {
        Some([item, key]) => (item.clone(), key.clone()),
        Some(_) => {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                "tojson: two separators are needed",
            ));
        }
        None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
    };
    let ascii = options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false);
    let sorted = options.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    options.assert_all_used()?;
    let mut writer =
        Writer { state, out: String::new(), charged: 0, indent, item, key, ascii, sorted };
    writer.value(value, 0)?;
    Ok(writer.out)
}

struct Writer<'s, 'a, 'e> {
    state: &'s State<'a, 'e>,
    out: String,
    charged: usize,
    indent: Option<String>,
    item: String,
    key: String,
    ascii: bool,
    sorted: bool,
}

impl Writer<'_, '_, '_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.charge(CHARGE_EVERY)?;
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.number(value),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Map => self.map(value, depth)?,
            ValueKind::Seq | ValueKind::Iterable => {
                let items = value.try_iter()?;
                self.container(('[', ']'), items, depth, |writer, item, depth| {
                    writer.value(&item, depth)
                })?;
            }
            other => return Err(cannot(&format!("{other} has no JSON form"))),
        }
        Ok(())
    }

    fn map(&mut self, map: &Value, depth: usize) -> Result<(), Error> {
        let mut keys: Vec<(String, Value)> = Vec::new();
        for key in map.try_iter()? {
            keys.push((key_text(&key)?, key));
        }
        if self.sorted {
            keys.sort_by(|a, b| a.0.cmp(&b.0));
        }
        self.container(('{', '}'), keys.into_iter(), depth, |writer, (text, key), depth| {
            writer.string(&text);
            writer.out.push_str(&writer.key.clone());
            writer.value(&map.get_item(&key)?, depth)
        })
    }

    fn container<T>(
        &mut self,
        (open, close): (char, char),
        items: impl Iterator<Item = T>,
        depth: usize,
        each: impl Fn(&mut Self, T, usize) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if depth >= MAX_DEPTH {
            return Err(cannot("it nests beyond the recursion limit"));
        }
        self.out.push(open);
        let mut empty = true;
        for item in items {
            if !std::mem::replace(&mut empty, false) {
                self.out.push_str(&self.item);
            }
            self.newline(depth + 1);
            each(self, item, depth + 1)?;
        }
        if !empty {
            self.newline(depth);
        }
        self.out.push(close);
        Ok(())
    }

    fn newline(&mut self, depth: usize) {
        if let Some(indent) = &self.indent {
            self.out.push('\n');
            for _ in 0..depth {
                self.out.push_str(indent);
            }
        }
    }

    fn number(&mut self, value: &Value) {
        match f64::try_from(value.clone()) {
            Ok(float) if !value.is_integer() => self.out.push_str(&python_float(float)),
            _ => self.out.push_str(&value.to_string()),
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if c < ' ' || (self.ascii && !(' '..='~').contains(&c)) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        let _ = write!(self.out, "\\u{unit:04x}");
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }

    /// Pays for what has been written since the last time, if it is much.
    fn charge(&mut self, at_least: usize) -> Result<(), Error> {
        let new = self.out.len() - self.charged;
        if new >= at_least {
            self.charged = self.out.len();
            self.state.consume_fuel(new as u64 / BYTES_PER_FUEL)?;
        }
        Ok(())
    }
}

fn cannot(why: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("tojson: {why}"))
}

/// A key as `json.dumps` writes it: the scalar's own JSON text in quotes.
fn key_text(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String => Ok(key.as_str().unwrap_or_default().to_owned()),
        ValueKind::None => Ok("null".to_owned()),
        ValueKind::Bool => Ok(if key.is_true() { "true" } else { "false" }.to_owned()),
        ValueKind::Number if key.is_integer() => Ok(key.to_string()),
        ValueKind::Number => Ok(f64::try_from(key.clone()).map(python_float)?),
        other => Err(cannot(&format!("{other} cannot be a key"))),
    }
}

/// A float as Python's `repr` writes it: the shortest digits that read back, with an
/// exponent below 1e-4 and from 1e16 on.
fn python_float(x: f64) -> String {
    if x.is_nan() {
        return "NaN".to_owned();
    }
    if x.is_infinite() {
        return if x > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let size = x.abs();
    if size != 0.0 && !(1e-4..1e16).contains(&size) {
        let text = format!("{x:e}");
        if let Some((digits, exponent)) = text.split_once('e')
            && let Ok(exponent) = exponent.parse::<i32>()
        {
            let sign = if exponent < 0 { '-' } else { '+' };
            return format!("{digits}e{sign}{:02}", exponent.unsigned_abs());
        }
    }
    format!("{x:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers and texts of Python's `repr`.
    #[test]
    fn floats_as_python_writes_them() {
        for (x, want) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (0.1, "0.1"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.5e-7, "1.5e-07"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (-1.25e300, "-1.25e+300"),
            (123_456_789.125, "123456789.125"),
            (f64::INFINITY, "Infinity"),
            (f64::NEG_INFINITY, "-Infinity"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(python_float(x), want);
        }
    }
}
