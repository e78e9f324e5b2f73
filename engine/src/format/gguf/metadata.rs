//! The key-value section, read with types checked.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::array::{Array, StrArray};
use super::value::{Value, ValueType};
use crate::format::FormatFault;
use crate::format::shown::Shown;
use crate::{Error, Result};

/// The metadata of a GGUF file, in the order of the file.
///
/// Getters give `None` for an absent key and [`FormatFault::WrongType`] or
/// [`FormatFault::OutOfRange`] when the value is not what was asked for. Integers of any
/// width convert when the value fits; integers and floats do not convert into each other.
/// Each getter has a `require_` twin that makes an absent key
/// [`FormatFault::MissingKey`].
#[derive(Clone, Debug)]
pub struct Metadata {
    path: PathBuf,
    entries: Vec<(String, Value)>,
    index: HashMap<String, usize>,
}

/// A getter and its `require_` twin.
macro_rules! getters {
    ($($(#[$doc:meta])* $name:ident, $require:ident -> $t:ty, $wanted:literal, $convert:expr;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Errors
            /// `WrongType` or `OutOfRange`, naming the key.
            pub fn $name(&self, key: &str) -> Result<Option<$t>> {
                let Some(value) = self.get(key) else { return Ok(None) };
                $convert(value).map(Some).map_err(|mismatch| self.refuse(key, value, $wanted, mismatch))
            }

            #[doc = concat!("[`", stringify!($name), "`](Self::", stringify!($name), ") of a key that must be there.")]
            ///
            /// # Errors
            /// `MissingKey`, `WrongType` or `OutOfRange`, naming the key.
            pub fn $require(&self, key: &str) -> Result<$t> {
                self.$name(key)?.ok_or_else(|| self.fault(FormatFault::MissingKey { key: key.to_owned() }))
            }
        )*
    };
}

/// Why a value is not what was asked for.
enum Mismatch {
    Type,
    Range(String),
    Utf8,
}

impl Metadata {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_path_buf(), entries: Vec::new(), index: HashMap::new() }
    }

    pub(super) fn insert(&mut self, key: String, value: Value) -> Result<(), FormatFault> {
        if self.index.contains_key(&key) {
            return Err(FormatFault::DuplicateKey { key });
        }
        self.index.insert(key.clone(), self.entries.len());
        self.entries.push((key, value));
        Ok(())
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True without entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entries in the order of the file.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(k, v)| (k.as_str(), v))
    }

    /// The value of a key, whatever its type.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.index.get(key).and_then(|&i| self.entries.get(i)).map(|(_, v)| v)
    }

    getters! {
        /// A string as bytes.
        bytes, require_bytes -> &[u8], "a string", bytes_of;
        /// A string that must be UTF-8.
        str, require_str -> &str, "a string", str_of;
        /// An integer of any width that fits.
        u32, require_u32 -> u32, "an unsigned 32-bit integer", integer_of;
        /// An integer of any width that fits.
        u64, require_u64 -> u64, "an unsigned 64-bit integer", integer_of;
        /// An integer of any width that fits.
        i32, require_i32 -> i32, "a 32-bit integer", integer_of;
        /// A 32-bit float, or a 64-bit one that it can hold exactly.
        f32, require_f32 -> f32, "a 32-bit float", f32_of;
        /// A float of either width.
        f64, require_f64 -> f64, "a float", f64_of;
        /// A boolean.
        bool, require_bool -> bool, "a bool", bool_of;
        /// An array of strings, not copied.
        str_array, require_str_array -> StrArray<'_>, "an array of string", strings_of;
        /// An array of integers of any width that fit.
        u32_array, require_u32_array -> Vec<u32>, "an array of unsigned 32-bit integers", integers_of;
        /// An array of integers of any width that fit.
        i32_array, require_i32_array -> Vec<i32>, "an array of 32-bit integers", integers_of;
        /// An array of floats, each as for [`f32`](Self::f32).
        f32_array, require_f32_array -> Vec<f32>, "an array of 32-bit floats", f32s_of;
        /// An array of booleans.
        bool_array, require_bool_array -> Vec<bool>, "an array of bool", bools_of;
    }

    fn fault(&self, fault: FormatFault) -> Error {
        Error::format(&self.path, fault)
    }

    fn refuse(&self, key: &str, value: &Value, wanted: &'static str, why: Mismatch) -> Error {
        let key = key.to_owned();
        self.fault(match why {
            Mismatch::Type => FormatFault::WrongType { key, found: value.kind(), wanted },
            Mismatch::Range(value) => FormatFault::OutOfRange { key, value, wanted },
            Mismatch::Utf8 => {
                FormatFault::InvalidUtf8 { what: format!("the value of {}", Shown(&key)) }
            }
        })
    }
}

fn bytes_of(value: &Value) -> Result<&[u8], Mismatch> {
    match value {
        Value::Str(s) => Ok(s),
        _ => Err(Mismatch::Type),
    }
}

fn str_of(value: &Value) -> Result<&str, Mismatch> {
    std::str::from_utf8(bytes_of(value)?).map_err(|_| Mismatch::Utf8)
}

fn integer_of<T: TryFrom<i128>>(value: &Value) -> Result<T, Mismatch> {
    let v = value.integer().ok_or(Mismatch::Type)?;
    T::try_from(v).map_err(|_| Mismatch::Range(v.to_string()))
}

fn f64_of(value: &Value) -> Result<f64, Mismatch> {
    value.float().ok_or(Mismatch::Type)
}

fn f32_of(value: &Value) -> Result<f32, Mismatch> {
    let wide = f64_of(value)?;
    let narrow = wide as f32;
    let exact = f64::from(narrow).to_bits() == wide.to_bits() || wide.is_nan();
    exact.then_some(narrow).ok_or_else(|| Mismatch::Range(wide.to_string()))
}

fn bool_of(value: &Value) -> Result<bool, Mismatch> {
    match value {
        Value::Bool(b) => Ok(*b),
        _ => Err(Mismatch::Type),
    }
}

fn array_of(value: &Value) -> Result<&Array, Mismatch> {
    match value {
        Value::Array(a) => Ok(a),
        _ => Err(Mismatch::Type),
    }
}

fn strings_of(value: &Value) -> Result<StrArray<'_>, Mismatch> {
    StrArray::new(array_of(value)?).ok_or(Mismatch::Type)
}

fn integers_of<T: TryFrom<i128>>(value: &Value) -> Result<Vec<T>, Mismatch> {
    elements(value, ValueType::is_integer, integer_of)
}

fn f32s_of(value: &Value) -> Result<Vec<f32>, Mismatch> {
    elements(value, |t| matches!(t, ValueType::F32 | ValueType::F64), f32_of)
}

fn bools_of(value: &Value) -> Result<Vec<bool>, Mismatch> {
    elements(value, |t| t == ValueType::Bool, bool_of)
}

/// Converts every element. The type is looked at first, so that an empty array of the
/// wrong type is refused too.
fn elements<T>(
    value: &Value,
    accepts: impl Fn(ValueType) -> bool,
    convert: impl Fn(&Value) -> Result<T, Mismatch>,
) -> Result<Vec<T>, Mismatch> {
    let array = array_of(value)?;
    if !accepts(array.element_type()) {
        return Err(Mismatch::Type);
    }
    array.iter().map(|v| convert(&v)).collect()
}
