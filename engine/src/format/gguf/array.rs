//! Arrays, kept as they lie in the file.

use super::cursor::Cursor;
use super::value::{Value, ValueType, read_value};
use crate::format::SharedBytes;

/// An array value: elements of one type, encoded as in the file and decoded on demand.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    element: ValueType,
    len: usize,
    bytes: SharedBytes,
}

impl Array {
    /// A view of `len` elements, which the caller has walked over and found sound.
    pub(super) fn view(element: ValueType, len: usize, bytes: SharedBytes) -> Self {
        Self { element, len, bytes }
    }

    /// An array of strings, for writing.
    pub fn strings<S: AsRef<[u8]>>(items: impl IntoIterator<Item = S>) -> Self {
        let (mut bytes, mut len) = (Vec::new(), 0);
        for s in items {
            let s = s.as_ref();
            bytes.extend_from_slice(&(s.len() as u64).to_le_bytes());
            bytes.extend_from_slice(s);
            len += 1;
        }
        Self::view(ValueType::Str, len, bytes.into())
    }

    /// An array of `u32`, for writing.
    pub fn u32s(items: &[u32]) -> Self {
        let bytes: Vec<u8> = items.iter().flat_map(|v| v.to_le_bytes()).collect();
        Self::view(ValueType::U32, items.len(), bytes.into())
    }

    /// An array of `i32`, for writing.
    pub fn i32s(items: &[i32]) -> Self {
        let bytes: Vec<u8> = items.iter().flat_map(|v| v.to_le_bytes()).collect();
        Self::view(ValueType::I32, items.len(), bytes.into())
    }

    /// An array of `f32`, for writing.
    pub fn f32s(items: &[f32]) -> Self {
        let bytes: Vec<u8> = items.iter().flat_map(|v| v.to_le_bytes()).collect();
        Self::view(ValueType::F32, items.len(), bytes.into())
    }

    /// An array of booleans, for writing.
    pub fn bools(items: &[bool]) -> Self {
        let bytes: Vec<u8> = items.iter().map(|&v| u8::from(v)).collect();
        Self::view(ValueType::Bool, items.len(), bytes.into())
    }

    /// Type of the elements.
    pub fn element_type(&self) -> ValueType {
        self.element
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True without elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements as they lie in the file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The elements, decoded one at a time.
    pub fn iter(&self) -> impl Iterator<Item = Value> + '_ {
        let mut cur = Cursor::new(&self.bytes);
        // The array was walked when it was read (or built here), so that no element
        // fails; depth 1 because this array is around each of them.
        (0..self.len)
            .map_while(move |_| read_value(&mut cur, &self.bytes, self.element, "", 1).ok())
    }
}

/// An array of strings, borrowed from the file.
#[derive(Clone, Copy, Debug)]
pub struct StrArray<'a> {
    len: usize,
    bytes: &'a [u8],
}

impl<'a> StrArray<'a> {
    /// The strings of an array; `None` when its elements are something else.
    pub fn new(array: &'a Array) -> Option<Self> {
        (array.element == ValueType::Str).then_some(Self { len: array.len, bytes: &array.bytes })
    }

    /// Number of strings.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True without strings.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The strings in order, as bytes. Each step reads one length; reaching the n-th
    /// costs n steps, so collect them when they are wanted at random.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        let (mut cur, bytes) = (Cursor::new(self.bytes), self.bytes);
        (0..self.len).map(move |_| {
            cur.string(String::new).ok().and_then(|r| bytes.get(r)).unwrap_or_default()
        })
    }

    /// The strings as text, in order; the error is the index of the first that is not UTF-8.
    pub fn to_strs(&self) -> Result<Vec<&'a str>, usize> {
        let text = self.iter().enumerate();
        text.map(|(i, s)| std::str::from_utf8(s).map_err(|_| i)).collect()
    }
}
