//! Bounds on `format`, the filter (`%5d`) and the method (`{:5}`). The template engine
//! sets aside what a width or a precision asks for before it counts the work, and a
//! width or a key that it does not expect ends its thread; so the format is looked
//! through first, and what it will make is paid for.

use std::iter::Peekable;
use std::str::Chars;

use minijinja::value::{Rest, Value, ValueKind, ValueOrKwargs};
use minijinja::{Error, ErrorKind, State, filters};
use minijinja_contrib::pycompat::unknown_method_callback;

/// The largest width or precision; templates pad to a few dozen columns.
const MAX_WIDTH: u64 = 4096;

/// Levels of lists and maps that an argument may have.
const MAX_DEPTH: usize = 128;

/// Bytes that a number or another small value takes when written.
const SMALL: u64 = 32;

/// Bytes made for a unit of fuel, as the template engine counts.
const BYTES_PER_FUEL: u64 = 64;

/// Methods of Python that the template engine does not have itself.
pub(super) fn method(
    state: &mut State,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    if let ("format", Some(text)) = (method, value.as_str()) {
        pay(state, braces(text)?, args)?;
    }
    unknown_method_callback(state, value, method, args)
}

/// The `format` filter.
pub(super) fn filter(
    state: &mut State,
    text: &Value,
    args: Rest<ValueOrKwargs>,
) -> Result<Value, Error> {
    if let Some(text) = text.as_str() {
        let args: Vec<Value> = args.iter().map(|arg| Value::clone(arg)).collect();
        pay(state, percents(text)?, &args)?;
    }
    filters::format(state, text, args)
}

/// What the fields of a format ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Fields {
    count: u64,
    /// All widths and precisions together.
    width: u64,
}

impl Fields {
    /// One more field, with this specification.
    fn add(&mut self, spec: &str) -> Result<(), Error> {
        self.count += 1;
        for digits in spec.split(|c: char| !c.is_ascii_digit()) {
            let digit = |d: u8| u64::from(d.wrapping_sub(b'0'));
            let number =
                digits.bytes().fold(0u64, |n, d| n.saturating_mul(10).saturating_add(digit(d)));
            if number > MAX_WIDTH {
                return Err(refused(&format!("a width or precision over {MAX_WIDTH}")));
            }
            self.width += number;
        }
        Ok(())
    }
}

fn refused(what: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("format: {what} is not supported"))
}

/// The fields of a format such as `{0[key]:>5}`.
fn braces(text: &str) -> Result<Fields, Error> {
    let (mut fields, mut chars) = (Fields::default(), text.chars().peekable());
    while let Some(c) = chars.next() {
        if c != '{' || chars.next_if_eq(&'{').is_some() {
            continue;
        }
        let mut has_spec = false;
        while let Some(c) = chars.next_if(|&c| c != '}') {
            match c {
                '[' => key(&mut chars, ']')?,
                ':' => {
                    has_spec = true;
                    break;
                }
                _ => {}
            }
        }
        let mut spec = String::new();
        if has_spec {
            // What pads comes before an arrow and may be anything, a digit or a brace too.
            let mut ahead = chars.clone();
            if let (Some(_), Some('<' | '>' | '^')) = (ahead.next(), ahead.next()) {
                chars = ahead;
            }
            while let Some(c) = chars.next_if(|&c| c != '}') {
                spec.push(c);
            }
        }
        fields.add(&spec)?;
    }
    Ok(fields)
}

/// The fields of a format such as `%(key)-5d`.
fn percents(text: &str) -> Result<Fields, Error> {
    let (mut fields, mut chars) = (Fields::default(), text.chars().peekable());
    while let Some(c) = chars.next() {
        if c != '%' || chars.next_if_eq(&'%').is_some() {
            continue;
        }
        if chars.next_if_eq(&'(').is_some() {
            key(&mut chars, ')')?;
        }
        let mut spec = String::new();
        while let Some(c) = chars.next_if(|c| "#0- +.123456789".contains(*c)) {
            spec.push(c);
        }
        fields.add(&spec)?;
    }
    Ok(fields)
}

/// Skips a key. The template engine looks for its end byte by byte and breaks off in
/// the midst of a longer character.
fn key(chars: &mut Peekable<Chars<'_>>, end: char) -> Result<(), Error> {
    for c in chars.by_ref() {
        if c == end {
            break;
        }
        if !c.is_ascii() {
            return Err(refused("a key that is not ASCII"));
        }
    }
    Ok(())
}

/// Pays for the text that the fields can make of the arguments.
fn pay(state: &State, fields: Fields, args: &[Value]) -> Result<(), Error> {
    let mut largest = 0;
    for arg in args {
        largest = largest.max(weight(state, arg, 0)?);
    }
    let bytes = fields.count.saturating_mul(largest).saturating_add(fields.width);
    state.consume_fuel(bytes / BYTES_PER_FUEL)
}

/// About the bytes that a value takes when written. Lists that hold one list many times
/// can write far more than they take in memory, so that looking costs fuel too.
fn weight(state: &State, value: &Value, depth: usize) -> Result<u64, Error> {
    state.consume_fuel(1)?;
    if depth > MAX_DEPTH {
        let detail = "format: a value nests beyond the recursion limit";
        return Err(Error::new(ErrorKind::InvalidOperation, detail));
    }
    let mut sum = SMALL;
    match value.kind() {
        ValueKind::String => {
            sum = sum.saturating_add(value.as_str().map_or(0, str::len) as u64);
        }
        ValueKind::Map => {
            for key in value.try_iter()? {
                let item = weight(state, &value.get_item(&key)?, depth + 1)?;
                let pair = item.saturating_add(weight(state, &key, depth + 1)?);
                sum = sum.saturating_add(pair);
            }
        }
        ValueKind::Seq | ValueKind::Iterable => {
            for item in value.try_iter()? {
                sum = sum.saturating_add(weight(state, &item, depth + 1)?);
            }
        }
        _ => {}
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_and_their_widths_added() {
        let of = |count, width| Ok(Fields { count, width });
        let text = |fields: Result<Fields, Error>| fields.map_err(|error| error.to_string());
        for (format, want) in [
            ("", of(0, 0)),
            ("20240101 {{9999}}", of(0, 0)),
            ("{}{0}{a.b[c]}", of(3, 0)),
            ("{:5}{:05.2f}{:>+#4096_.3e}", of(3, 5 + 5 + 2 + 4096 + 3)),
            ("{:9<7}{:}>8}9999", of(2, 15)),
            ("{a[}:9999]:3} 99999", of(1, 3)),
            ("{:4", of(1, 4)),
            ("{", of(1, 0)),
        ] {
            assert_eq!(text(braces(format)), want, "{format}");
        }
        for (format, want) in
            [("9999 %% 9999", of(0, 0)), ("%s %-5d%(9999)05.2f 9999", of(3, 12)), ("%", of(1, 0))]
        {
            assert_eq!(text(percents(format)), want, "{format}");
        }
        let wide =
            ["{:4097}", "{:.99999999999999999999999}", "{{{:x^18446744073709551615}", "{:04097"];
        for format in wide {
            assert!(text(braces(format)).unwrap_err().contains("4096"), "{format}");
        }
        for format in ["%4097d", "%.4097f", "%-05000s", "%(a)99999s", "%% % 4097d"] {
            assert!(text(percents(format)).unwrap_err().contains("4096"), "{format}");
        }
        assert!(text(braces("{a[é]}")).unwrap_err().contains("ASCII"));
        assert!(text(percents("%(é)s")).unwrap_err().contains("ASCII"));
    }
}
