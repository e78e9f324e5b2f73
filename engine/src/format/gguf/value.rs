//! Metadata values: scalars by value, strings and arrays as views of the file.

use super::array::Array;
use super::cursor::Cursor;
use crate::format::{FormatFault, SharedBytes};

/// Arrays of arrays are legal but unused; deeper ones only serve to exhaust a stack.
pub(super) const MAX_ARRAY_DEPTH: usize = 4;

macro_rules! value_types {
    ($($variant:ident = $id:literal, $name:literal, $least:literal;)*) => {
        /// The types of metadata values (GGUF specification, `gguf_metadata_value_type`).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs)]
        pub enum ValueType { $($variant,)* }

        impl ValueType {
            /// The type with this number in the file.
            pub fn from_id(id: u32) -> Option<Self> {
                match id { $($id => Some(Self::$variant),)* _ => None }
            }

            /// Its number in the file.
            pub fn id(self) -> u32 {
                match self { $(Self::$variant => $id,)* }
            }

            /// Its name in messages.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Bytes the shortest value takes; for all but strings and arrays, the bytes
            /// every value takes.
            pub(super) fn least_bytes(self) -> u64 {
                match self { $(Self::$variant => $least,)* }
            }
        }
    };
}

value_types! {
    U8 = 0, "u8", 1;
    I8 = 1, "i8", 1;
    U16 = 2, "u16", 2;
    I16 = 3, "i16", 2;
    U32 = 4, "u32", 4;
    I32 = 5, "i32", 4;
    F32 = 6, "f32", 4;
    Bool = 7, "bool", 1;
    Str = 8, "string", 8;
    Array = 9, "array", 12;
    U64 = 10, "u64", 8;
    I64 = 11, "i64", 8;
    F64 = 12, "f64", 8;
}

impl ValueType {
    /// True for the signed and unsigned integers.
    pub fn is_integer(self) -> bool {
        use ValueType::{I8, I16, I32, I64, U8, U16, U32, U64};
        matches!(self, U8 | I8 | U16 | I16 | U32 | I32 | U64 | I64)
    }
}

/// What a value is, for messages: a plain type, or an array of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Not an array.
    One(ValueType),
    /// An array of elements of this type.
    ArrayOf(ValueType),
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::One(t) => f.write_str(t.name()),
            Self::ArrayOf(t) => write!(f, "an array of {}", t.name()),
        }
    }
}

/// One metadata value. Strings are bytes: the format says UTF-8, but files in use hold
/// others, and only those who want text need care.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    Str(SharedBytes),
    Array(Array),
    U64(u64),
    I64(i64),
    F64(f64),
}

impl Value {
    /// A string value.
    pub fn string(s: &str) -> Self {
        Self::Str(SharedBytes::from(s.as_bytes().to_vec()))
    }

    /// Its type, and that of its elements.
    pub fn kind(&self) -> Kind {
        Kind::One(match self {
            Self::U8(_) => ValueType::U8,
            Self::I8(_) => ValueType::I8,
            Self::U16(_) => ValueType::U16,
            Self::I16(_) => ValueType::I16,
            Self::U32(_) => ValueType::U32,
            Self::I32(_) => ValueType::I32,
            Self::F32(_) => ValueType::F32,
            Self::Bool(_) => ValueType::Bool,
            Self::Str(_) => ValueType::Str,
            Self::Array(a) => return Kind::ArrayOf(a.element_type()),
            Self::U64(_) => ValueType::U64,
            Self::I64(_) => ValueType::I64,
            Self::F64(_) => ValueType::F64,
        })
    }

    /// The value as an integer, when it is one.
    pub fn integer(&self) -> Option<i128> {
        Some(match *self {
            Self::U8(v) => v.into(),
            Self::I8(v) => v.into(),
            Self::U16(v) => v.into(),
            Self::I16(v) => v.into(),
            Self::U32(v) => v.into(),
            Self::I32(v) => v.into(),
            Self::U64(v) => v.into(),
            Self::I64(v) => v.into(),
            _ => return None,
        })
    }

    /// The value as a float, when it is one.
    pub fn float(&self) -> Option<f64> {
        match *self {
            Self::F32(v) => Some(v.into()),
            Self::F64(v) => Some(v),
            _ => None,
        }
    }
}

/// Reads one value of type `kind`. `all` is what the cursor walks, so that strings and
/// arrays become views; `depth` counts the arrays around this value.
pub(super) fn read_value(
    cur: &mut Cursor<'_>,
    all: &SharedBytes,
    kind: ValueType,
    key: &str,
    depth: usize,
) -> Result<Value, FormatFault> {
    let what = || format!("the value of {}", crate::format::shown::Shown(key));
    macro_rules! scalar {
        ($t:ty) => {
            <$t>::from_le_bytes(cur.array().map_err(|s| s.within(what()))?)
        };
    }
    Ok(match kind {
        ValueType::U8 => Value::U8(scalar!(u8)),
        ValueType::I8 => Value::I8(scalar!(i8)),
        ValueType::U16 => Value::U16(scalar!(u16)),
        ValueType::I16 => Value::I16(scalar!(i16)),
        ValueType::U32 => Value::U32(scalar!(u32)),
        ValueType::I32 => Value::I32(scalar!(i32)),
        ValueType::F32 => Value::F32(scalar!(f32)),
        ValueType::U64 => Value::U64(scalar!(u64)),
        ValueType::I64 => Value::I64(scalar!(i64)),
        ValueType::F64 => Value::F64(scalar!(f64)),
        ValueType::Bool => Value::Bool(boolean(scalar!(u8), key)?),
        ValueType::Str => {
            let range = cur.string(what)?;
            Value::Str(all.slice(range).unwrap_or_default())
        }
        ValueType::Array => Value::Array(read_array(cur, all, key, depth)?),
    })
}

/// Reads an array by walking over it once; the elements are decoded when asked for.
fn read_array(
    cur: &mut Cursor<'_>,
    all: &SharedBytes,
    key: &str,
    depth: usize,
) -> Result<Array, FormatFault> {
    let what = || format!("the array {}", crate::format::shown::Shown(key));
    if depth >= MAX_ARRAY_DEPTH {
        return Err(FormatFault::NestedTooDeep { key: key.to_owned(), limit: MAX_ARRAY_DEPTH });
    }
    let id = cur.u32().map_err(|s| s.within(what()))?;
    let element = ValueType::from_id(id)
        .ok_or_else(|| FormatFault::UnknownValueType { key: key.to_owned(), id })?;
    let count = cur.u64().map_err(|s| s.within(what()))?;
    let size = element.least_bytes();
    cur.fits(count, size, what)?;
    let start = cur.pos();
    match element {
        ValueType::Str => {
            for _ in 0..count {
                cur.string(what)?;
            }
        }
        ValueType::Array => {
            for _ in 0..count {
                read_array(cur, all, key, depth + 1)?;
            }
        }
        _ => {
            let bytes = cur.take(count.saturating_mul(size)).map_err(|s| s.within(what()))?;
            if element == ValueType::Bool {
                bytes.iter().try_for_each(|&b| boolean(b, key).map(drop))?;
            }
        }
    }
    // `fits` bounds the count by the bytes in memory, so that it is a `usize`.
    let len = usize::try_from(count).unwrap_or(usize::MAX);
    Ok(Array::view(element, len, all.slice(start..cur.pos()).unwrap_or_default()))
}

fn boolean(byte: u8, key: &str) -> Result<bool, FormatFault> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(FormatFault::BadBool { key: key.to_owned(), byte }),
    }
}
