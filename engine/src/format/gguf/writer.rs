//! Writing GGUF: declare everything, then stream the data.

use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::header::{ALIGNMENT_KEY, DEFAULT_ALIGNMENT, MAX_ALIGNMENT, MAX_NAME};
use super::layout::{GgufLayout, GgufPlace};
use super::value::{Kind, Value, ValueType};
use crate::format::FormatFault;
use crate::format::source::storage;
use crate::tensor::{DType, Shape};
use crate::{Error, Result};

/// The newest version of the format.
const VERSION: u32 = 3;

/// A GGUF file in the making: metadata and tensors are declared first, then
/// [`begin`](Self::begin) writes the head and the data follows tensor by tensor. What it
/// writes, [`GgufFile`](super::GgufFile) reads.
#[derive(Debug)]
pub struct GgufWriter {
    path: PathBuf,
    alignment: u32,
    metadata: Vec<(String, Value)>,
    tensors: Vec<Planned>,
    names: HashSet<String>,
    keys: HashSet<String>,
}

#[derive(Debug)]
struct Planned {
    name: String,
    dtype: DType,
    shape: Shape,
    bytes: usize,
}

impl GgufWriter {
    /// A file without metadata and tensors; `path` serves for messages.
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_path_buf(),
            alignment: DEFAULT_ALIGNMENT,
            metadata: Vec::new(),
            tensors: Vec::new(),
            names: HashSet::new(),
            keys: HashSet::new(),
        }
    }

    /// Adds a metadata entry; `general.alignment` is also obeyed.
    ///
    /// # Errors
    /// `EmptyKey`, `DuplicateKey`, `StringTooLong`, and `BadAlignment` or `WrongType` for
    /// an alignment that readers would refuse.
    pub fn metadata(&mut self, key: &str, value: Value) -> Result<&mut Self> {
        let index = self.metadata.len() as u64;
        if key.is_empty() {
            return Err(self.fault(FormatFault::EmptyKey { index }));
        }
        self.check_name(key)?;
        if key == ALIGNMENT_KEY {
            self.set_alignment(&value)?;
        }
        if !self.keys.insert(key.to_owned()) {
            return Err(self.fault(FormatFault::DuplicateKey { key: key.to_owned() }));
        }
        self.metadata.push((key.to_owned(), value));
        Ok(self)
    }

    /// Declares a tensor; `shape` is outermost first. Data is written in the order of
    /// declaration.
    ///
    /// # Errors
    /// `EmptyTensorName`, `DuplicateTensor`, `StringTooLong`, `ZeroDim`, `PartialBlocks`,
    /// `SizeOverflow`.
    pub fn tensor(&mut self, name: &str, dtype: DType, shape: Shape) -> Result<&mut Self> {
        let tensor = name.to_owned();
        if name.is_empty() {
            let index = self.tensors.len() as u64;
            return Err(self.fault(FormatFault::EmptyTensorName { index }));
        }
        self.check_name(name)?;
        let bytes = storage(name, dtype, shape).map_err(|f| self.fault(f))?;
        if !self.names.insert(tensor.clone()) {
            return Err(self.fault(FormatFault::DuplicateTensor { tensor }));
        }
        self.tensors.push(Planned { name: tensor, dtype, shape, bytes });
        Ok(self)
    }

    /// The head and the place of every tensor, for a writer of its own.
    ///
    /// # Errors
    /// `SizeOverflow` when the tensors together are too large.
    pub fn layout(&self) -> Result<GgufLayout> {
        let mut head = Vec::new();
        head.extend_from_slice(b"GGUF");
        head.extend_from_slice(&VERSION.to_le_bytes());
        head.extend_from_slice(&(self.tensors.len() as u64).to_le_bytes());
        head.extend_from_slice(&(self.metadata.len() as u64).to_le_bytes());
        for (key, value) in &self.metadata {
            push_string(&mut head, key.as_bytes());
            push_value(&mut head, value);
        }
        let align = self.alignment as usize;
        let mut offset = 0usize;
        let mut tensors = Vec::with_capacity(self.tensors.len());
        for t in &self.tensors {
            push_string(&mut head, t.name.as_bytes());
            let dims = t.shape.dims();
            head.extend_from_slice(&(dims.len() as u32).to_le_bytes());
            for &d in dims.iter().rev() {
                head.extend_from_slice(&(d as u64).to_le_bytes());
            }
            head.extend_from_slice(&t.dtype.ggml_id().to_le_bytes());
            head.extend_from_slice(&(offset as u64).to_le_bytes());
            let (name, dtype, shape) = (t.name.clone(), t.dtype, t.shape);
            tensors.push(GgufPlace {
                name,
                dtype,
                shape,
                start: offset as u64,
                bytes: t.bytes as u64,
            });
            let end = offset.checked_add(t.bytes).and_then(|e| e.checked_next_multiple_of(align));
            offset = end.ok_or_else(|| self.too_large(&t.name))?;
        }
        head.resize(head.len().next_multiple_of(align), 0);
        let len = (head.len() as u64).checked_add(offset as u64);
        let last = self.tensors.last().map_or("", |t| &t.name);
        let len = len.ok_or_else(|| self.too_large(last))?;
        tensors.iter_mut().for_each(|place| place.start += head.len() as u64);
        Ok(GgufLayout { head, tensors, len })
    }

    /// Writes everything up to the data.
    ///
    /// # Errors
    /// `SizeOverflow` when the tensors together are too large, [`Error::Io`].
    pub fn begin<W: Write>(self, mut out: W) -> Result<GgufBody<W>> {
        let head = self.layout()?.head;
        out.write_all(&head).map_err(|e| Error::io(&self.path, e))?;
        Ok(GgufBody { plan: self, out, done: 0 })
    }

    fn too_large(&self, tensor: &str) -> Error {
        self.fault(FormatFault::SizeOverflow { tensor: tensor.to_owned() })
    }

    fn check_name(&self, name: &str) -> Result<()> {
        let len = name.len() as u64;
        if len > MAX_NAME {
            let what = "a name".to_owned();
            return Err(self.fault(FormatFault::StringTooLong { what, len, limit: MAX_NAME }));
        }
        Ok(())
    }

    fn set_alignment(&mut self, value: &Value) -> Result<()> {
        let &Value::U32(alignment) = value else {
            let (found, wanted) = (value.kind(), "u32");
            let key = ALIGNMENT_KEY.to_owned();
            return Err(self.fault(FormatFault::WrongType { key, found, wanted }));
        };
        if !alignment.is_power_of_two() || alignment > MAX_ALIGNMENT {
            return Err(self.fault(FormatFault::BadAlignment { alignment, limit: MAX_ALIGNMENT }));
        }
        self.alignment = alignment;
        Ok(())
    }

    fn fault(&self, fault: FormatFault) -> Error {
        Error::format(&self.path, fault)
    }
}

/// A GGUF file whose head is written and whose tensor data is being written.
#[derive(Debug)]
pub struct GgufBody<W> {
    plan: GgufWriter,
    out: W,
    done: usize,
}

impl<W: Write> GgufBody<W> {
    /// Name and size in bytes of the tensor to write next.
    pub fn pending(&self) -> Option<(&str, usize)> {
        self.plan.tensors.get(self.done).map(|t| (t.name.as_str(), t.bytes))
    }

    /// Writes the data of the next tensor, all of it.
    ///
    /// # Errors
    /// `WrongLength` when it is not as many bytes as declared or no tensor is left,
    /// [`Error::Io`].
    pub fn data(&mut self, bytes: &[u8]) -> Result<()> {
        let (name, wanted) = self.pending().unwrap_or(("", 0));
        if bytes.len() != wanted || wanted == 0 {
            let tensor = name.to_owned();
            let fault = FormatFault::WrongLength { tensor, found: bytes.len(), wanted };
            return Err(self.plan.fault(fault));
        }
        let padding = wanted.next_multiple_of(self.plan.alignment as usize) - wanted;
        let written = self.out.write_all(bytes);
        let padding = &mut io::repeat(0).take(padding as u64);
        written
            .and_then(|()| io::copy(padding, &mut self.out).map(drop))
            .map_err(|e| Error::io(&self.plan.path, e))?;
        self.done += 1;
        Ok(())
    }

    /// Flushes and gives the output back.
    ///
    /// # Errors
    /// `MissingTensor` when a declared tensor was not written, [`Error::Io`].
    pub fn finish(mut self) -> Result<W> {
        if let Some((name, _)) = self.pending() {
            let tensor = name.to_owned();
            return Err(self.plan.fault(FormatFault::MissingTensor { tensor }));
        }
        self.out.flush().map_err(|e| Error::io(&self.plan.path, e))?;
        Ok(self.out)
    }
}

fn push_string(out: &mut Vec<u8>, s: &[u8]) {
    out.extend_from_slice(&(s.len() as u64).to_le_bytes());
    out.extend_from_slice(s);
}

/// The type, then the value.
fn push_value(out: &mut Vec<u8>, value: &Value) {
    let kind = match value.kind() {
        Kind::One(t) => t,
        Kind::ArrayOf(_) => ValueType::Array,
    };
    out.extend_from_slice(&kind.id().to_le_bytes());
    match value {
        Value::U8(v) => out.push(*v),
        Value::I8(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::U16(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::I16(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::U32(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::I32(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::F32(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::Bool(v) => out.push(u8::from(*v)),
        Value::Str(s) => push_string(out, s),
        Value::Array(a) => {
            out.extend_from_slice(&a.element_type().id().to_le_bytes());
            out.extend_from_slice(&(a.len() as u64).to_le_bytes());
            out.extend_from_slice(a.bytes());
        }
        Value::U64(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::I64(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::F64(v) => out.extend_from_slice(&v.to_le_bytes()),
    }
}
