//! Model files put together byte by byte, whatever nonsense they hold.

// Each test binary uses its own part of this.
#![allow(dead_code)]

use std::path::Path;

use foretoken::Error;
use foretoken::format::{FormatFault, GgufFile, SafetensorsModel};

/// Bytes of a GGUF file, appended field by field without any check.
#[derive(Clone, Default)]
pub(crate) struct Raw(pub(crate) Vec<u8>);

impl Raw {
    /// Magic, version 3 and these counts.
    pub(crate) fn head(tensors: u64, entries: u64) -> Self {
        Self(b"GGUF".to_vec()).u32(3).u64(tensors).u64(entries)
    }

    pub(crate) fn bytes(mut self, b: &[u8]) -> Self {
        self.0.extend_from_slice(b);
        self
    }

    pub(crate) fn u32(self, v: u32) -> Self {
        self.bytes(&v.to_le_bytes())
    }

    pub(crate) fn u64(self, v: u64) -> Self {
        self.bytes(&v.to_le_bytes())
    }

    /// A string with its true length.
    pub(crate) fn str(self, s: impl AsRef<[u8]>) -> Self {
        let s = s.as_ref();
        self.u64(s.len() as u64).bytes(s)
    }

    /// A key and the number of a value type.
    pub(crate) fn key(self, key: impl AsRef<[u8]>, kind: u32) -> Self {
        self.str(key).u32(kind)
    }

    /// A tensor info; dimensions as in the file, contiguous first.
    pub(crate) fn tensor(
        self,
        name: impl AsRef<[u8]>,
        dims: &[u64],
        kind: u32,
        offset: u64,
    ) -> Self {
        let mut out = self.str(name).u32(dims.len() as u32);
        for &d in dims {
            out = out.u64(d);
        }
        out.u32(kind).u64(offset)
    }

    /// Zeros up to a multiple of `to`, then `data` zeros.
    pub(crate) fn data(mut self, to: usize, data: usize) -> Self {
        let end = self.0.len().next_multiple_of(to) + data;
        self.0.resize(end, 0);
        self
    }
}

pub(crate) fn gguf(bytes: Vec<u8>) -> Result<GgufFile, Error> {
    GgufFile::from_bytes(Path::new("bad.gguf"), bytes.into())
}

/// The fault of a file that must not open, after a look at the message.
pub(crate) fn gguf_fault(bytes: Vec<u8>) -> FormatFault {
    fault_of(gguf(bytes).err(), "bad.gguf")
}

/// A safetensors file of this header and this many bytes of data.
pub(crate) fn safetensors_bytes(header: &str, data: usize) -> Vec<u8> {
    let mut out = (header.len() as u64).to_le_bytes().to_vec();
    out.extend_from_slice(header.as_bytes());
    out.resize(out.len() + data, 0);
    out
}

pub(crate) fn safetensors(bytes: Vec<u8>) -> Result<SafetensorsModel, Error> {
    SafetensorsModel::from_bytes(Path::new("bad.safetensors"), bytes.into())
}

pub(crate) fn safetensors_fault(bytes: Vec<u8>) -> FormatFault {
    fault_of(safetensors(bytes).err(), "bad.safetensors")
}

/// Takes an error apart; its message must be one short line that begins with the file.
pub(crate) fn fault_of(error: Option<Error>, file: &str) -> FormatFault {
    let error = error.expect("a bad file was opened");
    let line = error.to_string();
    assert!(line.chars().all(|c| !c.is_control()), "{line:?}");
    assert!(line.contains(&format!("{file}: ")) && line.len() < 600, "{line:?}");
    match error {
        Error::Format { fault, .. } => fault,
        other => panic!("not a fault of the format: {other}"),
    }
}
